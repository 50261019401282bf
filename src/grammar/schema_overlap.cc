// Whether two schemas can accept the same value: what "oneOf" needs to know.

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "grammar/schema_walk.h"

namespace minisgl {
namespace {

constexpr int kMaxHops = 16;  // of references that lead to references

/// What can be seen of the values that a schema accepts.
struct Shape {
  std::optional<std::vector<Json>> values;        ///< no others
  std::optional<std::vector<std::string>> types;  ///< no others
  const Json* schema = nullptr;                   ///< with references followed; null: not known
};

Shape shape_of(const Json& root, const Json& option) {
  const Json* schema = &option;
  for (int hop = 0; schema->is_object() && schema->contains("$ref"); ++hop) {
    if (hop == kMaxHops || !(*schema)["$ref"].is_string()) return {};
    schema = &resolve_reference(root, (*schema)["$ref"].get<std::string>(), "#");
  }
  if (!schema->is_object()) return {};
  Shape shape{.values = std::nullopt, .types = std::nullopt, .schema = schema};
  if (schema->contains("const")) shape.values.emplace().push_back((*schema)["const"]);
  if (schema->contains("enum") && (*schema)["enum"].is_array())
    shape.values = (*schema)["enum"].get<std::vector<Json>>();
  if (!schema->contains("type")) return shape;
  shape.types.emplace();
  const Json& type = (*schema)["type"];
  for (const Json& name : type.is_array() ? type : Json::array({type}))
    if (name.is_string()) shape.types->push_back(name.get<std::string>());
  return shape;
}

bool types_overlap(const std::string& a, const std::string& b) {
  const auto is_number = [](const std::string& t) { return t == "integer" || t == "number"; };
  return a == b || (is_number(a) && is_number(b));
}

bool accepts(const Shape& shape, const Json& value) {
  if (shape.values)
    return std::find(shape.values->begin(), shape.values->end(), value) != shape.values->end();
  if (!shape.types) return true;
  return std::any_of(shape.types->begin(), shape.types->end(),
                     [&](const std::string& type) { return has_type(value, type); });
}

bool requires_property(const Json& schema, const std::string& name) {
  const auto required = schema.find("required");
  return required != schema.end() && required->is_array() &&
         std::find(required->begin(), required->end(), name) != required->end();
}

bool exclude(const Json& root, const Json& a, const Json& b, bool look_into_objects);

/// Both are objects with a required property whose values tell them apart.
bool told_apart_by_property(const Json& root, const Shape& a, const Shape& b) {
  const auto is_object = [](const Shape& s) {
    return s.schema != nullptr && s.types && *s.types == std::vector<std::string>{"object"} &&
           s.schema->contains("properties") && (*s.schema)["properties"].is_object();
  };
  if (!is_object(a) || !is_object(b)) return false;
  const Json& others = (*b.schema)["properties"];
  for (const auto& [name, value] : (*a.schema)["properties"].items()) {
    if (!others.contains(name) || !requires_property(*a.schema, name) ||
        !requires_property(*b.schema, name))
      continue;
    if (exclude(root, value, others[name], /*look_into_objects=*/false)) return true;
  }
  return false;
}

bool exclude(const Json& root, const Json& a, const Json& b, bool look_into_objects) {
  if (a == false || b == false) return true;
  const Shape left = shape_of(root, a);
  const Shape right = shape_of(root, b);
  const auto none_accepted = [](const Shape& lists, const Shape& other) {
    return std::none_of(lists.values->begin(), lists.values->end(),
                        [&](const Json& value) { return accepts(other, value); });
  };
  if (left.values) return none_accepted(left, right);
  if (right.values) return none_accepted(right, left);
  if (left.types && right.types) {
    const bool apart = std::none_of(left.types->begin(), left.types->end(), [&](const auto& type) {
      return std::any_of(right.types->begin(), right.types->end(),
                         [&](const auto& other) { return types_overlap(type, other); });
    });
    if (apart) return true;
  }
  return look_into_objects && told_apart_by_property(root, left, right);
}

}  // namespace

bool exclude_each_other(const Json& root, const Json& options) {
  for (std::size_t i = 0; i < options.size(); ++i)
    for (std::size_t j = i + 1; j < options.size(); ++j)
      if (!exclude(root, options[i], options[j], /*look_into_objects=*/true)) return false;
  return true;
}

}  // namespace minisgl
