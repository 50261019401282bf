#include "tokenizer/token_table.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace minisgl {
namespace {

constexpr std::size_t kSmallestTable = 16;  // slots

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
  grow(std::bit_ceil(std::max(kSmallestTable, count * 2)));
}

void TokenTable::add(TokenId id, std::string_view bytes, bool findable) {
  check(id >= 0, "token id ", id, " is negative");
  check(block_.size() + bytes.size() < (std::size_t{1} << 32), "a vocabulary of over 4 GiB");
  if (id >= size()) places_.resize(static_cast<std::size_t>(id) + 1);
  Place& place = places_[static_cast<std::size_t>(id)];
  place.begin = static_cast<std::uint32_t>(block_.size());
  place.length = static_cast<std::uint32_t>(bytes.size()) & 0x7FFFFFFFU;
  place.present = 1;
  block_.append(bytes);
  if (!findable || find(bytes) != kNoToken) return;
  if ((num_findable_ + 1) * 2 > slots_.size()) grow(std::max(kSmallestTable, slots_.size() * 2));
  insert(hash_bytes(bytes), id);
  ++num_findable_;
}

TokenId TokenTable::find(std::string_view wanted) const {
  if (slots_.empty()) return kNoToken;
  const std::uint32_t hash = hash_bytes(wanted);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.id == kNoToken) return kNoToken;
    if (slot.hash == hash && bytes(slot.id) == wanted) return slot.id;
  }
}

void TokenTable::grow(std::size_t num_slots) {
  if (num_slots <= slots_.size()) return;
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(num_slots));
  for (const Slot& slot : old)
    if (slot.id != kNoToken) insert(slot.hash, slot.id);
}

void TokenTable::insert(std::uint32_t hash, TokenId id) {
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = hash & mask;
  while (slots_[i].id != kNoToken) i = (i + 1) & mask;
  slots_[i] = {hash, id};
}

MergeTable::MergeTable(std::size_t num_merges) {
  // At most 60 % full: most look-ups are for pairs that are not there, and run to a free slot.
  const std::size_t num_slots = std::bit_ceil(std::max(kSmallestTable, num_merges * 10 / 6 + 1));
  slots_.resize(num_slots);
  mask_ = num_slots - 1;
  shift_ = 64 - std::countr_zero(num_slots);
}

void MergeTable::add(TokenId left, TokenId right, Merge merge) {
  const std::uint64_t key = make_key(left, right);
  std::size_t i = slot_of(key);
  while (slots_[i].key != kEmpty && slots_[i].key != key) i = (i + 1) & mask_;
  if (slots_[i].key == kEmpty) {
    ++size_;
    check(size_ < slots_.size(), "more merges than the table was made for");
  }
  slots_[i] = {key, merge};
}

}  // namespace minisgl
