// The input, byte by byte: flags; number of single bytes in the vocabulary and those bytes; number
// of merges and, for each, left and right token (by index, modulo what is there); the rest is the
// word. The oracle is the definition: look through all pairs for the lowest rank, merge the
// leftmost such pair, begin again.

#include "tokenizer/bpe.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "input.h"
#include "targets.h"

namespace minisgl::fuzz {
namespace {

using Ids = std::vector<TokenId>;

constexpr std::size_t kMaxTokenBytes = 64;   // merges of merges double
constexpr std::size_t kMaxWordBytes = 2000;  // the oracle is quadratic

struct Plain {
  std::vector<std::string> tokens;
  std::map<std::string, TokenId> by_text;  // the first of its text
  std::map<std::pair<TokenId, TokenId>, std::pair<std::size_t, TokenId>> merges;
  std::map<unsigned char, TokenId> bytes;
  std::vector<TokenId> control;
  bool starts_as_bytes, ignore_merges, fuse_unknown;
  TokenId unknown = kNoToken;
};

/// What is left of the input; 0 beyond its end.
class Bytes {
 public:
  explicit Bytes(std::string_view rest) : rest_(rest) {}
  unsigned char next() {
    if (rest_.empty()) return 0;
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    return byte;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

Plain read_plain(Bytes& in) {
  Plain plain;
  const unsigned char flags = in.next();
  plain.starts_as_bytes = (flags & 1) != 0;
  plain.ignore_merges = (flags & 2) != 0;
  plain.fuse_unknown = (flags & 4) != 0;
  const auto add = [&](const std::string& text) {
    const auto id = static_cast<TokenId>(plain.tokens.size());
    plain.tokens.push_back(text);
    plain.by_text.emplace(text, id);
    return id;
  };
  if ((flags & 8) != 0) plain.unknown = add("<unk>");
  for (int n = 1 + in.next() % 32; n > 0; --n) {
    const unsigned char byte = in.next();
    const std::string text(1, static_cast<char>(byte));
    const TokenId id = add(text);
    // As a loader would: the byte's token is the one found by its text.
    if (plain.starts_as_bytes || (flags & 16) != 0) plain.bytes.emplace(byte, plain.by_text[text]);
    if ((flags & 32) != 0 && byte % 4 == 0) plain.control.push_back(id);
  }
  std::size_t rank = 0;
  for (int n = in.next(); n > 0; --n) {
    const auto left = static_cast<TokenId>(in.next() % plain.tokens.size());
    const auto right = static_cast<TokenId>(in.next() % plain.tokens.size());
    const std::string text = plain.tokens[static_cast<std::size_t>(left)] +
                             plain.tokens[static_cast<std::size_t>(right)];
    if (text.size() > kMaxTokenBytes) continue;
    const auto known = plain.by_text.find(text);
    const TokenId merged = known == plain.by_text.end() ? add(text) : known->second;
    plain.merges[{left, right}] = {rank++, merged};
  }
  return plain;
}

BpeVocabulary make_vocabulary(const Plain& plain) {
  BpeVocabulary vocabulary;
  for (std::size_t i = 0; i < plain.tokens.size(); ++i)
    vocabulary.tokens.add(static_cast<TokenId>(i), plain.tokens[i], /*findable=*/true);
  vocabulary.merges = MergeTable(plain.merges.size());
  for (const auto& [pair, merge] : plain.merges)
    vocabulary.merges.add(pair.first, pair.second,
                          {static_cast<std::uint32_t>(merge.first), merge.second});
  for (const auto& [byte, id] : plain.bytes) vocabulary.byte_tokens[byte] = id;
  vocabulary.starts_as_bytes = plain.starts_as_bytes;
  vocabulary.ignore_merges = plain.ignore_merges;
  vocabulary.fuse_unknown = plain.fuse_unknown;
  vocabulary.control = plain.control;
  vocabulary.unknown = plain.unknown;
  return vocabulary;
}

/// The word as symbols, before any merge.
Ids symbols_of(const Plain& plain, std::string_view word) {
  Ids ids;
  bool last_was_unknown = false;
  const auto unknown = [&] {
    if (plain.unknown != kNoToken && !(plain.fuse_unknown && last_was_unknown))
      ids.push_back(plain.unknown);
    // A character that is dropped does not part two unknown ones: there is no unknown token then.
    last_was_unknown = plain.unknown != kNoToken;
  };
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t length = plain.starts_as_bytes ? 1 : decode_utf8(word, at).length;
    const std::string piece(word.substr(at, length));
    at += length;
    Ids here;
    if (!plain.starts_as_bytes && plain.by_text.contains(piece)) {
      here = {plain.by_text.at(piece)};
    } else {
      for (const char c : piece)
        if (const auto found = plain.bytes.find(static_cast<unsigned char>(c));
            found != plain.bytes.end())
          here.push_back(found->second);
      if (here.size() != piece.size()) here.clear();
    }
    if (here.empty()) {
      unknown();
    } else {
      ids.insert(ids.end(), here.begin(), here.end());
      last_was_unknown = false;
    }
  }
  return ids;
}

Ids encode_plainly(const Plain& plain, std::string_view word) {
  if (plain.ignore_merges)
    if (const auto whole = plain.by_text.find(std::string(word));
        whole != plain.by_text.end() && !word.empty() &&
        std::ranges::find(plain.control, whole->second) == plain.control.end())
      return {whole->second};
  Ids ids = symbols_of(plain, word);
  for (;;) {
    std::size_t best = 0;
    const std::pair<std::size_t, TokenId>* merge = nullptr;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = plain.merges.find({ids[i], ids[i + 1]});
      if (found == plain.merges.end()) continue;
      if (merge != nullptr && merge->first <= found->second.first) continue;
      merge = &found->second;
      best = i;
    }
    if (merge == nullptr) return ids;
    ids[best] = merge->second;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

}  // namespace

void bpe(std::span<const std::byte> input) {
  Bytes in(as_text(input));
  const Plain plain = read_plain(in);
  std::string word(in.rest().substr(0, kMaxWordBytes));
  // Characters are what a tokenizer splits words into; it has repaired the text before.
  if (!plain.starts_as_bytes) word = replace_ill_formed(word);
  const Ids expected = encode_plainly(plain, word);

  const Bpe fast(make_vocabulary(plain));
  BpeScratch scratch;
  for (int pass = 0; pass < 2; ++pass) {  // the second time it remembers what it found out
    Ids ids;
    fast.encode(word, scratch, ids);
    require(ids == expected, "ids differ from the plain algorithm's");
  }
}

}  // namespace minisgl::fuzz
