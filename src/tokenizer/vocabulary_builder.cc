#include "tokenizer/vocabulary_builder.h"

#include <charconv>
#include <optional>

#include "formats/file_kind.h"
#include "minisgl/error.h"
#include "tokenizer/byte_level.h"

namespace minisgl {
namespace {

std::string byte_token(int byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string text = "<0x";
  text += kDigits[static_cast<std::size_t>(byte / 16)];
  text += kDigits[static_cast<std::size_t>(byte % 16)];
  return text + ">";
}

// The byte that a spelling such as <0x41> stands for.
std::optional<unsigned char> parse_byte_token(std::string_view spelling) {
  if (spelling.size() != 6 || !spelling.starts_with("<0x") || spelling[5] != '>')
    return std::nullopt;
  unsigned int byte = 0;
  const char* end = spelling.data() + 5;
  const auto [stop, error] = std::from_chars(spelling.data() + 3, end, byte, 16);
  if (error != std::errc() || stop != end) return std::nullopt;
  return static_cast<unsigned char>(byte);
}

}  // namespace

VocabularyBuilder::VocabularyBuilder(BpeTokenizerParts& parts, bool byte_level, std::string source)
    : parts_(parts), source_(std::move(source)) {
  parts_.byte_level = byte_level;
  parts_.vocabulary.starts_as_bytes = byte_level;
}

void VocabularyBuilder::add_token(TokenId id, std::string_view spelling) {
  TokenTable& tokens = parts_.vocabulary.tokens;
  if (!parts_.byte_level) return tokens.add(id, spelling, /*findable=*/true);
  buffer_.clear();
  const bool spelled = append_byte_level(spelling, buffer_);
  tokens.add(id, spelled ? std::string_view(buffer_) : spelling, /*findable=*/spelled);
}

void VocabularyBuilder::add_added_token(AddedToken token) {
  // Unless BPE knows it already, only the search for added tokens finds it.
  TokenTable& tokens = parts_.vocabulary.tokens;
  // An id beyond the table has no bytes, as an empty token has: every id in use must be in it.
  if (!tokens.contains(token.id) || tokens.bytes(token.id) != token.content)
    tokens.add(token.id, token.content, /*findable=*/false);
  if (token.special) parts_.vocabulary.control.push_back(token.id);
  parts_.added.push_back(std::move(token));
}

void VocabularyBuilder::reserve_merges(std::size_t count) {
  if (count > MergeTable::kMaxRank)
    throw Error(source_ + ": " + std::to_string(count) + " merges are not supported; at most " +
                std::to_string(MergeTable::kMaxRank) + " are");
  parts_.vocabulary.merges = MergeTable(count);
}

std::string_view VocabularyBuilder::to_bytes(std::string_view spelling) {
  if (!parts_.byte_level) return spelling;
  buffer_.clear();
  return append_byte_level(spelling, buffer_) ? std::string_view(buffer_) : spelling;
}

TokenId VocabularyBuilder::find_part(std::size_t entry, std::string_view bytes,
                                     std::string_view left, std::string_view right) const {
  const TokenId id = parts_.vocabulary.tokens.find(bytes);
  if (id != kNoToken) return id;
  const std::string spelled = parts_.byte_level ? to_byte_level(bytes) : std::string(bytes);
  throw Error(source_ + ": merge " + std::to_string(entry) + " (" + in_quotes(left) + " + " +
              in_quotes(right) + ") needs the token " + in_quotes(spelled) +
              ", which is not in the vocabulary");
}

void VocabularyBuilder::add_merge(std::size_t entry, std::string_view text) {
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos || space == 0 || space + 1 == text.size() ||
      text.find(' ', space + 1) != std::string_view::npos)
    throw Error(source_ + ": merge " + std::to_string(entry) + " (" + in_quotes(text) +
                ") is not two tokens with one space between them");
  add_merge(entry, text.substr(0, space), text.substr(space + 1));
}

void VocabularyBuilder::add_merge(std::size_t entry, std::string_view left,
                                  std::string_view right) {
  merged_ = to_bytes(left);
  const std::size_t left_size = merged_.size();
  merged_ += to_bytes(right);
  const std::string_view merged = merged_;
  const TokenId left_id = find_part(entry, merged.substr(0, left_size), left, right);
  const TokenId right_id = find_part(entry, merged.substr(left_size), left, right);
  const TokenId merged_id = find_part(entry, merged, left, right);
  parts_.vocabulary.merges.add(left_id, right_id, {static_cast<std::uint32_t>(entry), merged_id});
}

void VocabularyBuilder::finish(bool byte_fallback) {
  const TokenTable& tokens = parts_.vocabulary.tokens;
  for (int byte = 0; byte < 256; ++byte) {
    TokenId& id = parts_.vocabulary.byte_tokens[static_cast<std::size_t>(byte)];
    const auto character = static_cast<char>(byte);
    if (parts_.byte_level) {
      id = tokens.find({&character, 1});
    } else if (byte_fallback) {
      id = tokens.find(byte_token(byte));
    }
  }
}

TokenId find_token(const BpeTokenizerParts& parts, std::string_view spelling) {
  for (const AddedToken& token : parts.added)
    if (token.content == spelling) return token.id;
  std::string bytes;
  if (!parts.byte_level) return parts.vocabulary.tokens.find(spelling);
  return append_byte_level(spelling, bytes) ? parts.vocabulary.tokens.find(bytes) : kNoToken;
}

void decode_spellings(BpeTokenizerParts& parts,
                      const std::vector<std::pair<std::string, std::string>>& replacements,
                      bool byte_fallback) {
  std::vector<Normalizer::Step> steps;
  for (const auto& [from, to] : replacements) steps.emplace_back(Normalizer::Replace{from, to});
  const Normalizer replace(std::move(steps));
  const TokenTable& tokens = parts.vocabulary.tokens;
  std::string buffer;
  for (TokenId id = 0; id < tokens.size(); ++id) {
    if (!tokens.contains(id)) continue;
    const std::string_view spelling = tokens.bytes(id);
    const auto byte = byte_fallback ? parse_byte_token(spelling) : std::nullopt;
    if (byte) {
      const auto character = static_cast<char>(*byte);
      parts.decoded.add(id, {&character, 1}, /*findable=*/false);
    } else {
      parts.decoded.add(id, replace.apply(spelling, buffer), /*findable=*/false);
    }
  }
  for (const AddedToken& token : parts.added)
    parts.decoded.add(token.id, token.content, /*findable=*/false);
}

}  // namespace minisgl
