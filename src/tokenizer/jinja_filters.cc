#include "tokenizer/jinja_filters.h"

#include <algorithm>
#include <unordered_map>

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_ops.h"
#include "tokenizer/jinja_text.h"

namespace minisgl::jinja {

FilterBody find_filter(std::string_view name) {
  static const auto kTable = [] {
    std::unordered_map<std::string_view, FilterBody> table;
    for (const auto part :
         {text_filters(), sequence_filters(), selection_filters(), scalar_filters()})
      for (const MethodEntry& entry : part) table.emplace(entry.name, entry.body);
    return table;
  }();
  const auto it = kTable.find(name);
  return it == kTable.end() ? nullptr : it->second;
}

FilterBody require_filter(std::string_view name) {
  const FilterBody body = find_filter(name);
  if (body == nullptr) throw TemplateError("No filter named '" + std::string(name) + "'.");
  return body;
}

AttributePath::AttributePath(const Value& attribute, Value fallback)
    : fallback_(std::move(fallback)) {
  if (attribute.is_none()) return;
  if (!attribute.is_string()) {
    steps_.push_back(attribute);
    return;
  }
  for (const Str& step : split(attribute.as_string(), ".", -1, false)) {
    const bool number = !step.empty() && step.size() < 18 &&
                        step.text().find_first_not_of("0123456789") == std::string::npos;
    steps_.push_back(number ? Value::integer(std::stoll(step.text())) : Value::string(step));
  }
}

Value AttributePath::operator()(Context& ctx, const Value& item) const {
  ctx.charge(1);
  Value v = item;
  for (const Value& step : steps_) {
    v = get_item(ctx, v, step);
    if (v.is_undefined() && !fallback_.is_none()) v = fallback_;
  }
  return v;
}

Value ignore_case(Context& ctx, const Value& v) {
  if (!v.is_string()) return v;
  ctx.charge_bytes(static_cast<double>(v.as_string().size()));
  return Value::string(lower(v.as_string()));
}

}  // namespace minisgl::jinja
