// The functions that every template has: range, dict, namespace, raise_exception, strftime_now, ...

#pragma once

#include <optional>
#include <string_view>

#include "tokenizer/jinja_value.h"

namespace minisgl::jinja {

/// The function of that name, or nothing.
std::optional<Value> find_builtin(std::string_view name);

}  // namespace minisgl::jinja
