#include "tokenizer/json_steps.h"

#include <array>
#include <limits>
#include <optional>

#include "formats/file_kind.h"

namespace minisgl {
namespace {

using json::Element;

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

std::string_view type_of(Element step, std::string_view where) {
  return json::get<std::string_view>(step, "type", where);
}

[[noreturn]] void unsupported(std::string_view where, std::string_view type,
                              std::string_view supported) {
  throw Error("tokenizer.json: " + std::string(where) + " of type " + in_quotes(type) +
              " is not supported; supported: " + std::string(supported));
}

// Calls visit(step) for a step, or for each of a Sequence's, however deep.
template <class Visit>
void for_each_step(Element step, std::string_view list_key, std::string_view where,
                   const Visit& visit) {
  if (type_of(step, where) != "Sequence") return visit(step);
  for (const Element inner : json::get<simdjson::dom::array>(step, list_key, where))
    for_each_step(inner, list_key, where, visit);
}

// A "pattern" that is a string, {"String": ...} or {"Regex": ...}.
struct Pattern {
  std::string text;
  bool is_regex = false;
};

Pattern read_pattern(Element step, std::string_view where) {
  const Element pattern = json::get(step, "pattern", where);
  if (pattern.is_string()) return {std::string(pattern.get_string().value())};
  if (const auto text = json::find<std::string_view>(pattern, "String", where))
    return {std::string(*text)};
  return {std::string(json::get<std::string_view>(pattern, "Regex", where)), true};
}

// The string that a Replace step replaces, and by what.
std::pair<std::string, std::string> read_replace(Element step, std::string_view where) {
  Pattern pattern = read_pattern(step, where);
  if (pattern.is_regex || pattern.text.empty())
    throw Error("tokenizer.json: " + std::string(where) +
                " of type Replace is supported for strings that are not empty, not for " +
                in_quotes(pattern.text));
  return {std::move(pattern.text),
          std::string(json::get<std::string_view>(step, "content", where))};
}

SplitBehavior read_behavior(Element step) {
  constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kBehaviors = {{
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  }};
  const auto name = json::get<std::string_view>(step, "behavior", "pre_tokenizer Split");
  for (const auto& [known, behavior] : kBehaviors)
    if (name == known) return behavior;
  throw Error("tokenizer.json: unknown Split behavior " + in_quotes(name));
}

PreTokenizer::Split read_split(Element step) {
  constexpr std::string_view kWhere = "pre_tokenizer Split";
  const Pattern pattern = read_pattern(step, kWhere);
  return {.pattern = pattern.is_regex ? Regex(pattern.text) : Regex::literal(pattern.text),
          .behavior = read_behavior(step),
          .invert = json::find<bool>(step, "invert", kWhere).value_or(false)};
}

// "prepend_scheme", or "add_prefix_space" as older files have it.
PreTokenizer::Metaspace::Prepend read_prepend_scheme(Element step, std::string_view where) {
  using Prepend = PreTokenizer::Metaspace::Prepend;
  const auto scheme = json::find<std::string_view>(step, "prepend_scheme", where);
  if (!scheme) {
    const bool prefix = json::find<bool>(step, "add_prefix_space", where).value_or(true);
    return prefix ? Prepend::kAlways : Prepend::kNever;
  }
  if (*scheme == "always") return Prepend::kAlways;
  if (*scheme == "first") return Prepend::kFirst;
  if (*scheme == "never") return Prepend::kNever;
  throw Error("tokenizer.json: unknown prepend_scheme " + in_quotes(*scheme));
}

// What a Metaspace step writes for a space.
std::string read_mark(Element step, std::string_view where) {
  const auto mark = json::find<std::string_view>(step, "replacement", where).value_or(kSpaceMark);
  if (mark.empty())
    throw Error("tokenizer.json: " + std::string(where) + " has an empty replacement");
  return std::string(mark);
}

PreTokenizer::Metaspace read_metaspace(Element step) {
  constexpr std::string_view kWhere = "pre_tokenizer Metaspace";
  return {.replacement = read_mark(step, kWhere),
          .prepend = read_prepend_scheme(step, kWhere),
          .split = json::find<bool>(step, "split", kWhere).value_or(true)};
}

// Whether the vocabulary has it is checked by the caller of this file's functions.
TokenId to_id(Element value, std::string_view key, std::string_view where) {
  const auto id = json::as<std::int64_t>(value, key, where);
  if (id < 0 || id > std::numeric_limits<TokenId>::max())
    throw Error("tokenizer.json: " + std::string(where) + " names the token id " +
                std::to_string(id));
  return static_cast<TokenId>(id);
}

std::vector<TokenId> read_ids(Element special_tokens, std::string_view name) {
  constexpr std::string_view kWhere = "post_processor TemplateProcessing";
  std::vector<TokenId> ids;
  const Element entry = json::get(special_tokens, name, kWhere);
  for (const Element id : json::get<simdjson::dom::array>(entry, "ids", kWhere))
    ids.push_back(to_id(id, "ids", kWhere));
  return ids;
}

AddedAround read_template(Element step) {
  constexpr std::string_view kWhere = "post_processor TemplateProcessing";
  AddedAround around;
  bool after = false;
  for (const Element part : json::get<simdjson::dom::array>(step, "single", kWhere)) {
    const auto special = json::find(part, "SpecialToken");
    if (!special) {
      after = true;  // {"Sequence": {"id": "A"}}: the text itself
      continue;
    }
    const auto name = json::get<std::string_view>(*special, "id", kWhere);
    const auto ids = read_ids(json::get(step, "special_tokens", kWhere), name);
    auto& side = after ? around.suffix : around.prefix;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  return around;
}

// BertProcessing and RobertaProcessing: "cls" and "sep" are [token, id].
TokenId read_token_pair(Element step, std::string_view key) {
  constexpr std::string_view kWhere = "post_processor";
  const auto pair = json::get<simdjson::dom::array>(step, key, kWhere);
  Element id;
  if (pair.at(1).get(id) != simdjson::SUCCESS)
    throw Error("tokenizer.json: post_processor: \"" + std::string(key) + "\" is not [token, id]");
  return to_id(id, key, kWhere);
}

void read_strip(Element step, DecoderRules& rules) {
  constexpr std::string_view kWhere = "decoder Strip";
  const auto content = json::get<std::string_view>(step, "content", kWhere);
  const auto start = json::get<std::int64_t>(step, "start", kWhere);
  const auto stop = json::get<std::int64_t>(step, "stop", kWhere);
  if (content != " " || start > 1 || stop != 0)
    throw Error("tokenizer.json: decoder of type Strip is supported for one leading space only");
  rules.strip_leading_space = start == 1;
}

}  // namespace

Normalizer read_normalizer(Element file) {
  constexpr std::string_view kWhere = "normalizer";
  std::vector<Normalizer::Step> steps;
  const auto add = [&](Element step) {
    const std::string_view type = type_of(step, kWhere);
    if (type == "NFC") {
      steps.emplace_back(Normalizer::Nfc{});
    } else if (type == "Prepend") {
      steps.emplace_back(Normalizer::Prepend{
          std::string(json::get<std::string_view>(step, "prepend", "normalizer Prepend"))});
    } else if (type == "NFD") {
      steps.emplace_back(Normalizer::Form{Normalizer::Form::Kind::kNfd});
    } else if (type == "NFKC") {
      steps.emplace_back(Normalizer::Form{Normalizer::Form::Kind::kNfkc});
    } else if (type == "NFKD") {
      steps.emplace_back(Normalizer::Form{Normalizer::Form::Kind::kNfkd});
    } else if (type == "Replace" && read_pattern(step, kWhere).is_regex) {
      steps.emplace_back(Normalizer::ReplaceMatches{
          Regex(read_pattern(step, kWhere).text),
          std::string(json::get<std::string_view>(step, "content", kWhere))});
    } else if (type == "Replace") {
      auto [pattern, content] = read_replace(step, kWhere);
      steps.emplace_back(Normalizer::Replace{std::move(pattern), std::move(content)});
    } else {
      unsupported(kWhere, type, "NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence");
    }
  };
  if (const auto step = json::find(file, kWhere)) for_each_step(*step, "normalizers", kWhere, add);
  return Normalizer(std::move(steps));
}

PreTokenizerSteps read_pre_tokenizer(Element file) {
  constexpr std::string_view kWhere = "pre_tokenizer";
  std::vector<PreTokenizer::Step> steps;
  bool byte_level = false;
  const auto add = [&](Element step) {
    const std::string_view type = type_of(step, kWhere);
    if (byte_level)
      throw Error("tokenizer.json: pre_tokenizer of type " + in_quotes(type) +
                  " after ByteLevel is not supported: ByteLevel must be the last");
    if (type == "Split") {
      steps.emplace_back(read_split(step));
    } else if (type == "Digits") {
      steps.emplace_back(PreTokenizer::Digits{
          .individual = json::find<bool>(step, "individual_digits", kWhere).value_or(false)});
    } else if (type == "ByteLevel") {
      byte_level = true;
      steps.emplace_back(PreTokenizer::ByteLevel{
          .add_prefix_space = json::find<bool>(step, "add_prefix_space", kWhere).value_or(true),
          .use_regex = json::find<bool>(step, "use_regex", kWhere).value_or(true)});
    } else if (type == "Metaspace") {
      steps.emplace_back(read_metaspace(step));
    } else {
      unsupported(kWhere, type, "Split, Digits, ByteLevel, Metaspace, Sequence");
    }
  };
  if (const auto step = json::find(file, kWhere))
    for_each_step(*step, "pretokenizers", kWhere, add);
  return {PreTokenizer(std::move(steps)), byte_level};
}

AddedAround read_post_processor(Element file) {
  constexpr std::string_view kWhere = "post_processor";
  AddedAround around;
  const auto add = [&](Element step) {
    const std::string_view type = type_of(step, kWhere);
    if (type == "ByteLevel") return;  // moves offsets only
    AddedAround more;
    if (type == "TemplateProcessing") {
      more = read_template(step);
    } else if (type == "RobertaProcessing" || type == "BertProcessing") {
      more.prefix.push_back(read_token_pair(step, "cls"));
      more.suffix.push_back(read_token_pair(step, "sep"));
    } else {
      unsupported(kWhere, type,
                  "TemplateProcessing, RobertaProcessing, BertProcessing, ByteLevel, Sequence");
    }
    // A later processor works on what the earlier ones made, so it adds further outside.
    around.prefix.insert(around.prefix.begin(), more.prefix.begin(), more.prefix.end());
    around.suffix.insert(around.suffix.end(), more.suffix.begin(), more.suffix.end());
  };
  if (const auto step = json::find(file, kWhere)) for_each_step(*step, "processors", kWhere, add);
  return around;
}

DecoderRules read_decoder(Element file) {
  constexpr std::string_view kWhere = "decoder";
  DecoderRules rules;
  const auto add = [&](Element step) {
    const std::string_view type = type_of(step, kWhere);
    if (type == "ByteLevel") {
      rules.byte_level = true;
    } else if (type == "Replace") {
      rules.replace.push_back(read_replace(step, kWhere));
    } else if (type == "ByteFallback") {
      rules.byte_fallback = true;
    } else if (type == "Strip") {
      read_strip(step, rules);
    } else if (type == "Metaspace") {
      rules.replace.emplace_back(read_mark(step, kWhere), " ");
      rules.strip_leading_space =
          read_prepend_scheme(step, kWhere) != PreTokenizer::Metaspace::Prepend::kNever;
    } else if (type != "Fuse") {
      unsupported(kWhere, type,
                  "ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, Sequence");
    }
  };
  if (const auto step = json::find(file, kWhere)) for_each_step(*step, "decoders", kWhere, add);
  return rules;
}

}  // namespace minisgl
