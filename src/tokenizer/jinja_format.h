// Python's two ways to format: "%s" % value and "{}".format(value).

#pragma once

#include "tokenizer/jinja_context.h"

namespace minisgl::jinja {

/// format % args: a tuple gives several values, a dict those of %(name)s, anything else is one.
Str format_percent(Context& ctx, const Str& format, const Value& args);

/// format.format(*args): {}, {0}, {name.attribute[item]!r:>10.2f}.
Str format_braces(Context& ctx, const Str& format, const Arguments& args);

/// format(value, spec) of Python's mini-language for strings, integers and floats.
Str format_value(Context& ctx, const Value& value, std::string_view spec);

/// A float as printf's `%.{precision}{type}` has it, type one of e E f F g G; with "inf" and "nan"
/// in the letter case of `type`.
std::string format_double(double d, char type, int precision, bool alternate);

}  // namespace minisgl::jinja
