#include "tokenizer/jinja_ops.h"

#include <algorithm>
#include <cmath>

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_format.h"
#include "tokenizer/jinja_methods.h"
#include "tokenizer/jinja_objects.h"
#include "tokenizer/jinja_repr.h"
#include "tokenizer/jinja_text.h"

namespace minisgl::jinja {
namespace {

// As an undefined value names what it was looked up in.
std::string owner_name(const Value& v) {
  return v.is_none() ? "None" : std::string(type_name(v)) + " object";
}

Value no_attribute(const Value& v, std::string_view name) {
  return Value::undefined("'" + owner_name(v) + "' has no attribute '" + std::string(name) + "'");
}

Value forbidden(const Value& v, std::string_view name) {
  return Value::undefined("access to attribute '" + std::string(name) + "' of '" +
                          std::string(type_name(v)) + "' object is unsafe.");
}

// The item itself; nothing when there is none, or when `v` has no items.
std::optional<Value> find_item(const Value& v, const Value& key) {
  if (v.is(Kind::kDict)) {
    if (!hashable(key)) return std::nullopt;
    const Value* item = v.as_dict().find(key);
    return item ? std::optional(*item) : std::nullopt;
  }
  const auto* range = v.object_as<Range>();
  if (!v.is(Kind::kList) && !v.is_string() && range == nullptr) return std::nullopt;
  const auto index = key.to_integer();
  if (!index) return std::nullopt;
  const Int n = static_cast<Int>(*length(v));
  const Int i = *index < 0 ? *index + n : *index;
  if (i < 0 || i >= n) return std::nullopt;
  const auto at = static_cast<std::size_t>(i);
  if (range != nullptr) return range->at(at);
  if (v.is(Kind::kList)) return v.as_list().items()[at];
  const Str& s = v.as_string();
  const std::size_t begin = s.offset_of(at);
  return Value::string(s.slice(begin, char_at(s.text(), begin).end));
}

std::optional<std::int64_t> bound_of(const Value& v) {
  if (v.is_none()) return std::nullopt;
  require_defined(v);
  if (!v.to_integer())
    throw TemplateError("slice indices must be integers or None or have an __index__ method");
  return to_index(v);
}

}  // namespace

bool compare(Context& ctx, Comparison op, const Value& a, const Value& b) {
  switch (op) {
    case Comparison::kEq: return equal(a, b);
    case Comparison::kNe: return !equal(a, b);
    case Comparison::kLt: return less(a, b, "<");
    case Comparison::kGt: return less(b, a, ">", /*swapped=*/true);
    case Comparison::kLe: return less(a, b, "<=") || equal(a, b);
    case Comparison::kGe: return less(b, a, ">=", /*swapped=*/true) || equal(a, b);
    case Comparison::kIn: return contains(ctx, a, b);
    case Comparison::kNotIn: return !contains(ctx, a, b);
  }
  return false;
}

bool contains(Context& ctx, const Value& item, const Value& container) {
  if (container.is_string()) {
    require_defined(item);
    if (!item.is_string())
      throw TemplateError("'in <string>' requires string as left operand, not " +
                          std::string(type_name(item)));
    ctx.charge_bytes(static_cast<double>(container.as_string().size()));
    ctx.charge_search(container.as_string().size(), item.as_string().size());
    return container.as_string().text().find(item.as_string().text()) != std::string::npos;
  }
  if (container.is(Kind::kDict)) return container.as_dict().find(item) != nullptr;
  const auto items = try_iterate(ctx, container);
  if (!items)
    throw TemplateError("argument of type '" + std::string(type_name(container)) +
                        "' is not iterable");
  const std::vector<Value>& all = (*items)->items();
  ctx.charge(static_cast<std::int64_t>(all.size()));
  return std::any_of(all.begin(), all.end(), [&](const Value& v) { return equal(v, item); });
}

std::optional<ListRef> try_iterate(Context& ctx, const Value& v) {
  std::vector<Value> items;
  switch (v.kind()) {
    case Kind::kList: return v.list_ref();
    case Kind::kUndefined: break;
    case Kind::kString: {
      const Str& s = v.as_string();
      ctx.charge(static_cast<std::int64_t>(s.length()));
      items.reserve(s.length());
      for_each_char(s.text(), [&](const Char& c) {
        items.push_back(Value::string(s.slice(c.begin, c.end)));
      });
      break;
    }
    case Kind::kDict:
      ctx.charge(static_cast<std::int64_t>(v.as_dict().size()));
      for (const auto& entry : v.as_dict().entries()) items.push_back(entry.first);
      break;
    case Kind::kObject: {
      auto all = v.as_object()->items(ctx);
      if (!all) return std::nullopt;
      items = std::move(*all);
      break;
    }
    default: return std::nullopt;
  }
  return std::make_shared<const List>(std::move(items), List::Type::kList);
}

ListRef iterate(Context& ctx, const Value& v) {
  auto items = try_iterate(ctx, v);
  if (!items) throw TemplateError("'" + std::string(type_name(v)) + "' object is not iterable");
  return std::move(*items);
}

bool is_iterable(const Value& v) {
  if (!v.is(Kind::kObject))
    return v.is_string() || v.is(Kind::kList) || v.is(Kind::kDict) || v.is_undefined();
  return v.as_object()->length().has_value() || v.object_as<Generator>() != nullptr;
}

std::optional<std::size_t> length(const Value& v) {
  switch (v.kind()) {
    case Kind::kString: return v.as_string().length();
    case Kind::kList: return v.as_list().size();
    case Kind::kDict: return v.as_dict().size();
    case Kind::kUndefined: return 0;
    case Kind::kObject: return v.as_object()->length();
    default: return std::nullopt;
  }
}

std::optional<Value> find_attribute(Context& ctx, const Value& v, std::string_view name) {
  if (v.is(Kind::kObject)) return v.as_object()->attribute(ctx, name);
  if (v.is(Kind::kList) && v.as_list().type() == List::Type::kGroup) {
    if (name == "grouper") return v.as_list().items()[0];
    if (name == "list") return v.as_list().items()[1];
  }
  const MethodEntry* method = find_method(v, name);
  if (method == nullptr) return std::nullopt;
  return Value::object(std::make_shared<Method>(v, method->name, method->body));
}

Value get_attribute(Context& ctx, const Value& v, std::string_view name) {
  require_defined(v);
  if (auto attribute = find_attribute(ctx, v, name)) return std::move(*attribute);
  if (is_forbidden(v, name)) return forbidden(v, name);
  if (v.is(Kind::kDict)) {
    if (const Value* item = v.as_dict().find(name)) return *item;
  }
  return no_attribute(v, name);
}

Value get_item(Context& ctx, const Value& v, const Value& key) {
  require_defined(v);
  if (auto item = find_item(v, key)) return std::move(*item);
  if (!key.is_string())
    return Value::undefined(owner_name(v) + " has no element " + repr_text(ctx, key));
  const std::string& name = key.as_string().text();
  if (auto attribute = find_attribute(ctx, v, name)) return std::move(*attribute);
  return is_forbidden(v, name) ? forbidden(v, name) : no_attribute(v, name);
}

Value get_slice(Context& ctx, const Value& v, const Value& start, const Value& stop,
                const Value& step) {
  require_defined(v);
  const auto* of_range = v.object_as<Range>();
  if (v.is(Kind::kDict)) throw TemplateError("unhashable type: 'slice'");
  if (!v.is_string() && !v.is(Kind::kList) && of_range == nullptr)
    throw TemplateError("'" + std::string(type_name(v)) + "' object is not subscriptable");
  const std::int64_t stride = bound_of(step).value_or(1);
  if (stride == 0) throw TemplateError("slice step cannot be zero");
  const auto n = static_cast<std::int64_t>(*length(v));
  const SliceRange range = clip_slice(bound_of(start), bound_of(stop), stride, n);
  if (v.is_string()) {
    ctx.charge_bytes(static_cast<double>(v.as_string().size()));
    return Value::string(pick(v.as_string(), range.start, range.count, stride));
  }
  if (of_range != nullptr) return of_range->slice(range.start, range.stop, stride);
  const ListRef items = v.list_ref();
  ctx.charge(range.count);
  std::vector<Value> out;
  out.reserve(static_cast<std::size_t>(range.count));
  for (std::int64_t i = 0; i < range.count; ++i)
    out.push_back(items->items()[static_cast<std::size_t>(range.start + i * stride)]);
  return items->is_tuple() ? Value::tuple(std::move(out)) : Value::list(std::move(out));
}

Value call_value(Context& ctx, const Value& f, const Arguments& args) {
  require_defined(f);
  if (!f.is(Kind::kObject) || !f.as_object()->callable())
    throw TemplateError("'" + std::string(type_name(f)) + "' object is not callable");
  return f.as_object()->call(ctx, args);
}

}  // namespace minisgl::jinja
