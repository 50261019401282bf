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

/// Words of up to 8 * kKeyWords - 1 bytes and their tokens, kTokens at most: a fixed table of
/// 2^kEntryBits places, in which a word replaces what was in its place. Text is made of few words,
/// so that nine in ten are found here, with one access to memory.
///
/// Not thread-safe: one for each thread that encodes.
template <std::size_t kKeyWords, std::size_t kTokens, int kEntryBits>
class WordCache {
 public:
  static constexpr std::size_t kMaxBytes = 8 * kKeyWords - 1;  ///< of a word
  static constexpr std::size_t kMaxTokens = kTokens;           ///< of a word

  WordCache() : entries_(std::make_unique<Entry[]>(std::size_t{1} << kEntryBits)) {}

  /// A word that may be in the cache: its bytes, and in the last one its length.
  using Key = std::array<std::uint64_t, kKeyWords>;

  /// `word` is not empty and not longer than kMaxBytes; `readable_bytes` >= its size may be read
  /// from its beginning.
  static Key make_key(std::string_view word, std::size_t readable_bytes) {
    Key key{};
    std::memcpy(key.data(), word.data(), readable_bytes >= sizeof key ? sizeof key : word.size());
    for (std::size_t i = 0; i < kKeyWords; ++i) key[i] &= kMasks[word.size()][i];
    key.back() |= static_cast<std::uint64_t>(word.size()) << 56;
    return key;
  }

  /// Writes the tokens of the word to `out`, which has room for kMaxTokens whatever their number,
  /// and returns how many they are; 0: the word is not here.
  std::size_t find(const Key& key, TokenId* out) const {
    const Entry& entry = entries_[slot_of(key)];
    std::uint64_t difference = 0;
    for (std::size_t i = 0; i < kKeyWords; ++i) difference |= entry.key[i] ^ key[i];
    if (difference != 0) return 0;
    std::memcpy(out, entry.tokens.data(), sizeof entry.tokens);
    std::size_t count = 1;
    for (std::size_t i = 1; i < kTokens; ++i) count += entry.tokens[i] != kNoToken;
    return count;
  }
  /// Remembers a word; one with no or too many tokens is not kept.
  void put(const Key& key, std::span<const TokenId> tokens) {
    if (tokens.empty() || tokens.size() > kTokens) return;
    Entry& entry = entries_[slot_of(key)];
    entry.key = key;
    entry.tokens.fill(kNoToken);
    std::ranges::copy(tokens, entry.tokens.begin());
  }

 private:
  struct alignas(kKeyWords * 8 + kTokens * sizeof(TokenId)) Entry {
    Key key{};  // no word's, as its length is 0
    std::array<TokenId, kTokens> tokens{};
  };

  // The bytes of a word, by its length (the machine is little-endian).
  static constexpr std::array<Key, kMaxBytes + 1> kMasks = [] {
    std::array<Key, kMaxBytes + 1> masks{};
    for (std::size_t size = 0; size < masks.size(); ++size)
      for (std::size_t i = 0; i < size; ++i)
        masks[size][i / 8] |= std::uint64_t{0xFF} << (8 * (i % 8));
    return masks;
  }();

  // A multiplication spreads all bits to the topmost ones.
  static std::size_t slot_of(const Key& key) {
    std::uint64_t mixed = key[0];
    for (std::size_t i = 1; i < kKeyWords; ++i) {
      mixed = (mixed ^ (mixed >> 32)) * 0xD6E8FEB86659FD93U;
      mixed ^= key[i] * 0x9E3779B97F4A7C15U;
    }
    return static_cast<std::size_t>((mixed * 0xD6E8FEB86659FD93U) >> (64 - kEntryBits));
  }

  std::unique_ptr<Entry[]> entries_;
};

using ShortWordCache = WordCache<2, 4, 15>;  ///< 1 MiB: what fits in the second-level cache
using LongWordCache = WordCache<4, 8, 12>;   ///< 256 KiB

}  // namespace minisgl
