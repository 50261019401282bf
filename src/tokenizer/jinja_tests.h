// The tests of expressions (`value is name(arguments)`): jinja2 3.1's.

#pragma once

#include <string_view>

#include "tokenizer/jinja_context.h"

namespace minisgl::jinja {

using TestBody = bool (*)(Context&, const Value&, const Arguments&);

/// The test of that name, or null.
TestBody find_test(std::string_view name);
/// Throws TemplateError naming the test when there is none.
TestBody require_test(std::string_view name);

}  // namespace minisgl::jinja
