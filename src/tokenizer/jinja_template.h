// A parsed template, and rendering it.

#pragma once

#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/jinja_context.h"
#include "tokenizer/jinja_statements.h"
#include "tokenizer/marked_text.h"

namespace minisgl::jinja {

using Variables = std::vector<std::pair<std::string, Value>>;

/// A template in the dialect of transformers' chat templates: jinja2 3.1 with trim_blocks,
/// lstrip_blocks, loop controls, {% generation %}, the immutable sandbox, and with tojson,
/// raise_exception and strftime_now as transformers defines them.
///
/// Not supported, each with an error that names it: include, import, from, extends, the filter
/// urlize, lipsum(), character names ("\N{...}"), integers beyond 128 bits. Other differences to
/// jinja2: the variable `self` is undefined; pprint neither breaks lines nor sorts keys; what map,
/// select and the like give is computed at once.
///
/// Immutable once made: any thread may render it.
class Template {
 public:
  /// Parses. Throws TemplateError with the line.
  explicit Template(std::string_view source);

  /// The text, with the marks of the strings that went into it. `now` is what strftime_now() tells.
  /// Throws TemplateError with the line: what the template raises, what fails in it, or that it
  /// goes beyond the limits.
  MarkedText render(const Variables& variables, const std::tm& now,
                    const Limits& limits = {}) const;

 private:
  NameTable names_;
  Body body_;
};

}  // namespace minisgl::jinja
