// The walk behind enforceable_schema(): one object for one schema.

#pragma once

#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/schema.h"

namespace minisgl {

using Json = nlohmann::ordered_json;

/// Throws RequestError for a schema that is wrong or not enforced: "response_format: " + message.
[[noreturn]] void refuse_schema(const std::string& message);

/// The place `key` below the JSON pointer `path` (RFC 6901 escapes).
std::string below(const std::string& path, std::string_view key);
std::string below(const std::string& path, std::size_t index);

/// Whether "type": `type` accepts `value`.
bool has_type(const Json& value, std::string_view type);

/// What `uri` ("#" or "#/...") points at in `root`. Throws RequestError naming `path`, where the
/// reference is, if there is nothing.
const Json& resolve_reference(const Json& root, const std::string& uri, const std::string& path);

/// Whether no value can satisfy two of `options`, as far as that can be seen: they differ in type,
/// in the values that they list, or in those of a property that both require.
bool exclude_each_other(const Json& root, const Json& options);

/// Rewrites the parts of one schema. Paths are JSON pointers into the schema as it came.
class SchemaWalk {
 public:
  SchemaWalk(const Json& root, const PatternCheck& check_pattern)
      : root_(root), check_pattern_(check_pattern) {}

  /// The whole schema.
  Json run();

 private:
  Json any(const Json& schema, const std::string& path);
  Json object_schema(const Json& schema, const std::string& path);
  Json reference(const Json& schema, const std::string& path);
  Json listed_values(const Json& schema, const std::string& path, const char* keyword);
  Json alternatives(const Json& schema, const std::string& path, const char* keyword);
  Json all_of(const Json& schema, const std::string& path);
  Json of_types(const Json& schema, const std::string& path);
  Json of_type(const Json& schema, const std::string& path, const std::string& type);

  Json string(const Json& schema, const std::string& path);
  Json integer(const Json& schema, const std::string& path);
  Json number(const Json& schema, const std::string& path);
  Json array(const Json& schema, const std::string& path);
  Json object(const Json& schema, const std::string& path);
  void add_properties(const Json& schema, const std::string& path, Json& result);
  void add_other_properties(const Json& schema, const std::string& path, Json& result);
  void check_property_counts(const Json& schema, const std::string& path, Json& result);
  void check_items(const Json& schema, const std::string& path, Json& result);

  std::string checked_pattern(const std::string& pattern, const std::string& path) const;

  void count_optional(std::size_t count, const std::string& path);

  const Json& root_;
  const PatternCheck& check_pattern_;
  std::size_t num_optional_ = 0;              // properties, in all objects
  std::map<std::string, std::string> names_;  // of definitions, by reference
  std::vector<std::string> open_references_;  // to be written; grows while it is worked off
};

}  // namespace minisgl
