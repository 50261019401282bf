// What a schema says of values of one type.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>

#include "base/utf8.h"
#include "grammar/formats.h"
#include "grammar/schema_walk.h"

namespace minisgl {
namespace {

constexpr std::int64_t kMaxRepeats = 100'000;                  // of lengths and numbers of items
constexpr std::int64_t kMaxInteger = 999'999'999'999'999'999;  // unless the schema says more
constexpr std::int64_t kMaxMultiple = 1024;                    // what xgrammar's automaton takes
constexpr std::int64_t kMaxMultipleRange = 10'000;             // and beside two bounds

/// A non-negative integer below `keyword`, if it is there.
std::optional<std::int64_t> count(const Json& schema, const std::string& path,
                                  const char* keyword) {
  const auto found = schema.find(keyword);
  if (found == schema.end()) return std::nullopt;
  const double value = found->is_number() ? found->get<double>() : -1;
  if (value < 0 || value != std::floor(value))
    refuse_schema(fmt::format("\"{}\" at {} is {}; it must be an integer of at least 0", keyword,
                              path, found->dump()));
  if (value > kMaxRepeats)
    refuse_schema(fmt::format("\"{}\" at {} is {}; at most {} is enforced", keyword, path,
                              found->dump(), kMaxRepeats));
  return static_cast<std::int64_t>(value);
}

void check_order(std::int64_t low, std::optional<std::int64_t> high, const std::string& path,
                 const char* what) {
  if (high && low > *high)
    refuse_schema(fmt::format("\"min{}\" at {} is {}, more than \"max{}\", {}", what, path, low,
                              what, *high));
}

std::optional<double> number_at(const Json& schema, const std::string& path, const char* keyword) {
  const auto found = schema.find(keyword);
  if (found == schema.end()) return std::nullopt;
  if (!found->is_number() || !std::isfinite(found->get<double>()))
    refuse_schema(fmt::format("\"{}\" at {} is {}, not a number", keyword, path, found->dump()));
  return found->get<double>();
}

/// The bound as an integer: the nearest one inside. Values beyond 64 bits are beyond all.
std::optional<std::int64_t> integer_bound(const Json& schema, const std::string& path,
                                          const char* keyword, bool is_lower, bool exclusive) {
  const std::optional<double> value = number_at(schema, path, keyword);
  if (!value) return std::nullopt;
  constexpr double kLimit = 9e18;
  if (std::abs(*value) > kLimit)
    refuse_schema(fmt::format("\"{}\" at {} is {}; bounds of integers have at most 64 bits",
                              keyword, path, schema[keyword].dump()));
  const Json& bound = schema[keyword];
  const std::int64_t inside = bound.is_number_integer() ? bound.get<std::int64_t>()
                              : is_lower ? static_cast<std::int64_t>(std::ceil(*value))
                                         : static_cast<std::int64_t>(std::floor(*value));
  const bool hit = bound.is_number_integer() || *value == std::floor(*value);
  if (!exclusive || !hit) return inside;
  return is_lower ? inside + 1 : inside - 1;
}

template <class T, class Less>
std::optional<T> stricter(std::optional<T> a, std::optional<T> b, Less less) {
  if (!a || !b) return a ? a : b;
  return less(*a, *b) ? a : b;
}

/// Beyond ASCII xgrammar takes escapes only.
std::string to_ascii(const std::string& pattern) {
  std::string result;
  for (std::size_t i = 0; i < pattern.size();) {
    const Utf8Char c = decode_utf8(pattern, i);
    if (c.code_point < 0x80) {
      result += pattern[i];
    } else if (c.code_point < 0x10000) {
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(c.code_point));
    } else {
      result += fmt::format("\\u{{{:x}}}", static_cast<unsigned>(c.code_point));
    }
    i += c.length;
  }
  return result;
}

}  // namespace

std::string SchemaWalk::checked_pattern(const std::string& pattern, const std::string& path) const {
  const std::string ascii = to_ascii(pattern);
  if (const std::string error = check_pattern_(ascii); !error.empty())
    refuse_schema(fmt::format("\"pattern\" at {} is not enforced: {}", path, error));
  return ascii;
}

Json SchemaWalk::string(const Json& schema, const std::string& path) {
  const std::int64_t shortest = count(schema, path, "minLength").value_or(0);
  const std::optional<std::int64_t> longest = count(schema, path, "maxLength");
  const bool has_length = shortest > 0 || longest;
  check_order(shortest, longest, path, "Length");
  const char* chosen = schema.contains("pattern") ? "pattern" : "format";
  if (!schema.contains(chosen)) {
    Json result = {{"type", "string"}};
    if (shortest > 0) result["minLength"] = shortest;
    if (longest) result["maxLength"] = *longest;
    return result;
  }
  if (has_length)
    refuse_schema(fmt::format("\"{}\" beside \"{}\" at {} is not enforced",
                              longest ? "maxLength" : "minLength", chosen, path));
  if (schema.contains("pattern") && schema.contains("format"))
    refuse_schema(fmt::format("\"format\" beside \"pattern\" at {} is not enforced", path));
  if (!schema[chosen].is_string())
    refuse_schema(
        fmt::format("\"{}\" at {} is {}, not a string", chosen, path, schema[chosen].dump()));
  const auto text = schema[chosen].get<std::string>();
  if (schema.contains("pattern"))
    return {{"type", "string"}, {"pattern", checked_pattern(text, path)}};
  const std::string pattern = pattern_of_format(text);
  if (pattern.empty())
    refuse_schema(fmt::format("\"format\" \"{}\" at {} is not enforced; known are {}", text, path,
                              known_formats()));
  return {{"type", "string"}, {"pattern", pattern}};
}

Json SchemaWalk::integer(const Json& schema, const std::string& path) {
  const auto less = [](std::int64_t a, std::int64_t b) { return a < b; };
  const auto more = [](std::int64_t a, std::int64_t b) { return a > b; };
  const auto low = stricter(integer_bound(schema, path, "minimum", true, false),
                            integer_bound(schema, path, "exclusiveMinimum", true, true), more);
  const auto high = stricter(integer_bound(schema, path, "maximum", false, false),
                             integer_bound(schema, path, "exclusiveMaximum", false, true), less);
  if (low && high && *low > *high)
    refuse_schema(fmt::format("no integer is within the bounds at {}", path));
  const std::optional<double> multiple = number_at(schema, path, "multipleOf");
  Json result = {{"type", "integer"}};
  if (multiple) {
    const bool narrow = low && high && *high - *low <= kMaxMultipleRange;
    if (*multiple != std::floor(*multiple) || *multiple < 1 || *multiple > kMaxMultiple)
      refuse_schema(fmt::format("\"multipleOf\" at {} is {}; of integers, 1 to {} is enforced",
                                path, schema["multipleOf"].dump(), kMaxMultiple));
    if ((low || high) && !narrow)
      refuse_schema(
          fmt::format("\"multipleOf\" at {} is only enforced without bounds, or with two "
                      "that are at most {} apart",
                      path, kMaxMultipleRange));
    result["multipleOf"] = static_cast<std::int64_t>(*multiple);
    if (!low) return result;
  }
  result["minimum"] = low.value_or(std::min(-kMaxInteger, high.value_or(0)));
  result["maximum"] = high.value_or(std::max(kMaxInteger, low.value_or(0)));
  return result;
}

Json SchemaWalk::number(const Json& schema, const std::string& path) {
  if (schema.contains("multipleOf"))
    refuse_schema(
        fmt::format("\"multipleOf\" at {} is only enforced of \"type\": \"integer\"", path));
  Json result = {{"type", "number"}};
  for (const char* keyword : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
    if (const auto bound = number_at(schema, path, keyword)) result[keyword] = schema[keyword];
  return result;
}

Json SchemaWalk::array(const Json& schema, const std::string& path) {
  if (schema.contains("uniqueItems") && schema["uniqueItems"] != false)
    refuse_schema(fmt::format("\"uniqueItems\" at {} is not enforced", path));
  Json result = {{"type", "array"}};
  const std::int64_t fewest = count(schema, path, "minItems").value_or(0);
  const std::optional<std::int64_t> most = count(schema, path, "maxItems");
  check_order(fewest, most, path, "Items");
  if (fewest > 0) result["minItems"] = fewest;
  if (most) result["maxItems"] = *most;
  check_items(schema, path, result);
  return result;
}

void SchemaWalk::check_items(const Json& schema, const std::string& path, Json& result) {
  const std::int64_t fewest = result.value("minItems", std::int64_t{0});
  const std::int64_t most = result.value("maxItems", std::numeric_limits<std::int64_t>::max());
  std::int64_t num_first = 0;
  if (schema.contains("prefixItems")) {
    const Json& first = schema["prefixItems"];
    if (!first.is_array())
      refuse_schema(fmt::format("\"prefixItems\" at {} is {}, not a list", path, first.dump()));
    Json kept = Json::array();
    num_first = std::min(most, static_cast<std::int64_t>(first.size()));
    for (std::int64_t i = 0; i < num_first; ++i)
      kept.push_back(any(first[static_cast<std::size_t>(i)],
                         below(below(path, "prefixItems"), static_cast<std::size_t>(i))));
    if (!kept.empty()) result["prefixItems"] = std::move(kept);
  }
  const char* keyword = schema.contains("items") ? "items" : "unevaluatedItems";
  if (schema.contains(keyword)) {
    if (schema[keyword].is_array())
      refuse_schema(fmt::format("\"items\" at {} is a list; use \"prefixItems\"", path));
    result["items"] =
        schema[keyword] == false ? Json(false) : any(schema[keyword], below(path, keyword));
  } else {
    // More than what is declared only where it has to be, or where nothing is declared.
    const bool more = num_first == 0 || fewest > num_first;
    result["items"] = more ? Json::object() : Json(false);
  }
  if (result["items"] == false && fewest > num_first)
    refuse_schema(fmt::format("\"minItems\" at {} is {}, but only {} items may be there", path,
                              fewest, num_first));
}

Json SchemaWalk::object(const Json& schema, const std::string& path) {
  Json result = {{"type", "object"}};
  add_properties(schema, path, result);
  add_other_properties(schema, path, result);
  check_property_counts(schema, path, result);
  return result;
}

void SchemaWalk::add_properties(const Json& schema, const std::string& path, Json& result) {
  if (schema.contains("properties")) {
    if (!schema["properties"].is_object())
      refuse_schema(fmt::format("\"properties\" at {} is {}, not an object", path,
                                schema["properties"].dump()));
    Json properties = Json::object();
    for (const auto& [name, value] : schema["properties"].items())
      if (value != false) properties[name] = any(value, below(below(path, "properties"), name));
    if (!properties.empty()) result["properties"] = std::move(properties);
  }
  const std::size_t num_properties =
      result.contains("properties") ? result["properties"].size() : 0;
  if (!schema.contains("required")) return count_optional(num_properties, path);
  const Json& names = schema["required"];
  if (!names.is_array())
    refuse_schema(fmt::format("\"required\" at {} is {}, not a list", path, names.dump()));
  Json required = Json::array();
  for (const Json& name : names) {
    if (!name.is_string())
      refuse_schema(fmt::format("\"required\" at {} has {}, not a string", path, name.dump()));
    if (!result.contains("properties") || !result["properties"].contains(name.get<std::string>()))
      refuse_schema(
          fmt::format("\"required\" at {} names {}, which is not among \"properties\"; "
                      "that is not enforced",
                      path, name.dump()));
    if (std::find(required.begin(), required.end(), name) == required.end())
      required.push_back(name);
  }
  count_optional(num_properties - required.size(), path);
  if (!required.empty()) result["required"] = std::move(required);
}

/// xgrammar's time for an object grows steeply with its optional properties: 80 take 18 ms, 300
/// more than half a minute.
void SchemaWalk::count_optional(std::size_t count, const std::string& path) {
  constexpr std::size_t kMostOfAnObject = 100;
  constexpr std::size_t kMost = 1000;
  num_optional_ += count;
  if (count > kMostOfAnObject || num_optional_ > kMost)
    refuse_schema(
        fmt::format("\"properties\" at {} has {} that are not required; an object may have "
                    "{} of them, all objects together {}",
                    path, count, kMostOfAnObject, kMost));
}

void SchemaWalk::add_other_properties(const Json& schema, const std::string& path, Json& result) {
  const bool declared = result.contains("properties");
  const char* keyword =
      schema.contains("additionalProperties") ? "additionalProperties" : "unevaluatedProperties";
  const bool says = schema.contains(keyword);
  const auto alone = [&](const char* what, bool ok) {
    if (!ok)
      refuse_schema(
          fmt::format("\"{}\" at {} is not enforced beside other properties", what, path));
  };
  if (schema.contains("patternProperties")) {
    const Json& patterns = schema["patternProperties"];
    if (!patterns.is_object())
      refuse_schema(
          fmt::format("\"patternProperties\" at {} is {}, not an object", path, patterns.dump()));
    // A key may match several patterns, or be one of the others: then all of them count.
    alone("patternProperties", !declared && patterns.size() == 1 &&
                                   !schema.contains("propertyNames") &&
                                   (!says || schema[keyword] == false));
    const std::string place = below(path, "patternProperties");
    const auto only = patterns.begin();  // not of items(), whose elements live in the iterator
    result["patternProperties"][checked_pattern(only.key(), place)] =
        any(only.value(), below(place, only.key()));
    result["additionalProperties"] = false;
    return;
  }
  // What is not declared may be there if that is said, or if nothing is declared.
  result["additionalProperties"] = !says ? Json(!declared)
                                   : schema[keyword].is_boolean()
                                       ? schema[keyword]
                                       : any(schema[keyword], below(path, keyword));
  if (!schema.contains("propertyNames")) return;
  alone("propertyNames", !declared);
  if (result["additionalProperties"] == false) return;
  const Json& names = schema["propertyNames"];
  if (names == true) return;
  if (!names.is_object() || names.contains("$ref") || names.contains("anyOf") ||
      names.contains("oneOf") || names.contains("allOf") ||
      names.value("type", "string") != "string")
    refuse_schema(
        fmt::format("\"propertyNames\" at {} must be a schema of strings, without "
                    "references and alternatives",
                    path));
  Json strings = names;
  strings["type"] = "string";
  result["propertyNames"] = any(strings, below(path, "propertyNames"));
}

void SchemaWalk::check_property_counts(const Json& schema, const std::string& path, Json& result) {
  const std::int64_t fewest = count(schema, path, "minProperties").value_or(0);
  const std::optional<std::int64_t> most = count(schema, path, "maxProperties");
  check_order(fewest, most, path, "Properties");
  const auto num_required =
      static_cast<std::int64_t>(result.contains("required") ? result["required"].size() : 0);
  if (most && num_required > *most)
    refuse_schema(fmt::format("\"maxProperties\" at {} is {}, but {} are required", path, *most,
                              num_required));
  if (most) result["maxProperties"] = *most;
  if (fewest <= num_required) return;
  const bool only_declared =
      result["additionalProperties"] == false && !result.contains("patternProperties");
  if (!only_declared)  // the same key may come twice
    refuse_schema(
        fmt::format("\"minProperties\" at {} is only enforced of declared properties", path));
  if (fewest > static_cast<std::int64_t>(result.value("properties", Json::object()).size()))
    refuse_schema(
        fmt::format("\"minProperties\" at {} is {}, more than may be there", path, fewest));
  result["minProperties"] = fewest;
}

}  // namespace minisgl
