// Filters of sequences: order, grouping, aggregates.

#include <algorithm>

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_filters.h"
#include "tokenizer/jinja_objects.h"
#include "tokenizer/jinja_ops.h"
#include "tokenizer/jinja_repr.h"
#include "tokenizer/jinja_text.h"

namespace minisgl::jinja {
namespace {

Value generator(std::vector<Value> items) {
  return Value::object(std::make_shared<Generator>(std::move(items)));
}

Value length_filter(Context&, const Value& v, const Arguments& args) {
  const Bound bound("length", args, {});
  const auto n = length(v);
  if (!n) throw TemplateError("object of type '" + std::string(type_name(v)) + "' has no len()");
  return Value::integer(static_cast<Int>(*n));
}

Value list_filter(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("list", args, {});
  return Value::list(iterate(ctx, v)->items());
}

Value first(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("first", args, {});
  const Value nothing = Value::undefined("No first item, sequence was empty.");
  if (auto* g = v.object_as<Generator>()) return g->next().value_or(nothing);
  if (v.is_string()) return v.as_string().empty() ? nothing : get_item(ctx, v, Value::integer(0));
  const ListRef items = iterate(ctx, v);
  return items->size() == 0 ? nothing : items->items().front();
}

// reversed(v) must be possible: not for generators.
ListRef reversible(Context& ctx, const Value& v) {
  if (v.object_as<Generator>() != nullptr || !is_iterable(v))
    throw TemplateError("'" + std::string(type_name(v)) + "' object is not reversible");
  return iterate(ctx, v);
}

Value last(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("last", args, {});
  const Value nothing = Value::undefined("No last item, sequence was empty.");
  if (v.is_string()) return v.as_string().empty() ? nothing : get_item(ctx, v, Value::integer(-1));
  const ListRef items = reversible(ctx, v);
  return items->size() == 0 ? nothing : items->items().back();
}

Value reverse(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("reverse", args, {});
  if (v.is_string()) return Value::string(reversed(v.as_string()));
  if (!is_iterable(v)) throw TemplateError("argument must be iterable");
  const ListRef items = iterate(ctx, v);
  ctx.charge(static_cast<std::int64_t>(items->size()));
  return generator({items->items().rbegin(), items->items().rend()});
}

// Items with what they are sorted by.
struct Keyed {
  Value key;
  Value item;
};

// Stable, as Python's sorted(): equal items keep their order also when reversed.
void sort_keyed(Context& ctx, std::vector<Keyed>& items, bool reverse) {
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    ctx.charge(1);
    return reverse ? less(b.key, a.key) : less(a.key, b.key);
  });
}

// What `attribute` gives, in lower case unless `case_sensitive`.
Value key_of(Context& ctx, const AttributePath& path, const Value& item, bool case_sensitive) {
  Value key = path(ctx, item);
  return case_sensitive ? key : ignore_case(ctx, key);
}

Value sort(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("sort", args, {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = bound.truth(1, false);
  std::vector<AttributePath> paths;
  const Value& attribute = bound.at(2);
  if (attribute.is_string()) {
    for (const Str& name : split(attribute.as_string(), ",", -1, false))
      paths.emplace_back(Value::string(name));
  } else {
    paths.emplace_back(attribute);
  }
  std::vector<Keyed> items;
  const ListRef all = iterate(ctx, v);
  for (const Value& item : all->items()) {
    std::vector<Value> keys;
    for (const AttributePath& path : paths) keys.push_back(key_of(ctx, path, item, case_sensitive));
    // A list even of one key: lists are first searched for a difference, so that equal keys need no
    // order among themselves.
    items.push_back({Value::list(std::move(keys)), item});
  }
  sort_keyed(ctx, items, bound.truth(0, false));
  std::vector<Value> out;
  for (Keyed& k : items) out.push_back(std::move(k.item));
  return Value::list(std::move(out));
}

Value dictsort(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("dictsort", args, {"case_sensitive", "by", "reverse"});
  const std::string by = bound.has(1) ? bound.string(1).text() : "key";
  if (by != "key" && by != "value")
    throw TemplateError("You can only sort by either \"key\" or \"value\"");
  require_defined(v);
  if (!v.is(Kind::kDict))
    throw TemplateError("'" + std::string(type_name(v)) + "' object has no attribute 'items'");
  std::vector<Keyed> items;
  for (const auto& [key, value] : v.as_dict().entries()) {
    const Value& sorted_by = by == "key" ? key : value;
    items.push_back({bound.truth(0, false) ? sorted_by : ignore_case(ctx, sorted_by),
                     Value::tuple({key, value})});
  }
  sort_keyed(ctx, items, bound.truth(2, false));
  std::vector<Value> out;
  for (Keyed& k : items) out.push_back(std::move(k.item));
  return Value::list(std::move(out));
}

Value unique(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("unique", args, {"case_sensitive", "attribute"});
  const AttributePath path(bound.at(1));
  Dict seen;
  std::vector<Value> out;
  const ListRef all = iterate(ctx, v);
  for (const Value& item : all->items()) {
    Value key = key_of(ctx, path, item, bound.truth(0, false));
    if (seen.find(key) != nullptr) continue;
    seen.set(std::move(key), {});
    out.push_back(item);
  }
  return generator(std::move(out));
}

template <bool kMax>
Value extreme(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound(kMax ? "max" : "min", args, {"case_sensitive", "attribute"});
  const AttributePath path(bound.at(1));
  const ListRef items = iterate(ctx, v);
  if (items->size() == 0) return Value::undefined("No aggregated item, sequence was empty.");
  const Value* best = nullptr;
  Value best_key;
  for (const Value& item : items->items()) {
    Value key = key_of(ctx, path, item, bound.truth(0, false));
    if (best != nullptr && !(kMax ? less(best_key, key, ">", true) : less(key, best_key))) continue;
    best = &item;
    best_key = std::move(key);
  }
  return *best;
}

Value sum(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("sum", args, {"attribute", "start"});
  const AttributePath path(bound.at(0));
  Value total = bound.get(1, Value::integer(0));
  if (total.is_string()) throw TemplateError("sum() can't sum strings [use ''.join(seq) instead]");
  const ListRef all = iterate(ctx, v);
  for (const Value& item : all->items())
    total = arithmetic(ctx, Arithmetic::kAdd, total, path(ctx, item));
  return total;
}

Value join_filter(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("join", args, {"d", "attribute"});
  const AttributePath path(bound.at(1));
  Str separator = bound.has(0) ? to_str(ctx, bound.at(0)) : Str();
  std::vector<Str> pieces;
  bool any_safe = separator.safe();
  const ListRef all = iterate(ctx, v);
  for (const Value& item : all->items()) {
    pieces.push_back(to_str(ctx, path(ctx, item)));
    ctx.charge_bytes(static_cast<double>(pieces.back().size() + separator.size()));
    any_safe = any_safe || pieces.back().safe();
  }
  if (!ctx.autoescape()) {
    separator = separator.with_safe(false);
  } else if (any_safe) {
    separator = escape_html(separator);
    for (Str& piece : pieces) piece = escape_html(piece);
  }
  return Value::string(join(separator, pieces));
}

Value batch(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("batch", args, {"linecount", "fill_with"}, 1);
  const std::int64_t size = bound.integer(0, 1);
  std::vector<Value> rows;
  std::vector<Value> row;
  const ListRef all = iterate(ctx, v);
  for (const Value& item : all->items()) {
    if (static_cast<std::int64_t>(row.size()) == size) {
      rows.push_back(Value::list(std::move(row)));
      row = {};
    }
    row.push_back(item);
  }
  if (!row.empty()) {
    const auto missing = size - static_cast<std::int64_t>(row.size());
    if (!bound.none_or_absent(1) && missing > 0) {
      ctx.charge(missing);
      row.insert(row.end(), static_cast<std::size_t>(missing), bound.at(1));
    }
    rows.push_back(Value::list(std::move(row)));
  }
  return generator(std::move(rows));
}

Value slice(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("slice", args, {"slices", "fill_with"}, 1);
  const std::int64_t slices = bound.integer(0, 1);
  if (slices == 0) throw TemplateError("integer division or modulo by zero");
  const ListRef items = iterate(ctx, v);
  ctx.charge(std::max<std::int64_t>(0, slices));
  const auto n = static_cast<std::int64_t>(items->size());
  std::vector<Value> out;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < slices; ++i) {
    const bool longer = i < n % slices;
    const std::int64_t end = begin + n / slices + (longer ? 1 : 0);
    std::vector<Value> part(items->items().begin() + begin, items->items().begin() + end);
    if (!bound.none_or_absent(1) && !longer) part.push_back(bound.at(1));
    out.push_back(Value::list(std::move(part)));
    begin = end;
  }
  return generator(std::move(out));
}

Value groupby(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  const AttributePath path(bound.at(0), bound.at(1));
  std::vector<Keyed> items;
  const ListRef all = iterate(ctx, v);
  for (const Value& item : all->items())
    items.push_back({key_of(ctx, path, item, bound.truth(2, false)), item});
  sort_keyed(ctx, items, false);
  std::vector<Value> groups;
  for (std::size_t i = 0; i < items.size();) {
    const std::size_t begin = i;
    std::vector<Value> members;
    for (; i < items.size() && equal(items[i].key, items[begin].key); ++i)
      members.push_back(items[i].item);
    // Named as the first member spells it.
    std::vector<Value> group{path(ctx, members[0]), Value::list(std::move(members))};
    groups.push_back(Value::of(std::make_shared<const List>(std::move(group), List::Type::kGroup)));
  }
  return Value::list(std::move(groups));
}

Value items_filter(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("items", args, {});
  if (v.is_undefined()) return generator({});
  if (!v.is(Kind::kDict)) throw TemplateError("Can only get item pairs from a mapping.");
  DictView view(v.dict_ref(), DictView::Part::kItems);
  return generator(*view.items(ctx));
}

Value random(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("random", args, {});
  const ListRef items = iterate(ctx, v);
  if (items->size() == 0) return Value::undefined("No random item, sequence was empty.");
  return items->items()[static_cast<std::size_t>(ctx.next_random() % items->size())];
}

constexpr MethodEntry kFilters[] = {
    {"batch", batch},
    {"count", length_filter},
    {"dictsort", dictsort},
    {"first", first},
    {"groupby", groupby},
    {"items", items_filter},
    {"join", join_filter},
    {"last", last},
    {"length", length_filter},
    {"list", list_filter},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"random", random},
    {"reverse", reverse},
    {"slice", slice},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

std::span<const MethodEntry> sequence_filters() { return kFilters; }

}  // namespace minisgl::jinja
