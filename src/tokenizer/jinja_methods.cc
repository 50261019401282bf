#include "tokenizer/jinja_methods.h"

#include <algorithm>
#include <cmath>

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_objects.h"
#include "tokenizer/jinja_ops.h"
#include "tokenizer/jinja_repr.h"
#include "tokenizer/jinja_string_methods.h"

namespace minisgl::jinja {
namespace {

Value index_of(Context& ctx, const Value& self, const Arguments& args) {
  const Bound bound("index", args, {"value", "start", "stop"}, 1);
  const std::vector<Value>& items = self.as_list().items();
  ctx.charge(static_cast<std::int64_t>(items.size()));
  const auto n = static_cast<std::int64_t>(items.size());
  const SliceRange range = clip_slice(bound.integer(1, 0), bound.integer(2, n), 1, n);
  for (std::int64_t i = range.start; i < range.start + range.count; ++i) {
    if (equal(items[static_cast<std::size_t>(i)], bound.at(0))) return Value::integer(i);
  }
  throw TemplateError(self.as_list().is_tuple() ? "tuple.index(x): x not in tuple"
                                                : repr_text(ctx, bound.at(0)) + " is not in list");
}

Value count_of(Context& ctx, const Value& self, const Arguments& args) {
  const Bound bound("count", args, {"value"}, 1);
  const std::vector<Value>& items = self.as_list().items();
  ctx.charge(static_cast<std::int64_t>(items.size()));
  return Value::integer(std::count_if(items.begin(), items.end(),
                                      [&](const Value& v) { return equal(v, bound.at(0)); }));
}

Value copy_of(Context&, const Value& self, const Arguments& args) {
  const Bound bound("copy", args, {});
  return self;  // values do not change, so that one is as good as two
}

Value dict_get(Context&, const Value& self, const Arguments& args) {
  const Bound bound("get", args, {"key", "default"}, 1);
  const Value* found = self.as_dict().find(bound.at(0));
  return found ? *found : bound.at(1);
}

template <DictView::Part kPart>
Value dict_view(Context&, const Value& self, const Arguments& args) {
  const Bound bound("dict view", args, {});
  return Value::object(std::make_shared<DictView>(self.dict_ref(), kPart));
}

Value dict_fromkeys(Context& ctx, const Value&, const Arguments& args) {
  const Bound bound("fromkeys", args, {"iterable", "value"}, 1);
  Dict dict;
  const ListRef keys = iterate(ctx, bound.at(0));
  for (const Value& key : keys->items()) dict.set(key, bound.at(1));
  return Value::dict(std::move(dict));
}

Value bit_length(Context&, const Value& self, const Arguments& args) {
  const Bound bound("bit_length", args, {});
  const Int i = *self.to_integer();
  return Value::integer(i == 0 ? 0 : static_cast<Int>(repr_int(i < 0 ? -i : i, 2).size()));
}

Value is_integer(Context&, const Value& self, const Arguments& args) {
  const Bound bound("is_integer", args, {});
  const double d = self.as_double();
  return Value::boolean(std::isfinite(d) && d == std::floor(d));
}

constexpr MethodEntry kListMethods[] = {
    {"copy", copy_of}, {"count", count_of}, {"index", index_of}};
constexpr MethodEntry kTupleMethods[] = {{"count", count_of}, {"index", index_of}};
constexpr MethodEntry kDictMethods[] = {
    {"copy", copy_of},
    {"fromkeys", dict_fromkeys},
    {"get", dict_get},
    {"items", dict_view<DictView::Part::kItems>},
    {"keys", dict_view<DictView::Part::kKeys>},
    {"values", dict_view<DictView::Part::kValues>},
};
constexpr MethodEntry kIntMethods[] = {{"bit_length", bit_length}};
constexpr MethodEntry kDoubleMethods[] = {{"is_integer", is_integer}};

template <class Table>
const MethodEntry* search(const Table& table, std::string_view name) {
  const auto it = std::find_if(std::begin(table), std::end(table),
                               [&](const MethodEntry& entry) { return entry.name == name; });
  return it == std::end(table) ? nullptr : &*it;
}

}  // namespace

const MethodEntry* find_method(const Value& v, std::string_view name) {
  switch (v.kind()) {
    case Kind::kString: return search(string_methods(), name);
    case Kind::kList:
      return v.as_list().is_tuple() ? search(kTupleMethods, name) : search(kListMethods, name);
    case Kind::kDict: return search(kDictMethods, name);
    case Kind::kBool:
    case Kind::kInt: return search(kIntMethods, name);
    case Kind::kDouble: return search(kDoubleMethods, name);
    default: return nullptr;
  }
}

bool is_forbidden(const Value& v, std::string_view name) {
  constexpr std::string_view kListChanges[] = {"append", "clear",  "extend",  "insert",
                                               "pop",    "remove", "reverse", "sort"};
  constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
  // Of the names with underscores those that every object has, and those of containers.
  constexpr std::string_view kInternal[] = {
      "__class__", "__doc__",  "__eq__",     "__getattribute__", "__hash__",         "__init__",
      "__new__",   "__repr__", "__reduce__", "__setattr__",      "__subclasshook__", "__str__"};
  constexpr std::string_view kInternalOfContainers[] = {"__contains__", "__getitem__", "__iter__",
                                                        "__len__"};
  const auto has = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  if (v.is(Kind::kObject)) return has(kInternal);
  if (has(kInternal)) return true;
  if (v.is(Kind::kList))
    return has(kInternalOfContainers) || (!v.as_list().is_tuple() && has(kListChanges));
  if (v.is(Kind::kDict)) return has(kInternalOfContainers) || has(kDictChanges);
  return v.is_string() && has(kInternalOfContainers);
}

}  // namespace minisgl::jinja
