// The two hash tables of a vocabulary: bytes -> token, and pair of tokens -> merge.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace minisgl {

inline constexpr TokenId kNoToken = -1;

/// The bytes of each token, and the token of a byte string. Tokens are added while loading;
/// afterwards any thread may read.
///
/// Invariants: find(bytes(id)) is the first id added as findable with those bytes; all bytes lie
/// in one block, so that 150,000 tokens cost four allocations and not 150,000.
class TokenTable {
 public:
  /// Room for `count` tokens of `total_bytes` together; only a hint.
  void reserve(std::size_t count, std::size_t total_bytes);

  /// Gives `id` >= 0 its bytes; a second call for an id replaces them. `findable`: find() knows it.
  void add(TokenId id, std::string_view bytes, bool findable);

  /// One more than the largest id.
  std::int32_t size() const { return static_cast<std::int32_t>(places_.size()); }
  /// Empty for ids that were not added. The view lives until the next add().
  std::string_view bytes(TokenId id) const {
    if (id < 0 || id >= size()) return {};
    const Place& place = places_[static_cast<std::size_t>(id)];
    return {block_.data() + place.begin, place.length};
  }
  bool contains(TokenId id) const {
    return id >= 0 && id < size() && places_[static_cast<std::size_t>(id)].present;
  }
  /// kNoToken when there is none.
  TokenId find(std::string_view bytes) const;

 private:
  struct Place {
    std::uint32_t begin = 0;
    std::uint32_t length : 31 = 0;
    std::uint32_t present : 1 = 0;
  };
  struct Slot {
    std::uint32_t hash = 0;  // spares most comparisons of bytes
    TokenId id = kNoToken;
    std::uint32_t begin = 0;  // the place of its bytes, here as well: one memory access less
    std::uint32_t length = 0;
  };

  // The slot that find() would stop at; nullptr when there is none.
  const Slot* slot_of(std::string_view bytes) const;
  void grow(std::size_t num_slots);
  void insert(Slot slot);

  std::string block_;
  std::vector<Place> places_;
  std::vector<Slot> slots_;  // open addressing, a power of two
  std::size_t num_findable_ = 0;
};

/// What two neighbouring tokens become.
struct Merge {
  std::uint32_t rank = kNoRank;  ///< the lowest rank is merged first
  TokenId merged = kNoToken;

  static constexpr std::uint32_t kNoRank = 0xFFFFFFFF;
};

/// Merges by (left, right). Filled while loading; afterwards any thread may read.
///
/// A look-up reads one word of eight bytes: most pairs do not merge, and of those that do, most are
/// only compared with others. What a pair becomes lies in a table of its own.
class MergeTable {
 public:
  static constexpr std::uint32_t kMaxId = (1U << 21) - 2;    ///< of left and right
  static constexpr std::uint32_t kMaxRank = (1U << 22) - 1;  ///< of a merge

  explicit MergeTable(std::size_t num_merges = 0);

  /// A second merge of the same pair replaces the first, as in Hugging Face tokenizers. Throws
  /// Error for ids and ranks beyond the limits.
  void add(TokenId left, TokenId right, Merge merge);

  /// The rank of a pair, and where merged() finds what it becomes.
  struct Found {
    std::uint32_t rank = Merge::kNoRank;  ///< kNoRank: the pair does not merge
    std::uint32_t slot = 0;
  };
  Found find(TokenId left, TokenId right) const {
    const std::uint64_t key = make_key(left, right);
    for (std::size_t i = slot_of(key);; i = (i + 1) & mask_) {
      const std::uint64_t slot = slots_[i];
      if (slot >> kRankBits == key)
        return {static_cast<std::uint32_t>(slot & kMaxRank), static_cast<std::uint32_t>(i)};
      if (slot == kEmpty) return {};
    }
  }
  TokenId merged(Found found) const { return merged_[found.slot]; }
  std::size_t size() const { return size_; }

 private:
  static constexpr int kIdBits = 21;
  static constexpr int kRankBits = 22;
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};  // no pair: ids are below it

  static std::uint64_t make_key(TokenId left, TokenId right) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << kIdBits) |
           static_cast<std::uint32_t>(right);
  }
  std::size_t slot_of(std::uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15U) >> shift_);
  }

  int shift_ = 0;
  std::size_t mask_ = 0;
  std::size_t size_ = 0;
  std::vector<std::uint64_t> slots_;  // left, right and rank in one
  std::vector<TokenId> merged_;       // by slot
};

}  // namespace minisgl
