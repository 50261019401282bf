#include "grammar/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "grammar/schema_walk.h"
#include "minisgl/error.h"

namespace minisgl {
namespace {

/// Keywords that assert something and that nothing here enforces.
constexpr std::array kNotEnforced = {"not",
                                     "if",
                                     "then",
                                     "else",
                                     "dependentRequired",
                                     "dependencies",
                                     "contains",
                                     "minContains",
                                     "maxContains",
                                     "dependentSchemas",
                                     "$dynamicRef",
                                     "$recursiveRef",
                                     "additionalItems"};

constexpr std::array kTypes = {"object", "array", "string", "integer", "number", "boolean", "null"};

struct Group {
  const char* type;
  std::initializer_list<const char*> keywords;
};

/// Keywords that say something of values of one type only.
const Group kGroups[] = {
    {"object",
     {"properties", "required", "additionalProperties", "patternProperties", "propertyNames",
      "minProperties", "maxProperties", "unevaluatedProperties"}},
    {"array", {"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "unevaluatedItems"}},
    {"string", {"minLength", "maxLength", "pattern", "format"}},
    {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
};

/// Of an object without "type": that of its keywords; "" if it says nothing.
std::string implied_type(const Json& schema) {
  for (const Group& group : kGroups)
    for (const char* keyword : group.keywords)
      if (schema.contains(keyword)) return group.type;
  return "";
}

/// Throws if `schema` has an assertion beside `head` that would be ignored.
void check_alone(const Json& schema, const std::string& path, const std::string& head,
                 bool type_is_fine = false) {
  const auto refuse = [&](const char* keyword) {
    refuse_schema(fmt::format("\"{}\" beside \"{}\" at {} is not enforced", keyword, head, path));
  };
  for (const char* other : {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"})
    if (head != other && schema.contains(other)) refuse(other);
  if (!type_is_fine && schema.contains("type")) refuse("type");
  for (const Group& group : kGroups)
    for (const char* keyword : group.keywords)
      if (schema.contains(keyword)) refuse(keyword);
}

std::vector<std::string> types_of(const Json& schema, const std::string& path) {
  std::vector<std::string> types;
  const Json& type = schema["type"];
  for (const Json& name : type.is_array() ? type : Json::array({type})) {
    if (!name.is_string() ||
        std::find(kTypes.begin(), kTypes.end(), name.get<std::string>()) == kTypes.end())
      refuse_schema(
          fmt::format("\"type\" at {} is {}; types are object, array, string, integer, "
                      "number, boolean, null, or a list of them",
                      path, name.dump()));
    if (std::find(types.begin(), types.end(), name.get<std::string>()) == types.end())
      types.push_back(name.get<std::string>());
  }
  if (types.empty()) refuse_schema(fmt::format("\"type\" at {} is an empty list", path));
  return types;
}

}  // namespace

void refuse_schema(const std::string& message) {
  throw RequestError("response_format: JSON schema: " + message, "response_format",
                     "unsupported_schema");
}

std::string below(const std::string& path, std::string_view key) {
  std::string result = path + "/";
  for (const char c : key) {
    if (c == '~') {
      result += "~0";
    } else if (c == '/') {
      result += "~1";
    } else {
      result += c;
    }
  }
  return result;
}

std::string below(const std::string& path, std::size_t index) {
  return path + "/" + std::to_string(index);
}

bool has_type(const Json& value, std::string_view type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "number") return value.is_number();
  return value.is_number_integer() ||
         (value.is_number_float() && value.get<double>() == std::trunc(value.get<double>()));
}

const Json& resolve_reference(const Json& root, const std::string& uri, const std::string& path) {
  const std::string reference = fmt::format("\"$ref\" at {} is \"{}\"", path, uri);
  if (uri != "#" && !uri.starts_with("#/"))
    refuse_schema(reference +
                  ", but only references within the schema (\"#\", \"#/...\") are followed");
  std::string pointer;
  for (std::size_t i = 1; i < uri.size(); ++i) {
    unsigned value = 0;
    if (uri[i] == '%' && i + 2 < uri.size() &&
        std::sscanf(uri.c_str() + i + 1, "%2x", &value) == 1) {
      pointer += static_cast<char>(value);
      i += 2;
    } else {
      pointer += uri[i];
    }
  }
  try {
    return root.at(Json::json_pointer(pointer));
  } catch (const Json::exception&) {
    refuse_schema(reference + ", which points at nothing");
  }
}

Json enforceable_schema(const Json& schema, const PatternCheck& check_pattern) {
  return SchemaWalk(schema, check_pattern).run();
}

Json SchemaWalk::run() {
  Json result = any(root_, "#");
  Json definitions = Json::object();
  for (std::size_t i = 0; i < open_references_.size(); ++i) {
    const std::string uri = open_references_[i];
    definitions[names_.at(uri)] = any(resolve_reference(root_, uri, uri), uri);
  }
  if (!definitions.empty()) result["$defs"] = std::move(definitions);
  return result;
}

Json SchemaWalk::any(const Json& schema, const std::string& path) {
  if (schema.is_boolean() && schema.get<bool>()) return Json::object();
  if (schema.is_boolean()) refuse_schema(fmt::format("nothing can satisfy false at {}", path));
  if (!schema.is_object())
    refuse_schema(
        fmt::format("a schema is an object, true or false, but {} is {}", path, schema.dump()));
  return object_schema(schema, path);
}

Json SchemaWalk::object_schema(const Json& schema, const std::string& path) {
  for (const char* keyword : kNotEnforced)
    if (schema.contains(keyword))
      refuse_schema(fmt::format("\"{}\" at {} is not enforced", keyword, path));
  if (schema.contains("$ref")) return reference(schema, path);
  if (schema.contains("const")) return listed_values(schema, path, "const");
  if (schema.contains("enum")) return listed_values(schema, path, "enum");
  if (schema.contains("anyOf")) return alternatives(schema, path, "anyOf");
  if (schema.contains("oneOf")) return alternatives(schema, path, "oneOf");
  if (schema.contains("allOf")) return all_of(schema, path);
  if (schema.contains("type")) return of_types(schema, path);
  const std::string type = implied_type(schema);
  return type.empty() ? Json::object() : of_type(schema, path, type);
}

Json SchemaWalk::reference(const Json& schema, const std::string& path) {
  check_alone(schema, path, "$ref");
  if (!schema["$ref"].is_string())
    refuse_schema(fmt::format("\"$ref\" at {} is {}, not a string", path, schema["$ref"].dump()));
  const auto uri = schema["$ref"].get<std::string>();
  resolve_reference(root_, uri, path);  // throws if there is nothing
  const auto [name, is_new] = names_.try_emplace(uri, "r" + std::to_string(names_.size()));
  if (is_new) open_references_.push_back(uri);
  return {{"$ref", "#/$defs/" + name->second}};
}

Json SchemaWalk::listed_values(const Json& schema, const std::string& path, const char* keyword) {
  check_alone(schema, path, keyword, /*type_is_fine=*/true);
  Json values = schema[keyword];
  if (std::string_view(keyword) == "const") {
    values = Json::array({values});
  } else if (!values.is_array()) {
    refuse_schema(fmt::format("\"enum\" at {} is {}, not a list", path, values.dump()));
  }
  Json kept = Json::array();
  for (const Json& value : values) {
    bool fits = true;
    if (schema.contains("type")) {
      const std::vector<std::string> types = types_of(schema, path);
      fits = std::any_of(types.begin(), types.end(),
                         [&](const std::string& type) { return has_type(value, type); });
    }
    if (fits) kept.push_back(value);
  }
  if (kept.empty())
    refuse_schema(fmt::format("\"{}\" at {} lists no value{}", keyword, path,
                              schema.contains("type") ? " of its \"type\"" : ""));
  return {{"enum", std::move(kept)}};
}

Json SchemaWalk::alternatives(const Json& schema, const std::string& path, const char* keyword) {
  check_alone(schema, path, keyword);
  const Json& options = schema[keyword];
  const std::string place = below(path, keyword);
  if (!options.is_array() || options.empty())
    refuse_schema(fmt::format("\"{}\" at {} is not a list of schemas", keyword, path));
  if (std::string_view(keyword) == "oneOf" && !exclude_each_other(root_, options))
    refuse_schema(
        fmt::format("\"oneOf\" at {} is only enforced if its options visibly exclude each "
                    "other (by type, by const or enum, or by such a required property); "
                    "use \"anyOf\"",
                    path));
  Json kept = Json::array();
  for (std::size_t i = 0; i < options.size(); ++i)
    if (options[i] != false) kept.push_back(any(options[i], below(place, i)));
  if (kept.empty()) refuse_schema(fmt::format("nothing can satisfy \"{}\" at {}", keyword, path));
  return {{"anyOf", std::move(kept)}};
}

Json SchemaWalk::all_of(const Json& schema, const std::string& path) {
  check_alone(schema, path, "allOf");
  const Json& parts = schema["allOf"];
  if (!parts.is_array() || parts.empty())
    refuse_schema(fmt::format("\"allOf\" at {} is not a list of schemas", path));
  if (parts.size() > 1)
    refuse_schema(
        fmt::format("\"allOf\" at {} has {} schemas; only one is enforced", path, parts.size()));
  return any(parts[0], below(below(path, "allOf"), 0));
}

Json SchemaWalk::of_types(const Json& schema, const std::string& path) {
  const std::vector<std::string> types = types_of(schema, path);
  if (types.size() == 1) return of_type(schema, path, types[0]);
  Json options = Json::array();
  for (const std::string& type : types) options.push_back(of_type(schema, path, type));
  return {{"anyOf", std::move(options)}};
}

Json SchemaWalk::of_type(const Json& schema, const std::string& path, const std::string& type) {
  if (type == "object") return object(schema, path);
  if (type == "array") return array(schema, path);
  if (type == "string") return string(schema, path);
  if (type == "integer") return integer(schema, path);
  if (type == "number") return number(schema, path);
  return {{"type", type}};
}

}  // namespace minisgl
