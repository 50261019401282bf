#include "tokenizer/bpe_tokenizer.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/word_cache.h"

namespace minisgl {
namespace {

using Span = MarkedText::Span;

// Enough to make their overhead small, few enough to stay in the first-level cache.
constexpr std::size_t kWordsAtATime = 256;

std::vector<AddedToken> select(const std::vector<AddedToken>& tokens, bool normalized) {
  std::vector<AddedToken> chosen;
  std::ranges::copy_if(tokens, std::back_inserter(chosen),
                       [&](const AddedToken& token) { return token.normalized == normalized; });
  return chosen;
}

std::vector<AddedToken> normalize_contents(std::vector<AddedToken> tokens,
                                           const Normalizer& normalizer) {
  std::string buffer;
  for (AddedToken& token : tokens) token.content = normalizer.apply(token.content, buffer);
  return tokens;
}

bool touches(const std::vector<Span>& spans, std::size_t begin, std::size_t end) {
  const auto after = std::ranges::upper_bound(spans, begin, {}, &Span::end);
  return after != spans.end() && after->begin < end;
}

// Well-formed text, and the spans where they lie in it: those that cut an ill-formed sequence or a
// character take all of it.
MarkedText repair(const MarkedText& marked) {
  MarkedText repaired;
  repaired.message_spans = marked.message_spans;
  auto span = repaired.message_spans.begin();
  bool inside = false;
  for (std::size_t pos = 0; pos < marked.text.size();) {
    const Utf8Char c = decode_utf8(marked.text, pos);
    const std::size_t end = pos + c.length;
    const std::size_t new_begin = repaired.text.size();
    append_utf8(repaired.text, c.code_point);
    while (span != repaired.message_spans.end()) {
      if (!inside) {
        if (span->begin >= end) break;
        span->begin = new_begin;
        inside = true;
      }
      if (span->end > end) break;
      span->end = repaired.text.size();
      inside = false;
      ++span;
    }
    pos = end;
  }
  return repaired;
}

}  // namespace

struct BpeTokenizer::Workspace {
  BpeScratch scratch;
  PreTokenizer::Pieces pieces;
  std::string normalized;
  std::vector<TokenId> word;
  ShortWordCache short_words;
  LongWordCache long_words;

  // A text of many megabytes must not leave its buffers behind for ever.
  void shrink() {
    constexpr std::size_t kMaxElements = 1 << 16;
    if (scratch.symbols.capacity() > kMaxElements) scratch = {};
    if (pieces.pieces.capacity() > kMaxElements || pieces.buffer.capacity() > kMaxElements)
      pieces = {};
    if (normalized.capacity() > kMaxElements) normalized = {};
    if (word.capacity() > kMaxElements) word = {};
  }
};

struct BpeTokenizer::Encoding {
  explicit Encoding(const BpeTokenizer& tokenizer)
      : tokenizer(tokenizer), workspace(tokenizer.take_workspace()) {}
  ~Encoding() { tokenizer.return_workspace(std::move(workspace)); }
  Encoding(const Encoding&) = delete;
  Encoding& operator=(const Encoding&) = delete;

  const BpeTokenizer& tokenizer;
  std::unique_ptr<Workspace> workspace;
  bool special_as_text = false;
  std::vector<Span> message_spans;
  std::vector<TokenId> ids;

  // Whether an added token may be recognised at a place of the text that `spans` belong to.
  bool allows(const AddedToken& token, const std::vector<Span>& spans, std::size_t begin,
              std::size_t end) const {
    return !token.special || (!special_as_text && !touches(spans, begin, end));
  }
};

std::unique_ptr<BpeTokenizer::Workspace> BpeTokenizer::take_workspace() const {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto workspace = std::move(idle_.back());
      idle_.pop_back();
      return workspace;
    }
  }
  return std::make_unique<Workspace>();
}

void BpeTokenizer::return_workspace(std::unique_ptr<Workspace> workspace) const {
  workspace->shrink();
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(workspace));
}

BpeTokenizer::~BpeTokenizer() = default;

BpeTokenizer::BpeTokenizer(BpeTokenizerParts parts)
    : bpe_(std::move(parts.vocabulary)),
      decoded_(std::move(parts.decoded)),
      byte_level_(parts.byte_level),
      strip_leading_space_(parts.strip_leading_space),
      raw_added_(select(parts.added, /*normalized=*/false)),
      normalized_added_(
          normalize_contents(select(parts.added, /*normalized=*/true), parts.normalizer)),
      normalizer_(std::move(parts.normalizer)),
      pre_tokenizer_(std::move(parts.pre_tokenizer)),
      prefix_(std::move(parts.prefix)),
      suffix_(std::move(parts.suffix)),
      bos_(parts.bos),
      eos_(parts.eos),
      end_ids_(std::move(parts.end_ids)),
      chat_templates_(std::move(parts.chat_templates)) {
  special_.resize(static_cast<std::size_t>(vocab_size()), false);
  for (const AddedToken& token : parts.added) {
    added_ids_.emplace(token.content, token.id);
    if (token.special) special_[static_cast<std::size_t>(token.id)] = true;
  }
}

std::vector<TokenId> BpeTokenizer::encode(std::string_view text, EncodeOptions options) const {
  Encoding encoding(*this);
  encoding.special_as_text = options.special_as_text;
  encoding.ids.reserve(text.size() / 4 + kWordsAtATime);  // of a natural text that is enough
  if (options.add_special) encoding.ids = prefix_;
  if (is_valid_utf8(text)) {
    encode_parts(text, encoding);
  } else {
    encode_parts(replace_ill_formed(text), encoding);
  }
  if (options.add_special) encoding.ids.insert(encoding.ids.end(), suffix_.begin(), suffix_.end());
  return std::move(encoding.ids);
}

std::vector<TokenId> BpeTokenizer::encode(const MarkedText& text) const {
  Encoding encoding(*this);
  if (is_valid_utf8(text.text)) {
    encoding.message_spans = text.message_spans;
    encode_parts(text.text, encoding);
  } else {
    MarkedText repaired = repair(text);
    encoding.message_spans = std::move(repaired.message_spans);
    encode_parts(repaired.text, encoding);
  }
  return std::move(encoding.ids);
}

void BpeTokenizer::encode_parts(std::string_view text, Encoding& encoding) const {
  const auto allowed = [&](const AddedToken& token, std::size_t begin, std::size_t end) {
    return encoding.allows(token, encoding.message_spans, begin, end);
  };
  std::size_t done = 0;
  while (const auto found = raw_added_.find(text, done, allowed)) {
    encode_between(text.substr(done, found->begin - done), done, encoding);
    encoding.ids.push_back(found->token->id);
    done = found->end;
  }
  encode_between(text.substr(done), done, encoding);
}

void BpeTokenizer::encode_between(std::string_view raw, std::size_t raw_begin,
                                  Encoding& encoding) const {
  if (raw.empty()) return;
  const std::string_view text = normalizer_.apply(raw, encoding.workspace->normalized);
  const bool at_start = raw_begin == 0;
  if (normalized_added_.tokens().empty()) return encode_words(text, at_start, encoding);

  const std::vector<Span> spans = spans_after_normalizer(raw, raw_begin, text, encoding);
  const auto allowed = [&](const AddedToken& token, std::size_t begin, std::size_t end) {
    return encoding.allows(token, spans, begin, end);
  };
  std::size_t done = 0;
  while (const auto found = normalized_added_.find(text, done, allowed)) {
    encode_words(text.substr(done, found->begin - done), at_start && done == 0, encoding);
    encoding.ids.push_back(found->token->id);
    done = found->end;
  }
  encode_words(text.substr(done), at_start && done == 0, encoding);
}

// Where the message spans that touch `raw` lie in `text`, its normalized form. A border in the
// middle of what the normalizer changed is moved outwards: what may be a user's counts as a user's.
std::vector<Span> BpeTokenizer::spans_after_normalizer(std::string_view raw, std::size_t raw_begin,
                                                       std::string_view text,
                                                       const Encoding& encoding) const {
  std::vector<Span> spans;
  std::string buffer;
  const auto border = [&](std::size_t at, bool is_end) {
    if (text.data() == raw.data()) return at;
    const std::string_view before = normalizer_.apply(raw.substr(0, at), buffer);
    const auto same =
        static_cast<std::size_t>(std::ranges::mismatch(before, text).in1 - before.begin());
    if (same == before.size() || !is_end) return same;
    const std::string_view after = normalizer_.apply(raw.substr(at), buffer);
    std::size_t same_after = 0;
    while (same_after < std::min(after.size(), text.size()) &&
           after[after.size() - 1 - same_after] == text[text.size() - 1 - same_after])
      ++same_after;
    return text.size() - same_after;
  };
  for (const Span& span : encoding.message_spans) {
    if (span.end <= raw_begin || span.begin >= raw_begin + raw.size()) continue;
    const std::size_t begin = std::max(span.begin, raw_begin) - raw_begin;
    const std::size_t end = std::min(span.end - raw_begin, raw.size());
    spans.push_back({border(begin, /*is_end=*/false), border(end, /*is_end=*/true)});
  }
  return spans;
}

// Appends the tokens of words through the caches. What is in a cache is written straight to its
// place, so there is room for all words of a batch.
class BpeTokenizer::WordEncoder {
 public:
  WordEncoder(const Bpe& bpe, Encoding& encoding, std::size_t words)
      : bpe_(bpe),
        workspace_(*encoding.workspace),
        ids_(encoding.ids),
        size_(ids_.size()),
        words_left_(words) {
    make_room(words_left_ * LongWordCache::kMaxTokens);
  }
  ~WordEncoder() { ids_.resize(size_); }
  WordEncoder(const WordEncoder&) = delete;
  WordEncoder& operator=(const WordEncoder&) = delete;

  // `readable_bytes` may be read from the word's beginning.
  void add(std::string_view word, std::size_t readable_bytes) {
    --words_left_;
    if (word.size() <= ShortWordCache::kMaxBytes) [[likely]] {
      encode_through(workspace_.short_words, word, readable_bytes);
    } else if (word.size() <= LongWordCache::kMaxBytes) {
      encode_through(workspace_.long_words, word, readable_bytes);
    } else {
      encode(word);
    }
  }

 private:
  void make_room(std::size_t tokens) {
    const std::size_t needed = size_ + tokens;
    if (needed <= ids_.size()) return;
    if (needed > ids_.capacity()) ids_.reserve(std::max(needed, ids_.capacity() * 2));
    ids_.resize(needed);
  }
  void encode(std::string_view word) {
    workspace_.word.clear();
    bpe_.encode(word, workspace_.scratch, workspace_.word);
    make_room(workspace_.word.size() + words_left_ * LongWordCache::kMaxTokens);
    std::ranges::copy(workspace_.word, ids_.data() + size_);
    size_ += workspace_.word.size();
  }
  template <class Cache>
  void encode_through(Cache& cache, std::string_view word, std::size_t readable_bytes) {
    const auto key = Cache::make_key(word, readable_bytes);
    const std::size_t found = cache.find(key, ids_.data() + size_);
    size_ += found;
    if (found > 0) return;
    encode(word);
    cache.put(key, workspace_.word);
  }

  const Bpe& bpe_;
  Workspace& workspace_;
  std::vector<TokenId>& ids_;
  std::size_t size_;  // of what is encoded; ids_ is longer
  std::size_t words_left_;
};

void BpeTokenizer::encode_words(std::string_view text, bool at_start, Encoding& encoding) const {
  constexpr std::size_t kMaxText = std::numeric_limits<std::uint32_t>::max();
  if (const auto& splitter = pre_tokenizer_.splitter(); splitter && text.size() <= kMaxText) {
    std::array<std::uint32_t, kWordsAtATime> ends;  // NOLINT: filled as far as it is read
    for (std::size_t done = 0; done < text.size();) {
      const std::size_t count = splitter->run(text, done, ends);
      WordEncoder words(bpe_, encoding, count);
      for (std::size_t i = 0; i < count; ++i) {
        words.add(text.substr(done, ends[i] - done), text.size() - done);
        done = ends[i];
      }
    }
    return;
  }
  auto& pieces = encoding.workspace->pieces;
  pre_tokenizer_.run(text, at_start, pieces);
  for (std::span<const TextRange> left(pieces.pieces); !left.empty();) {
    const auto batch = left.first(std::min(left.size(), kWordsAtATime));
    WordEncoder words(bpe_, encoding, batch.size());
    for (const TextRange piece : batch)
      words.add(pieces.text.substr(piece.begin, piece.end - piece.begin),
                pieces.text.size() - piece.begin);
    left = left.subspan(batch.size());
  }
}

std::vector<std::string> BpeTokenizer::split(std::string_view text) const {
  std::string normalized;
  const std::string well_formed = replace_ill_formed(text);
  const std::string_view normal = normalizer_.apply(well_formed, normalized);
  std::vector<std::string> words;
  if (const auto& splitter = pre_tokenizer_.splitter()) {
    std::vector<std::uint32_t> ends(normal.size());
    ends.resize(splitter->run(normal, 0, ends));
    std::uint32_t begin = 0;
    for (const std::uint32_t end : ends) {
      words.emplace_back(normal.substr(begin, end - begin));
      begin = end;
    }
    return words;
  }
  PreTokenizer::Pieces pieces;
  pre_tokenizer_.run(normal, /*at_start=*/true, pieces);
  for (const TextRange piece : pieces.pieces)
    words.emplace_back(pieces.text.substr(piece.begin, piece.end - piece.begin));
  return words;
}

std::string BpeTokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string bytes;
  for (const TokenId id : ids)
    if (!(skip_special && is_special(id))) bytes += token_bytes(id);
  if (strip_leading_space_ && bytes.starts_with(' ')) bytes.erase(0, 1);
  return is_valid_utf8(bytes) ? bytes : replace_ill_formed(bytes);
}

std::string_view BpeTokenizer::token_bytes(TokenId id) const {
  return decoded_.size() > 0 ? decoded_.bytes(id) : bpe_.vocabulary().tokens.bytes(id);
}

bool BpeTokenizer::is_special(TokenId id) const {
  return id >= 0 && id < vocab_size() && special_[static_cast<std::size_t>(id)];
}

std::optional<TokenId> BpeTokenizer::token_to_id(std::string_view token) const {
  if (const auto added = added_ids_.find(token); added != added_ids_.end()) return added->second;
  TokenId id = kNoToken;
  if (!byte_level_) {
    id = bpe_.vocabulary().tokens.find(token);
  } else if (std::string bytes; append_byte_level(token, bytes)) {
    id = bpe_.vocabulary().tokens.find(bytes);
  }
  if (id == kNoToken) return std::nullopt;
  return id;
}

std::optional<TokenId> BpeTokenizer::bos_id() const {
  if (bos_ == kNoToken) return std::nullopt;
  return bos_;
}

}  // namespace minisgl
