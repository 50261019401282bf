// Does a value satisfy a schema? Written from the specification of JSON Schema (2020-12), for the
// keywords that tests use; lengths and patterns are std::regex's and Unicode's.

#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "base/utf8.h"

namespace minisgl::testing_util {

using Json = nlohmann::ordered_json;

inline std::int64_t num_characters(const std::string& text) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < text.size(); i += decode_utf8(text, i).length) ++count;
  return count;
}

inline bool is_of_type(const std::string& type, const Json& value) {
  if (type == "integer")
    return value.is_number() && value.get<double>() == std::floor(value.get<double>());
  if (type == "number") return value.is_number();
  return type == std::string(value.type_name());
}

inline bool satisfies(const Json& schema, const Json& value, const Json& root);

inline bool object_satisfies(const Json& schema, const Json& value, const Json& root) {
  for (const Json& name : schema.value("required", Json::array()))
    if (!value.contains(name.get<std::string>())) return false;
  const Json properties = schema.value("properties", Json::object());
  const Json others = schema.value("additionalProperties", Json(true));
  for (const auto& [name, member] : value.items())
    if (!satisfies(properties.contains(name) ? properties[name] : others, member, root))
      return false;
  const auto size = static_cast<std::int64_t>(value.size());
  return size <= schema.value("maxProperties", size) && size >= schema.value("minProperties", size);
}

inline bool array_satisfies(const Json& schema, const Json& value, const Json& root) {
  const auto size = static_cast<std::int64_t>(value.size());
  if (size > schema.value("maxItems", size) || size < schema.value("minItems", size)) return false;
  const Json first = schema.value("prefixItems", Json::array());
  for (std::size_t i = 0; i < value.size(); ++i)
    if (!satisfies(i < first.size() ? first[i] : schema.value("items", Json(true)), value[i], root))
      return false;
  return true;
}

inline bool string_satisfies(const Json& schema, const std::string& value) {
  const std::int64_t length = num_characters(value);
  if (length > schema.value("maxLength", length) || length < schema.value("minLength", length))
    return false;
  return !schema.contains("pattern") ||
         std::regex_search(value, std::regex(schema["pattern"].get<std::string>()));
}

inline bool number_satisfies(const Json& schema, double value) {
  const auto bound = [&](const char* name) {
    return schema.contains(name) ? schema[name].get<double>() : std::nan("");
  };
  // A comparison with NaN, a bound that is not there, is false.
  return !(value < bound("minimum")) && !(value > bound("maximum")) &&
         !(value <= bound("exclusiveMinimum")) && !(value >= bound("exclusiveMaximum")) &&
         !(std::fmod(value, bound("multipleOf")) != 0 && schema.contains("multipleOf"));
}

inline bool satisfies(const Json& schema, const Json& value, const Json& root) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (schema.contains("$ref")) {
    const auto pointer = schema["$ref"].get<std::string>().substr(1);
    return satisfies(root.at(Json::json_pointer(pointer)), value, root);
  }
  if (schema.contains("const") && value != schema["const"]) return false;
  if (schema.contains("enum")) {
    bool found = false;
    for (const Json& listed : schema["enum"]) found |= listed == value;
    if (!found) return false;
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (!schema.contains(keyword)) continue;
    int num_satisfied = 0;
    for (const Json& option : schema[keyword]) num_satisfied += satisfies(option, value, root);
    if (num_satisfied == 0 || (keyword[0] == 'o' && num_satisfied > 1)) return false;
  }
  if (schema.contains("type")) {
    bool found = false;
    const Json& types = schema["type"];
    for (const Json& type : types.is_array() ? types : Json::array({types}))
      found |= is_of_type(type.get<std::string>(), value);
    if (!found) return false;
  }
  if (value.is_object()) return object_satisfies(schema, value, root);
  if (value.is_array()) return array_satisfies(schema, value, root);
  if (value.is_string()) return string_satisfies(schema, value.get<std::string>());
  return !value.is_number() || number_satisfies(schema, value.get<double>());
}

}  // namespace minisgl::testing_util
