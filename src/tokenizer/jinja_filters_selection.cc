// Filters that apply other filters and tests to each item: map, select, reject, ...

#include <algorithm>

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_filters.h"
#include "tokenizer/jinja_objects.h"
#include "tokenizer/jinja_ops.h"
#include "tokenizer/jinja_tests.h"

namespace minisgl::jinja {
namespace {

// The arguments after the first `used` positional ones.
Arguments rest_of(const Arguments& args, std::size_t used) {
  Arguments rest;
  rest.positional.assign(args.positional.begin() + static_cast<std::ptrdiff_t>(used),
                         args.positional.end());
  rest.keywords = args.keywords;
  return rest;
}

const std::string& name_at(const Arguments& args, std::size_t i, std::string_view what) {
  if (!args.positional[i].is_string())
    throw TemplateError("the name of a " + std::string(what) + " must be a string, not " +
                        std::string(type_name(args.positional[i])));
  return args.positional[i].as_string().text();
}

Value generator(std::vector<Value> items) {
  return Value::object(std::make_shared<Generator>(std::move(items)));
}

Value map(Context& ctx, const Value& v, const Arguments& args) {
  std::vector<Value> out;
  if (!truthy(v)) return generator(std::move(out));
  const ListRef items = iterate(ctx, v);
  out.reserve(items->size());
  if (!args.positional.empty()) {
    const FilterBody body = require_filter(name_at(args, 0, "filter"));
    const Arguments rest = rest_of(args, 1);
    for (const Value& item : items->items()) {
      const Context::Nesting nesting(ctx);
      ctx.charge(1);
      out.push_back(body(ctx, item, rest));
    }
    return generator(std::move(out));
  }
  Value attribute;
  Value fallback;
  for (const auto& [name, value] : args.keywords) {
    if (name == "attribute") {
      attribute = value;
    } else if (name == "default") {
      fallback = value;
    } else {
      throw TemplateError("Unexpected keyword argument '" + name + "'");
    }
  }
  if (attribute.is_none()) throw TemplateError("map requires a filter argument");
  const AttributePath path(attribute, fallback);
  for (const Value& item : items->items()) out.push_back(path(ctx, item));
  return generator(std::move(out));
}

// select, reject, selectattr, rejectattr: keeps the items for which the test (truth when there is
// none) of the item, or of its attribute, gives `kKeep`.
template <bool kAttribute, bool kKeep>
Value select(Context& ctx, const Value& v, const Arguments& args) {
  std::vector<Value> out;
  if (!truthy(v)) return generator(std::move(out));
  constexpr std::size_t kTestAt = kAttribute ? 1 : 0;
  if (args.positional.size() < kTestAt) throw TemplateError("Missing parameter for attribute name");
  const AttributePath path(kAttribute ? args.positional[0] : Value());
  const bool has_test = args.positional.size() > kTestAt;
  const TestBody test = has_test ? require_test(name_at(args, kTestAt, "test")) : nullptr;
  const Arguments rest = has_test ? rest_of(args, kTestAt + 1) : Arguments{};
  const ListRef all = iterate(ctx, v);
  for (const Value& item : all->items()) {
    const Value value = path(ctx, item);
    if ((has_test ? test(ctx, value, rest) : truthy(value)) == kKeep) out.push_back(item);
  }
  return generator(std::move(out));
}

constexpr MethodEntry kFilters[] = {
    {"map", map},
    {"reject", select<false, false>},
    {"rejectattr", select<true, false>},
    {"select", select<false, true>},
    {"selectattr", select<true, true>},
};

}  // namespace

std::span<const MethodEntry> selection_filters() { return kFilters; }

}  // namespace minisgl::jinja
