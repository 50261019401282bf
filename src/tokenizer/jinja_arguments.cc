#include "tokenizer/jinja_arguments.h"

#include <algorithm>

namespace minisgl::jinja {

Bound::Bound(std::string_view function, const Arguments& args,
             std::initializer_list<std::string_view> names, std::size_t required)
    : function_(function), values_(names.size(), nullptr) {
  const std::string who(function);
  if (args.positional.size() > names.size())
    throw TemplateError(who + "() takes at most " + std::to_string(names.size()) +
                        " arguments but " + std::to_string(args.positional.size()) + " were given");
  for (std::size_t i = 0; i < args.positional.size(); ++i) values_[i] = &args.positional[i];
  for (const auto& [name, value] : args.keywords) {
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end())
      throw TemplateError(who + "() got an unexpected keyword argument '" + name + "'");
    const Value*& slot = values_[static_cast<std::size_t>(it - names.begin())];
    if (slot != nullptr)
      throw TemplateError(who + "() got multiple values for argument '" + name + "'");
    slot = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (values_[i] == nullptr)
      throw TemplateError(who + "() missing a required argument: '" +
                          std::string(names.begin()[i]) + "'");
  }
}

const Value& Bound::at(std::size_t i) const {
  static const Value kNone;
  return values_[i] ? *values_[i] : kNone;
}

std::int64_t Bound::integer(std::size_t i, std::int64_t otherwise) const {
  return none_or_absent(i) ? otherwise : to_index(*values_[i]);
}

const Str& Bound::string(std::size_t i) const {
  const Value& v = at(i);
  require_defined(v);
  if (!v.is_string())
    throw TemplateError(std::string(function_) + "() argument " + std::to_string(i + 1) +
                        " must be str, not " + std::string(type_name(v)));
  return v.as_string();
}

std::int64_t to_index(const Value& v) {
  require_defined(v);
  const auto i = v.to_integer();
  if (!i)
    throw TemplateError("'" + std::string(type_name(v)) +
                        "' object cannot be interpreted as an integer");
  constexpr Int kLimit = Int{1} << 62;
  return static_cast<std::int64_t>(std::clamp<Int>(*i, -kLimit, kLimit));
}

}  // namespace minisgl::jinja
