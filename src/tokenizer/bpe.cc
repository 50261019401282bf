#include "tokenizer/bpe.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/utf8.h"
#include "minisgl/error.h"

namespace minisgl {
namespace {

// Up to here a scan for the lowest rank is faster than a heap, and all fits on the stack.
constexpr std::size_t kShortWord = 64;

}  // namespace

Bpe::Bpe(BpeVocabulary vocabulary)
    : vocabulary_(std::move(vocabulary)),
      has_all_bytes_(std::ranges::find(vocabulary_.byte_tokens, kNoToken) ==
                     vocabulary_.byte_tokens.end()),
      reachable_(std::make_unique<std::atomic<std::uint8_t>[]>(
          static_cast<std::size_t>(vocabulary_.tokens.size()))) {
  if (static_cast<std::uint32_t>(vocabulary_.tokens.size()) > MergeTable::kMaxId)
    throw Error("a vocabulary of " + std::to_string(vocabulary_.tokens.size()) +
                " tokens is not supported; at most " + std::to_string(MergeTable::kMaxId) + " are");
  if (vocabulary_.starts_as_bytes && has_all_bytes_) {
    byte_pairs_.reserve(std::size_t{1} << 16);
    for (const TokenId left : vocabulary_.byte_tokens)
      for (const TokenId right : vocabulary_.byte_tokens)
        byte_pairs_.push_back(vocabulary_.merges.find(left, right));
  }
  if (!vocabulary_.ignore_merges) return;
  for (std::int32_t id = 0; id < vocabulary_.tokens.size(); ++id)
    reachable_[static_cast<std::size_t>(id)].store(kYes, std::memory_order_relaxed);
  for (const TokenId id : vocabulary_.control)
    reachable_[static_cast<std::size_t>(id)].store(kNo, std::memory_order_relaxed);
}

void Bpe::encode(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& out) const {
  if (word.empty()) return;
  // Most words of most texts are single tokens: one look-up instead of a merge per byte.
  const TokenId whole = vocabulary_.tokens.find(word);
  if (whole != kNoToken && is_reachable(whole, word, scratch)) {
    out.push_back(whole);
    return;
  }
  encode_by_merges(word, scratch, out);
}

bool Bpe::is_reachable(TokenId token, std::string_view word, BpeScratch& scratch) const {
  std::atomic<std::uint8_t>& memo = reachable_[static_cast<std::size_t>(token)];
  const std::uint8_t known = memo.load(std::memory_order_relaxed);
  if (known != kNotKnown) return known == kYes;
  std::vector<TokenId> ids;
  encode_by_merges(word, scratch, ids);
  const bool yes = ids.size() == 1 && ids[0] == token;
  memo.store(yes ? kYes : kNo, std::memory_order_relaxed);
  return yes;
}

void Bpe::encode_by_merges(std::string_view word, BpeScratch& scratch,
                           std::vector<TokenId>& out) const {
  const bool drops_or_finds_all = vocabulary_.unknown == kNoToken || has_all_bytes_;
  if (vocabulary_.starts_as_bytes && drops_or_finds_all && word.size() <= kShortWord) {
    std::array<TokenId, kShortWord> ids;  // NOLINT: filled as far as it is read
    const std::size_t count = encode_bytes(word, ids.data());
    out.insert(out.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
    return;
  }
  scratch.ids.clear();
  append_symbols(word, scratch.ids);
  merge(scratch.ids, scratch);
  out.insert(out.end(), scratch.ids.begin(), scratch.ids.end());
}

// A word of up to kShortWord bytes; returns how many tokens it wrote.
std::size_t Bpe::encode_bytes(std::string_view word, TokenId* ids) const {
  std::array<MergeTable::Found, kShortWord> pairs;  // NOLINT: filled as far as it is read
  std::size_t count = 0;
  for (const char c : word) {
    const TokenId id = vocabulary_.byte_tokens[static_cast<unsigned char>(c)];
    if (id != kNoToken) ids[count++] = id;
  }
  for (std::size_t i = 0; i + 1 < count; ++i)
    pairs[i] = byte_pairs_.empty() ? vocabulary_.merges.find(ids[i], ids[i + 1])
                                   : merge_of_bytes(static_cast<unsigned char>(word[i]),
                                                    static_cast<unsigned char>(word[i + 1]));
  return merge_short(ids, pairs.data(), count);
}

void Bpe::append_symbols(std::string_view word, std::vector<TokenId>& ids) const {
  bool after_unknown = false;
  const auto add_unknown = [&] {
    if (vocabulary_.unknown == kNoToken) return;
    if (!(after_unknown && vocabulary_.fuse_unknown)) ids.push_back(vocabulary_.unknown);
    after_unknown = true;
  };
  const auto add = [&](TokenId id) {
    ids.push_back(id);
    after_unknown = false;
  };
  const auto byte_token = [&](char c) {
    return vocabulary_.byte_tokens[static_cast<unsigned char>(c)];
  };
  const auto add_or_unknown = [&](TokenId id) { id == kNoToken ? add_unknown() : add(id); };

  if (vocabulary_.starts_as_bytes) {
    for (const char c : word) add_or_unknown(byte_token(c));
    return;
  }
  for (std::size_t pos = 0; pos < word.size();) {
    const std::string_view character = word.substr(pos, decode_utf8(word, pos).length);
    pos += character.size();
    const TokenId id = vocabulary_.tokens.find(character);
    const bool as_bytes = id == kNoToken && std::ranges::all_of(character, [&](char c) {
                            return byte_token(c) != kNoToken;
                          });
    if (as_bytes) {
      for (const char c : character) add(byte_token(c));
    } else {
      add_or_unknown(id);
    }
  }
}

void Bpe::merge(std::vector<TokenId>& ids, BpeScratch& scratch) const {
  if (ids.size() > kShortWord) return ids.resize(merge_long(ids.data(), ids.size(), scratch));
  std::array<MergeTable::Found, kShortWord> pairs;  // NOLINT: filled as far as it is read
  for (std::size_t i = 0; i + 1 < ids.size(); ++i)
    pairs[i] = vocabulary_.merges.find(ids[i], ids[i + 1]);
  ids.resize(merge_short(ids.data(), pairs.data(), ids.size()));
}

// `pairs`: the merges of (i, i + 1), one fewer than `count`.
std::size_t Bpe::merge_short(TokenId* ids, MergeTable::Found* pairs, std::size_t count) const {
  while (count >= 2) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i)
      if (pairs[i].rank < pairs[best].rank) best = i;
    if (pairs[best].rank == Merge::kNoRank) break;
    ids[best] = vocabulary_.merges.merged(pairs[best]);
    std::copy(ids + best + 2, ids + count, ids + best + 1);
    if (best + 2 < count) std::copy(pairs + best + 1, pairs + count - 1, pairs + best);
    --count;
    if (best > 0) pairs[best - 1] = vocabulary_.merges.find(ids[best - 1], ids[best]);
    if (best + 1 < count) pairs[best] = vocabulary_.merges.find(ids[best], ids[best + 1]);
  }
  return count;
}

// A heap of (rank, position) over a linked list. An entry is stale when the pair that it was made
// for is gone: its left symbol was merged away, or the pair there has another rank now.
std::size_t Bpe::merge_long(TokenId* ids, std::size_t count, BpeScratch& scratch) const {
  check(count < static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()), "a word of ",
        count, " symbols is too long");
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  symbols.resize(count);
  heap.clear();
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::int32_t>(i);
    symbols[i] = {ids[i], at - 1, i + 1 < count ? at + 1 : -1};
  }
  const auto symbol = [&](std::int32_t i) -> BpeScratch::Symbol& {
    return symbols[static_cast<std::size_t>(i)];
  };
  const auto pair_at = [&](std::int32_t left) {
    const std::int32_t right = symbol(left).next;
    return right < 0 ? MergeTable::Found{}
                     : vocabulary_.merges.find(symbol(left).id, symbol(right).id);
  };
  const auto entry = [](MergeTable::Found pair, std::int32_t left) {
    return (static_cast<std::uint64_t>(pair.rank) << 32) | static_cast<std::uint32_t>(left);
  };
  const auto push = [&](std::int32_t left) {
    const MergeTable::Found pair = pair_at(left);
    if (pair.rank == Merge::kNoRank) return;
    heap.push_back(entry(pair, left));
    std::ranges::push_heap(heap, std::greater<>());
  };

  for (std::int32_t i = 0; i + 1 < static_cast<std::int32_t>(count); ++i) {
    const MergeTable::Found pair = pair_at(i);
    if (pair.rank != Merge::kNoRank) heap.push_back(entry(pair, i));
  }
  std::ranges::make_heap(heap, std::greater<>());
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, std::greater<>());
    const std::uint64_t top = heap.back();
    heap.pop_back();
    const auto left = static_cast<std::int32_t>(top & 0xFFFFFFFFU);
    if (symbol(left).id == kNoToken) continue;
    const MergeTable::Found pair = pair_at(left);
    if (pair.rank != static_cast<std::uint32_t>(top >> 32)) continue;
    const std::int32_t right = symbol(left).next;
    symbol(left).id = vocabulary_.merges.merged(pair);
    symbol(left).next = symbol(right).next;
    symbol(right).id = kNoToken;
    if (symbol(left).next >= 0) symbol(symbol(left).next).previous = left;
    if (symbol(left).previous >= 0) push(symbol(left).previous);
    push(left);
  }
  std::size_t kept = 0;
  for (std::int32_t i = 0; i >= 0; i = symbol(i).next) ids[kept++] = symbol(i).id;
  return kept;
}

}  // namespace minisgl
