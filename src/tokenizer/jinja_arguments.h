// Matches the arguments of a call to the parameters of a function.

#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "tokenizer/jinja_context.h"

namespace minisgl::jinja {

/// The arguments of one call, by position of the parameter: of `names` the first `required` must be
/// given. The constructor throws TemplateError, worded as Python does, for a surplus, unknown,
/// repeated or missing argument.
class Bound {
 public:
  Bound(std::string_view function, const Arguments& args,
        std::initializer_list<std::string_view> names, std::size_t required = 0);

  bool has(std::size_t i) const { return values_[i] != nullptr; }
  /// The argument, or None.
  const Value& at(std::size_t i) const;
  const Value& get(std::size_t i, const Value& otherwise) const {
    return values_[i] ? *values_[i] : otherwise;
  }
  /// As Python's truth.
  bool truth(std::size_t i, bool otherwise) const {
    return values_[i] ? truthy(*values_[i]) : otherwise;
  }
  /// An integer of 62 bits; throws TemplateError for anything else. None counts as not given.
  std::int64_t integer(std::size_t i, std::int64_t otherwise) const;
  /// A string; throws TemplateError for anything else.
  const Str& string(std::size_t i) const;
  bool none_or_absent(std::size_t i) const { return !values_[i] || values_[i]->is_none(); }

 private:
  std::string_view function_;
  std::vector<const Value*> values_;
};

/// `v` as an index: an integer clipped to 62 bits. Throws TemplateError for other types.
std::int64_t to_index(const Value& v);

}  // namespace minisgl::jinja
