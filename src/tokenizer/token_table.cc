#include "tokenizer/token_table.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "minisgl/error.h"

namespace minisgl {
namespace {

constexpr std::size_t kSmallestTable = 16;  // slots
constexpr std::uint32_t kNoLength =
    0xFFFFFFFF;  // of a slot that matches nothing: no token is so long

// Multiplies and folds eight bytes at a time (the mixing step of wyhash, by W. Yi, public domain).
std::uint32_t hash_bytes(std::string_view bytes) {
  const auto mix = [](std::uint64_t a, std::uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  };
  constexpr std::uint64_t kA = 0xA0761D6478BD642FU, kB = 0xE7037ED1A0B428DBU;
  std::uint64_t state = kA ^ bytes.size();
  const char* p = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; p += 8, left -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, p, 8);
    state = mix(state ^ word, kB);
  }
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < left; ++i)
    word |= static_cast<std::uint64_t>(static_cast<unsigned char>(p[i])) << (8 * i);
  state = mix(state ^ word, kB);
  return static_cast<std::uint32_t>(state ^ (state >> 32));
}

}  // namespace

void TokenTable::reserve(std::size_t count, std::size_t total_bytes) {
  places_.reserve(count);
  block_.reserve(total_bytes);
  grow(std::bit_ceil(std::max(kSmallestTable, count * 10 / 7)));
}

void TokenTable::add(TokenId id, std::string_view bytes, bool findable) {
  check(id >= 0, "token id ", id, " is negative");
  check(block_.size() + bytes.size() < (std::size_t{1} << 32), "a vocabulary of over 4 GiB");
  if (id >= size()) places_.resize(static_cast<std::size_t>(id) + 1);
  Place& place = places_[static_cast<std::size_t>(id)];
  if (place.present) {  // its old bytes find it no more; the slot stays, for what lies behind it
    const Slot* old = slot_of(this->bytes(id));
    if (old != nullptr && old->id == id)
      slots_[static_cast<std::size_t>(old - slots_.data())].length = kNoLength;
  }
  place.begin = static_cast<std::uint32_t>(block_.size());
  place.length = static_cast<std::uint32_t>(bytes.size()) & 0x7FFFFFFFU;
  place.present = 1;
  block_.append(bytes);
  if (!findable || find(bytes) != kNoToken) return;
  if ((num_findable_ + 1) * 10 / 7 > slots_.size())
    grow(std::max(kSmallestTable, slots_.size() * 2));
  insert({hash_bytes(bytes), id, place.begin, place.length});
  ++num_findable_;
}

const TokenTable::Slot* TokenTable::slot_of(std::string_view wanted) const {
  if (slots_.empty()) return nullptr;
  const std::uint32_t hash = hash_bytes(wanted);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.id == kNoToken) return nullptr;
    if (slot.hash == hash && slot.length == wanted.size() &&
        std::memcmp(block_.data() + slot.begin, wanted.data(), wanted.size()) == 0)
      return &slot;
  }
}

TokenId TokenTable::find(std::string_view wanted) const {
  const Slot* slot = slot_of(wanted);
  return slot == nullptr ? kNoToken : slot->id;
}

void TokenTable::grow(std::size_t num_slots) {
  if (num_slots <= slots_.size()) return;
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(num_slots));
  for (const Slot& slot : old)
    if (slot.id != kNoToken) insert(slot);
}

void TokenTable::insert(Slot slot) {
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = slot.hash & mask;
  while (slots_[i].id != kNoToken) i = (i + 1) & mask;
  slots_[i] = slot;
}

MergeTable::MergeTable(std::size_t num_merges) {
  // At most 60 % full: most look-ups are for pairs that are not there, and run to a free slot.
  const std::size_t num_slots = std::bit_ceil(std::max(kSmallestTable, num_merges * 10 / 6 + 1));
  slots_.resize(num_slots, kEmpty);
  merged_.resize(num_slots, kNoToken);
  mask_ = num_slots - 1;
  shift_ = 64 - std::countr_zero(num_slots);
}

void MergeTable::add(TokenId left, TokenId right, Merge merge) {
  const auto fits = [](TokenId id) { return id >= 0 && static_cast<std::uint32_t>(id) <= kMaxId; };
  if (!fits(left) || !fits(right) || merge.rank > kMaxRank)
    throw Error("a vocabulary with merges of token ids above " + std::to_string(kMaxId) +
                ", or with more than " + std::to_string(kMaxRank) + " merges, is not supported");
  const std::uint64_t key = make_key(left, right);
  std::size_t i = slot_of(key);
  while (slots_[i] != kEmpty && slots_[i] >> kRankBits != key) i = (i + 1) & mask_;
  if (slots_[i] == kEmpty) {
    ++size_;
    check(size_ < slots_.size(), "more merges than the table was made for");
  }
  slots_[i] = key << kRankBits | merge.rank;
  merged_[i] = merge.merged;
}

}  // namespace minisgl
