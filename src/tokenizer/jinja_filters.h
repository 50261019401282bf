// The filters of expressions (`value | name(arguments)`): jinja2 3.1's, with transformers' tojson.

#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "tokenizer/jinja_methods.h"

namespace minisgl::jinja {

using FilterBody = Method::Body;

/// The filter of that name, or null.
FilterBody find_filter(std::string_view name);
/// Throws TemplateError naming the filter when there is none.
FilterBody require_filter(std::string_view name);

// The parts of the table, by what the filters are about.
std::span<const MethodEntry> text_filters();
std::span<const MethodEntry> sequence_filters();
std::span<const MethodEntry> selection_filters();
std::span<const MethodEntry> scalar_filters();

/// What the `attribute` argument of a filter looks up: "a.b.0", or an index. With `fallback`, an
/// undefined result becomes it.
class AttributePath {
 public:
  explicit AttributePath(const Value& attribute, Value fallback = {});
  Value operator()(Context& ctx, const Value& item) const;

 private:
  std::vector<Value> steps_;
  Value fallback_;
};

/// Strings in lower case, so that sorting ignores it; anything else as it is.
Value ignore_case(Context& ctx, const Value& v);

}  // namespace minisgl::jinja
