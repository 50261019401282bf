#include "tokenizer/huggingface.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "formats/file_kind.h"
#include "tokenizer/json_steps.h"
#include "tokenizer/vocabulary_builder.h"

namespace minisgl {
namespace {

using json::Element;

constexpr std::string_view kFile = "tokenizer.json";
constexpr std::string_view kConfig = "tokenizer_config.json";
// No vocabulary comes near this; a damaged id must not make us allocate for it.
constexpr std::int64_t kMaxId = std::int64_t{1} << 24;

TokenId checked_id(std::int64_t id, std::string_view spelling) {
  if (id < 0 || id >= kMaxId)
    throw Error("tokenizer.json: token " + in_quotes(spelling) + " has the id " +
                std::to_string(id));
  return static_cast<TokenId>(id);
}

AddedToken read_added_token(Element entry, std::int64_t id) {
  constexpr std::string_view kWhere = "added token";
  const auto flag = [&](std::string_view key) {
    return json::find<bool>(entry, key, kWhere).value_or(false);
  };
  AddedToken token;
  token.content = json::get<std::string_view>(entry, "content", kWhere);
  token.id = checked_id(id, token.content);
  token.special = flag("special");
  token.lstrip = flag("lstrip");
  token.rstrip = flag("rstrip");
  token.single_word = flag("single_word");
  token.normalized = flag("normalized");
  return token;
}

void check_model(Element model) {
  const auto type = json::find<std::string_view>(model, "type", kFile).value_or("BPE");
  if (type != "BPE")
    throw Error("tokenizer.json: model of type " + in_quotes(type) +
                " is not supported; supported: BPE");
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!json::find<std::string_view>(model, key, kFile).value_or("").empty())
      throw Error("tokenizer.json: a model with \"" + std::string(key) + "\" is not supported");
  if (json::find<double>(model, "dropout", kFile).value_or(0.0) != 0.0)
    throw Error("tokenizer.json: a model with \"dropout\" is not supported");
}

void read_vocabulary(Element model, BpeTokenizerParts& parts, VocabularyBuilder& builder) {
  const auto vocabulary = json::get<simdjson::dom::object>(model, "vocab", kFile);
  std::size_t count = 0, bytes = 0;
  for (const auto entry : vocabulary) {
    ++count;
    bytes += entry.key.size();
  }
  parts.vocabulary.tokens.reserve(count, bytes);
  for (const auto entry : vocabulary)
    builder.add_token(checked_id(json::as<std::int64_t>(entry.value, entry.key, kFile), entry.key),
                      entry.key);
}

void read_merges(Element model, VocabularyBuilder& builder) {
  const auto merges = json::get<simdjson::dom::array>(model, "merges", kFile);
  // size() saturates at 2^24 - 1, so it does not do for counting.
  std::size_t count = 0;
  for ([[maybe_unused]] const Element merge : merges) ++count;
  builder.reserve_merges(count);
  std::size_t entry = 0;
  for (const Element merge : merges) {
    simdjson::dom::array pair;
    std::string_view text, left, right;
    if (merge.get(text) == simdjson::SUCCESS) {
      builder.add_merge(entry, text);
    } else if (merge.get(pair) == simdjson::SUCCESS && pair.size() == 2 &&
               pair.at(0).get(left) == simdjson::SUCCESS &&
               pair.at(1).get(right) == simdjson::SUCCESS) {
      builder.add_merge(entry, left, right);
    } else {
      throw Error("tokenizer.json: merge " + std::to_string(entry) +
                  " is neither \"a b\" nor [\"a\", \"b\"]");
    }
    ++entry;
  }
}

Element parse(simdjson::dom::parser& parser, std::string_view text, std::string_view file) {
  Element root;
  if (const auto error = parser.parse(text.data(), text.size()).get(root))
    throw Error(std::string(file) + " is not JSON: " + simdjson::error_message(error));
  return root;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error("cannot open " + path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

// "bos_token" and the like are a string or an added token's object.
std::optional<std::string_view> token_text(Element config, std::string_view key) {
  const auto value = json::find(config, key);
  if (!value) return std::nullopt;
  if (value->is_string()) return value->get_string().value();
  return json::get<std::string_view>(*value, "content", key);
}

// Puts `token` at one end of what is added around a text, or takes it away, as `wanted` says.
void set_added(std::optional<bool> wanted, TokenId token, bool in_front,
               std::vector<TokenId>& ids) {
  if (!wanted || token == kNoToken) return;
  const auto at = in_front ? ids.begin() : ids.end() - (ids.empty() ? 0 : 1);
  const bool there = !ids.empty() && *at == token;
  if (*wanted && !there) {
    ids.insert(in_front ? ids.begin() : ids.end(), token);
  } else if (!*wanted && there) {
    ids.erase(at);
  }
}

// "add_bos_token" and "add_eos_token" count before the post-processor for the classes of Llama's
// and Gemma's tokenizers, and only for them. Source: update_post_processor() of transformers'
// LlamaTokenizerFast and GemmaTokenizerFast.
void read_add_flags(Element config, BpeTokenizerParts& parts) {
  const auto kind = json::find<std::string_view>(config, "tokenizer_class", kConfig).value_or("");
  if (kind.find("Llama") == kind.npos && kind.find("Gemma") == kind.npos) return;
  set_added(json::find<bool>(config, "add_bos_token", kConfig), parts.bos, true, parts.prefix);
  set_added(json::find<bool>(config, "add_eos_token", kConfig), parts.eos, false, parts.suffix);
}

// "chat_template": a string, which is the default, or a list of named ones.
void read_chat_templates(Element config, ChatTemplates& templates) {
  const auto value = json::find(config, "chat_template");
  if (!value) return;
  if (value->is_string()) {
    templates["default"] = value->get_string().value();
    return;
  }
  for (const Element entry : json::as<simdjson::dom::array>(*value, "chat_template", kConfig))
    templates[std::string(json::get<std::string_view>(entry, "name", kConfig))] =
        json::get<std::string_view>(entry, "template", kConfig);
}

// Newer folders have templates in files of their own, which then count.
void read_template_files(const std::filesystem::path& folder, ChatTemplates& templates) {
  namespace fs = std::filesystem;
  if (fs::exists(folder / "chat_template.jinja")) {
    templates["default"] = read_file(folder / "chat_template.jinja");
  } else if (!templates.contains("default") && fs::exists(folder / "chat_template.json")) {
    simdjson::dom::parser parser;
    const std::string text = read_file(folder / "chat_template.json");
    read_chat_templates(parse(parser, text, "chat_template.json"), templates);
  }
  const fs::path more = folder / "additional_chat_templates";
  if (!fs::is_directory(more)) return;
  for (const auto& entry : fs::directory_iterator(more))
    if (entry.path().extension() == ".jinja")
      templates[entry.path().stem().string()] = read_file(entry.path());
}

}  // namespace

BpeTokenizerParts parse_tokenizer_json(std::string_view text) {
  simdjson::dom::parser parser;
  const Element file = parse(parser, text, kFile);
  const Element model = json::get(file, "model", kFile);
  check_model(model);

  BpeTokenizerParts parts;
  parts.normalizer = read_normalizer(file);
  PreTokenizerSteps pre_tokenizer = read_pre_tokenizer(file);
  parts.pre_tokenizer = std::move(pre_tokenizer.steps);
  AddedAround around = read_post_processor(file);
  parts.prefix = std::move(around.prefix);
  parts.suffix = std::move(around.suffix);

  VocabularyBuilder builder(parts, pre_tokenizer.byte_level, std::string(kFile));
  read_vocabulary(model, parts, builder);
  read_merges(model, builder);
  const auto flag = [&](std::string_view key) {
    return json::find<bool>(model, key, kFile).value_or(false);
  };
  builder.finish(flag("byte_fallback"));
  parts.vocabulary.ignore_merges = flag("ignore_merges");
  parts.vocabulary.fuse_unknown = flag("fuse_unk");
  if (const auto unknown = json::find<std::string_view>(model, "unk_token", kFile))
    parts.vocabulary.unknown = find_token(parts, *unknown);
  if (const auto added = json::find<simdjson::dom::array>(file, "added_tokens", kFile)) {
    for (const Element entry : *added)
      builder.add_added_token(read_added_token(entry, json::get<std::int64_t>(entry, "id", kFile)));
  }

  for (const auto* ids : {&parts.prefix, &parts.suffix})
    for (const TokenId id : *ids)
      if (!parts.vocabulary.tokens.contains(id))
        throw Error("tokenizer.json: post_processor adds the token id " + std::to_string(id) +
                    ", which is not in the vocabulary");

  const DecoderRules rules = read_decoder(file);
  if (rules.byte_level != pre_tokenizer.byte_level)
    throw Error(
        "tokenizer.json: either both or neither of pre_tokenizer and decoder may be ByteLevel");
  if (!rules.byte_level) decode_spellings(parts, rules.replace, rules.byte_fallback);
  parts.strip_leading_space = rules.strip_leading_space;
  return parts;
}

void parse_tokenizer_config(std::string_view text, BpeTokenizerParts& parts) {
  simdjson::dom::parser parser;
  const Element config = parse(parser, text, kConfig);
  if (const auto added =
          json::find<simdjson::dom::object>(config, "added_tokens_decoder", kConfig)) {
    VocabularyBuilder builder(parts, parts.byte_level, std::string(kConfig));
    for (const auto entry : *added) {
      std::int64_t id = 0;
      const char* key_end = entry.key.data() + entry.key.size();
      const auto [end, error] = std::from_chars(entry.key.data(), key_end, id);
      if (error != std::errc() || end != key_end)
        throw Error(std::string(kConfig) + ": added_tokens_decoder has the key " +
                    in_quotes(entry.key) + ", expected a token id");
      AddedToken token = read_added_token(entry.value, id);
      const bool known = std::ranges::any_of(
          parts.added, [&](const AddedToken& other) { return other.content == token.content; });
      if (known) continue;
      if (parts.decoded.size() > 0) parts.decoded.add(token.id, token.content, /*findable=*/false);
      builder.add_added_token(std::move(token));
    }
  }
  const auto set = [&](TokenId& id, std::string_view key) {
    const auto token = token_text(config, key);
    if (token && id == kNoToken) id = find_token(parts, *token);
  };
  set(parts.bos, "bos_token");
  set(parts.eos, "eos_token");
  read_add_flags(config, parts);
  read_chat_templates(config, parts.chat_templates);
}

std::unique_ptr<Tokenizer> load_huggingface_tokenizer(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kFile;
  if (!std::filesystem::exists(file))
    throw Error(folder.string() +
                " has no tokenizer.json, the only vocabulary file of such a folder"
                " that is supported");
  try {
    BpeTokenizerParts parts = parse_tokenizer_json(read_file(file));
    for (const std::string_view name : {kConfig, std::string_view("special_tokens_map.json")})
      if (std::filesystem::exists(folder / name))
        parse_tokenizer_config(read_file(folder / name), parts);
    if (parts.eos != kNoToken) parts.end_ids.push_back(parts.eos);
    read_template_files(folder, parts.chat_templates);
    return std::make_unique<BpeTokenizer>(std::move(parts));
  } catch (const Error& error) {
    throw Error(folder.string() + ": " + error.what());
  }
}

}  // namespace minisgl
