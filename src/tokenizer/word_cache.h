// Remembers what words were encoded to.

#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

#include "base/types.h"
#include "tokenizer/token_table.h"

namespace minisgl {

/// Short words and their tokens: a fixed table in which a word replaces what was in its place. Text
/// is made of few words, so that nine in ten are found here, in one cache line.
///
/// Not thread-safe: one for each thread that encodes.
class WordCache {
 public:
  static constexpr std::size_t kMaxBytes = 15;  ///< of a word
  static constexpr std::size_t kMaxTokens = 4;  ///< of a word

  WordCache() : entries_(std::make_unique<Entry[]>(kEntries)) {}

  /// A word that may be in the cache.
  struct Key {
    std::uint64_t low = 0;
    std::uint64_t high = 0;  ///< the topmost byte is the length: no word is all zero
  };
  /// `word` is not empty and not longer than kMaxBytes; `readable_bytes` >= its size may be read
  /// from its beginning.
  static Key make_key(std::string_view word, std::size_t readable_bytes) {
    std::array<std::uint64_t, 2> bytes{};
    std::memcpy(bytes.data(), word.data(),
                readable_bytes >= sizeof bytes ? sizeof bytes : word.size());
    const std::uint64_t length = static_cast<std::uint64_t>(word.size()) << 56;
    return {bytes[0] & kMasks[word.size()][0], (bytes[1] & kMasks[word.size()][1]) | length};
  }

  /// Writes the tokens of the word to `out`, which has room for kMaxTokens whatever their number,
  /// and returns how many they are; 0: the word is not here.
  std::size_t find(Key key, TokenId* out) const {
    const Entry& entry = entries_[slot_of(key)];
    if (entry.key.low != key.low || entry.key.high != key.high) return 0;
    std::memcpy(out, entry.tokens.data(), sizeof entry.tokens);
    return static_cast<std::size_t>(1 + (entry.tokens[1] != kNoToken) +
                                    (entry.tokens[2] != kNoToken) + (entry.tokens[3] != kNoToken));
  }
  /// Remembers a word; one with no or too many tokens is not kept.
  void put(Key key, std::span<const TokenId> tokens) {
    if (tokens.empty() || tokens.size() > kMaxTokens) return;
    Entry& entry = entries_[slot_of(key)];
    entry.key = key;
    entry.tokens.fill(kNoToken);
    std::ranges::copy(tokens, entry.tokens.begin());
  }

 private:
  using Mask = std::array<std::uint64_t, 2>;
  static constexpr int kEntryBits = 15;
  static constexpr std::size_t kEntries = std::size_t{1} << kEntryBits;  // of 32 bytes: 512 KiB
  struct alignas(32) Entry {
    Key key;
    std::array<TokenId, kMaxTokens> tokens{};
  };

  // A multiplication spreads all bits of the key to the topmost ones.
  static std::size_t slot_of(Key key) {
    const std::uint64_t mixed = (key.low ^ (key.high * 0x9E3779B97F4A7C15U)) * 0xD6E8FEB86659FD93U;
    return static_cast<std::size_t>(mixed >> (64 - kEntryBits));
  }

  // Of the bytes of a word, by its length (the machine is little-endian).
  static constexpr std::array<Mask, kMaxBytes + 1> kMasks = [] {
    std::array<Mask, kMaxBytes + 1> masks{};
    for (std::size_t size = 0; size < masks.size(); ++size)
      for (std::size_t i = 0; i < size; ++i)
        masks[size][i / 8] |= std::uint64_t{0xFF} << (8 * (i % 8));
    return masks;
  }();

  std::unique_ptr<Entry[]> entries_;
};

}  // namespace minisgl
