// Values as text: Python's str() and repr(), and JSON. Marks of strings travel into the text.

#pragma once

#include <optional>
#include <string>

#include "tokenizer/jinja_context.h"

namespace minisgl::jinja {

/// Python's repr of a float: the shortest digits that read back; "1e+16" from 1e16 on, "inf", "nan"
std::string repr_double(double d);
/// Decimal digits of any 128-bit integer; also in base 2, 8, 16 (lower case).
std::string repr_int(Int i, unsigned base = 10);

/// Python's str(v): strings as they are, undefined as nothing.
Str to_str(Context& ctx, const Value& v);
void append_str(Context& ctx, const Value& v, StrBuilder& out);
/// Python's repr(v).
void append_repr(Context& ctx, const Value& v, StrBuilder& out);
/// Python's repr of a string.
void append_repr(const Str& s, StrBuilder& out);
/// repr(v) without marks, for messages.
std::string repr_text(Context& ctx, const Value& v);

/// As json.dumps takes them.
struct JsonOptions {
  bool ensure_ascii = false;
  std::optional<Str> indent;  ///< text of one level; without it all is one line
  Str item_separator{", "};
  Str key_separator{": "};
  bool sort_keys = false;
};

/// json.dumps(v). Throws TemplateError naming a type that JSON does not have.
Str to_json(Context& ctx, const Value& v, const JsonOptions& options);

}  // namespace minisgl::jinja
