// The methods of strings, lists, dicts and numbers.

#pragma once

#include <string_view>

#include "tokenizer/jinja_value.h"

namespace minisgl::jinja {

struct MethodEntry {
  std::string_view name;
  Method::Body body;
};

/// The method `name` of the type of `v`, or null.
const MethodEntry* find_method(const Value& v, std::string_view name);

/// Whether Python's type has an attribute `name` that the sandbox of transformers forbids: methods
/// that change a list or a dict, and names with two underscores.
bool is_forbidden(const Value& v, std::string_view name);

}  // namespace minisgl::jinja
