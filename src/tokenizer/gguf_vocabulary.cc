#include "tokenizer/gguf_vocabulary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <set>
#include <string>

#include "base/log.h"
#include "formats/file_kind.h"
#include "formats/gguf.h"
#include "minisgl/error.h"
#include "tokenizer/vocabulary_builder.h"

namespace minisgl {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

using enum WordSplitter::Pattern;

struct Entry {
  std::string_view name;
  WordSplitter::Pattern pattern;
  bool nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;
};

constexpr Entry kEntries[] = {
    {.name = "default", .pattern = kGpt2},
    {.name = "gpt-2", .pattern = kGpt2},
    {.name = "phi-2", .pattern = kGpt2},
    {.name = "mpt", .pattern = kGpt2},
    {.name = "olmo", .pattern = kGpt2},
    {.name = "smollm", .pattern = kGpt2Digits},
    {.name = "starcoder", .pattern = kGpt2Digits},
    {.name = "refact", .pattern = kGpt2Digits},
    {.name = "codeshell", .pattern = kGpt2Digits},
    {.name = "exaone", .pattern = kGpt2Digits},
    {.name = "minerva-7b", .pattern = kGpt2Digits},
    {.name = "llama-bpe", .pattern = kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "llama3", .pattern = kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "llama-v3", .pattern = kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "falcon3", .pattern = kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "pixtral", .pattern = kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "lfm2", .pattern = kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "dbrx", .pattern = kLlama3},
    {.name = "smaug-bpe", .pattern = kLlama3},
    {.name = "glm4", .pattern = kLlama3},
    {.name = "chatglm-bpe", .pattern = kLlama3},
    {.name = "qwen2", .pattern = kQwen2, .nfc = true},
    {.name = "deepseek-r1-qwen", .pattern = kQwen2},
    {.name = "megrez", .pattern = kQwen2},
    {.name = "stablelm2", .pattern = kQwen2},
    {.name = "hunyuan", .pattern = kQwen2},
    {.name = "tekken", .pattern = kTekken, .ignore_merges = true, .add_bos = true},
    {.name = "gpt-4o", .pattern = kO200k},
    {.name = "llama4", .pattern = kO200k},
};

// Values of tokenizer.ggml.token_type. Source: llama.cpp's llama.h.
enum TokenType : std::int64_t { kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5 };

// Tokens that end a turn, by what models call them: files often name only the one that ends a text.
constexpr std::array<std::string_view, 5> kEndOfTurn = {"<|eot_id|>", "<|im_end|>", "<end_of_turn>",
                                                        "<|end|>", "<|eom_id|>"};

void read_tokens(const GgufFile& file, BpeTokenizerParts& parts, VocabularyBuilder& builder) {
  const auto& tokens = file.get_strings("tokenizer.ggml.tokens");
  std::vector<std::int64_t> types;
  if (file.find("tokenizer.ggml.token_type") != nullptr)
    types = file.get_ints("tokenizer.ggml.token_type");
  if (!types.empty() && types.size() != tokens.size())
    throw Error("tokenizer.ggml.token_type has " + std::to_string(types.size()) + " entries for " +
                std::to_string(tokens.size()) + " tokens");
  std::size_t bytes = 0;
  for (const std::string& token : tokens) bytes += token.size();
  parts.vocabulary.tokens.reserve(tokens.size(), bytes);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::int64_t type = types.empty() ? 1 : types[i];
    if (type == kControl || type == kUnknown || type == kUserDefined) {
      builder.add_added_token({.id = id, .content = tokens[i], .special = type != kUserDefined});
    } else if (type == kUnused) {
      parts.vocabulary.tokens.add(id, "", /*findable=*/false);  // padding: stands for nothing
    } else {
      builder.add_token(id, tokens[i]);
    }
  }
}

void read_merges(const GgufFile& file, VocabularyBuilder& builder) {
  const auto& merges = file.get_strings("tokenizer.ggml.merges");
  builder.reserve_merges(merges.size());
  for (std::size_t i = 0; i < merges.size(); ++i) builder.add_merge(i, merges[i]);
}

// The id under `key`, kNoToken when the file has none; throws when it is not in the vocabulary.
TokenId find_id(const GgufFile& file, const std::string& key, std::int32_t vocab_size) {
  const auto id = file.find_int(key);
  if (!id) return kNoToken;
  if (*id < 0 || *id >= vocab_size)
    throw Error(key + " is " + std::to_string(*id) + ", but the vocabulary has " +
                std::to_string(vocab_size) + " tokens");
  return static_cast<TokenId>(*id);
}

void read_special_ids(const GgufFile& file, BpeTokenizerParts& parts) {
  const std::int32_t size = parts.vocabulary.tokens.size();
  parts.bos = find_id(file, "tokenizer.ggml.bos_token_id", size);
  parts.eos = find_id(file, "tokenizer.ggml.eos_token_id", size);
  std::set<TokenId> seen{kNoToken};
  const auto add_end = [&](TokenId id) {
    if (seen.insert(id).second) parts.end_ids.push_back(id);
  };
  add_end(parts.eos);
  add_end(find_id(file, "tokenizer.ggml.eot_token_id", size));
  add_end(find_id(file, "tokenizer.ggml.eom_token_id", size));
  for (const AddedToken& token : parts.added)
    if (token.special && std::ranges::find(kEndOfTurn, token.content) != kEndOfTurn.end())
      add_end(token.id);
}

void read_prefix_and_suffix(const GgufFile& file, bool default_add_bos, BpeTokenizerParts& parts) {
  const bool add_bos = file.find_bool("tokenizer.ggml.add_bos_token").value_or(default_add_bos);
  const bool add_eos = file.find_bool("tokenizer.ggml.add_eos_token").value_or(false);
  if (add_bos && parts.bos != kNoToken) parts.prefix.push_back(parts.bos);
  if (add_eos && parts.eos != kNoToken) parts.suffix.push_back(parts.eos);
}

// "tokenizer.chat_template", and "tokenizer.chat_template.NAME" for each of the names in
// "tokenizer.chat_templates".
void read_chat_templates(const GgufFile& file, BpeTokenizerParts& parts) {
  const std::string key = "tokenizer.chat_template";
  if (auto source = file.find_string(key); source && !source->empty())
    parts.chat_templates["default"] = std::move(*source);
  if (file.find("tokenizer.chat_templates") == nullptr) return;
  for (const std::string& name : file.get_strings("tokenizer.chat_templates"))
    if (auto source = file.find_string(key + "." + name))
      parts.chat_templates[name] = std::move(*source);
}

BpeTokenizerParts read_byte_level(const GgufFile& file) {
  const auto pre = file.find_string("tokenizer.ggml.pre");
  if (!pre) log::warning("{} does not name its pre-tokenizer: using GPT-2's", file.path().string());
  GgufPreTokenizer rules = gguf_pre_tokenizer(pre.value_or("default"));
  BpeTokenizerParts parts;
  VocabularyBuilder builder(parts, /*byte_level=*/true, file.path().filename().string());
  read_tokens(file, parts, builder);
  read_merges(file, builder);
  builder.finish(/*byte_fallback=*/false);
  read_special_ids(file, parts);

  parts.normalizer = std::move(rules.normalizer);
  parts.pre_tokenizer = std::move(rules.steps);
  parts.vocabulary.ignore_merges = rules.ignore_merges;
  read_prefix_and_suffix(file, rules.add_bos, parts);
  read_chat_templates(file, parts);
  return parts;
}

// Each token is cut at every place and both halves are looked up: quadratic in its length. The
// longest tokens that SentencePiece is known to have made are runs of 16 characters.
constexpr std::size_t kMaxJoinedBytes = 1024;

// SentencePiece files have a score for each token instead of merges: of all neighbours that join to
// a token, those whose token has the highest score are joined first.
void read_scores(const GgufFile& file, BpeTokenizerParts& parts, VocabularyBuilder& builder) {
  const std::vector<double> scores = file.get_floats("tokenizer.ggml.scores");
  const TokenTable& tokens = parts.vocabulary.tokens;
  if (scores.size() != static_cast<std::size_t>(tokens.size()))
    throw Error("tokenizer.ggml.scores has " + std::to_string(scores.size()) + " entries for " +
                std::to_string(tokens.size()) + " tokens");
  std::vector<TokenId> by_score;
  for (TokenId id = 0; id < tokens.size(); ++id) {
    if (std::isnan(scores[static_cast<std::size_t>(id)]))
      throw Error("tokenizer.ggml.scores has an entry that is not a number, for the token " +
                  in_quotes(tokens.bytes(id)));
    if (tokens.find(tokens.bytes(id)) != id) continue;
    if (tokens.bytes(id).size() > kMaxJoinedBytes)
      throw Error("tokenizer.ggml.tokens has a token of " +
                  std::to_string(tokens.bytes(id).size()) + " bytes, expected at most " +
                  std::to_string(kMaxJoinedBytes));
    by_score.push_back(id);
  }
  const auto score = [&](TokenId id) { return scores[static_cast<std::size_t>(id)]; };
  std::ranges::stable_sort(by_score, std::greater<>(), score);

  struct Join {
    TokenId left, right;
    Merge merge;
  };
  std::vector<Join> joins;
  std::uint32_t rank = 0;
  for (std::size_t i = 0; i < by_score.size(); ++i) {
    if (i > 0 && score(by_score[i]) != score(by_score[i - 1])) ++rank;
    const std::string_view text = tokens.bytes(by_score[i]);
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      const TokenId left = tokens.find(text.substr(0, cut));
      const TokenId right = left == kNoToken ? kNoToken : tokens.find(text.substr(cut));
      if (right != kNoToken) joins.push_back({left, right, {rank, by_score[i]}});
    }
  }
  builder.reserve_merges(joins.size());
  for (const Join& join : joins) parts.vocabulary.merges.add(join.left, join.right, join.merge);
}

// Source: llama.cpp's llm_tokenizer_spm for what the keys mean.
BpeTokenizerParts read_sentencepiece(const GgufFile& file) {
  BpeTokenizerParts parts;
  VocabularyBuilder builder(parts, /*byte_level=*/false, file.path().filename().string());
  read_tokens(file, parts, builder);
  read_scores(file, parts, builder);
  builder.finish(/*byte_fallback=*/true);
  read_special_ids(file, parts);
  const std::int32_t size = parts.vocabulary.tokens.size();
  parts.vocabulary.unknown = find_id(file, "tokenizer.ggml.unknown_token_id", size);
  parts.vocabulary.fuse_unknown = true;

  std::vector<Normalizer::Step> normal;
  const bool add_space = file.find_bool("tokenizer.ggml.add_space_prefix").value_or(true);
  if (add_space) normal.emplace_back(Normalizer::Prepend{std::string(kSpaceMark)});
  normal.emplace_back(Normalizer::Replace{" ", std::string(kSpaceMark)});
  parts.normalizer = Normalizer(std::move(normal));
  parts.strip_leading_space = add_space;
  decode_spellings(parts, {{std::string(kSpaceMark), " "}}, /*byte_fallback=*/true);
  read_prefix_and_suffix(file, /*default_add_bos=*/true, parts);
  read_chat_templates(file, parts);
  return parts;
}

}  // namespace

GgufPreTokenizer gguf_pre_tokenizer(std::string_view name) {
  std::string supported;
  for (const Entry& entry : kEntries) {
    if (entry.name != name) {
      supported += supported.empty() ? "" : ", ";
      supported += entry.name;
      continue;
    }
    std::vector<PreTokenizer::Step> steps;
    if (entry.pattern == kGpt2Digits) steps.emplace_back(PreTokenizer::Digits{.individual = true});
    if (entry.pattern == kGpt2 || entry.pattern == kGpt2Digits) {
      steps.emplace_back(PreTokenizer::ByteLevel{});
    } else {
      steps.emplace_back(PreTokenizer::Split{.pattern = Regex(regex_of(entry.pattern))});
    }
    std::vector<Normalizer::Step> normal;
    if (entry.nfc) normal.emplace_back(Normalizer::Nfc{});
    return {PreTokenizer(std::move(steps)), Normalizer(std::move(normal)), entry.ignore_merges,
            entry.add_bos};
  }
  throw Error("tokenizer.ggml.pre: pre-tokenizer " + in_quotes(name) +
              " is not supported; supported: " + supported);
}

std::unique_ptr<Tokenizer> load_gguf_tokenizer(const GgufFile& file) {
  try {
    const std::string model = file.get_string("tokenizer.ggml.model");
    if (model == "gpt2") return std::make_unique<BpeTokenizer>(read_byte_level(file));
    if (model == "llama") return std::make_unique<BpeTokenizer>(read_sentencepiece(file));
    throw Error("tokenizer.ggml.model: a vocabulary of kind " + in_quotes(model) +
                " is not supported; supported: gpt2, llama");
  } catch (const Error& error) {
    const std::string path = file.path().string();
    const std::string what = error.what();
    throw Error(what.starts_with(path) ? what : path + ": " + what);
  }
}

}  // namespace minisgl
