// Operators of expressions: arithmetic, containment, attributes, items, slices, iteration.

#pragma once

#include <optional>
#include <string_view>

#include "tokenizer/jinja_context.h"

namespace minisgl::jinja {

enum class Arithmetic { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };

/// Python's operator on numbers, strings, lists and tuples (`%` formats a string). Throws
/// TemplateError for operands without that operator, for a division by zero, and for integers
/// beyond 128 bits.
Value arithmetic(Context& ctx, Arithmetic op, const Value& a, const Value& b);
Value negate(const Value& v);
/// Unary plus.
Value posit(const Value& v);

enum class Comparison { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };
bool compare(Context& ctx, Comparison op, const Value& a, const Value& b);

/// Python's `item in container`.
bool contains(Context& ctx, const Value& item, const Value& container);

/// The items of an iterable; a list or tuple gives itself. Throws TemplateError when `v` is not
/// iterable.
ListRef iterate(Context& ctx, const Value& v);
/// Nothing when `v` is not iterable.
std::optional<ListRef> try_iterate(Context& ctx, const Value& v);
bool is_iterable(const Value& v);

/// len(v); nothing when there is none.
std::optional<std::size_t> length(const Value& v);

/// v.name: the attribute (of which methods are ones), else the item, else undefined.
Value get_attribute(Context& ctx, const Value& v, std::string_view name);
/// The attribute alone, without the items of a dict; nothing when there is none.
std::optional<Value> find_attribute(Context& ctx, const Value& v, std::string_view name);
/// v[key]: the item, else the attribute, else undefined.
Value get_item(Context& ctx, const Value& v, const Value& key);
/// v[start:stop:step]; None stands for an absent bound.
Value get_slice(Context& ctx, const Value& v, const Value& start, const Value& stop,
                const Value& step);

/// Calls `f`; throws TemplateError when it is not callable.
Value call_value(Context& ctx, const Value& f, const Arguments& args);

}  // namespace minisgl::jinja
