// Reading JSON with simdjson, whose errors become Error with the place that is at fault.

#pragma once

#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>

#include "formats/file_kind.h"
#include "minisgl/error.h"

namespace minisgl::json {

using Element = simdjson::dom::element;

/// The value of a member; nullopt when it is absent or null, or `object` is no object.
inline std::optional<Element> find(Element object, std::string_view key) {
  Element value;
  if (object[key].get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return value;
}

/// Throws Error "`where`: ..." when it is absent.
inline Element get(Element object, std::string_view key, std::string_view where) {
  if (const auto value = find(object, key)) return *value;
  throw Error(std::string(where) + ": " + in_quotes(key) + " is missing");
}

/// Throws Error naming the key when the value is of another type.
template <class T>
T as(Element value, std::string_view key, std::string_view where) {
  T result{};
  if (value.get(result) != simdjson::SUCCESS)
    throw Error(std::string(where) + ": " + in_quotes(key) + " has an unexpected type");
  return result;
}

template <class T>
T get(Element object, std::string_view key, std::string_view where) {
  return as<T>(get(object, key, where), key, where);
}

template <class T>
std::optional<T> find(Element object, std::string_view key, std::string_view where) {
  const auto value = find(object, key);
  if (!value) return std::nullopt;
  return as<T>(*value, key, where);
}

}  // namespace minisgl::json
