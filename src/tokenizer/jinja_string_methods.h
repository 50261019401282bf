// The methods of strings, as templates call them.

#pragma once

#include <span>

#include "tokenizer/jinja_methods.h"
#include "tokenizer/jinja_text.h"

namespace minisgl::jinja {

std::span<const MethodEntry> string_methods();

/// replace(), its result counted against the limits first.
Str replace_charged(Context& ctx, const Str& s, const Str& old, const Str& with,
                    std::int64_t limit);

/// str.isupper(), str.islower(): some letter has that case and none the other.
bool is_all_upper(const Str& s);
bool is_all_lower(const Str& s);

}  // namespace minisgl::jinja
