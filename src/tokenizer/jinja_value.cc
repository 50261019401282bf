#include "tokenizer/jinja_value.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "tokenizer/jinja_context.h"

namespace minisgl::jinja {
namespace {

using Json = nlohmann::ordered_json;

// Up to this many entries a dict is searched from end to end, which is faster than hashing.
constexpr std::size_t kLinear = 8;

int checked_depth(int depth) {
  if (depth > kMaxNesting)
    throw TemplateError("values are nested deeper than " + std::to_string(kMaxNesting) + " levels");
  return depth;
}

Value from_json(const Json& json, bool marked, int depth) {
  checked_depth(depth);
  switch (json.type()) {
    case Json::value_t::boolean: return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer: return Value::integer(json.get<std::int64_t>());
    case Json::value_t::number_unsigned: return Value::integer(json.get<std::uint64_t>());
    case Json::value_t::number_float: return Value::real(json.get<double>());
    case Json::value_t::string:
      return Value::string(Str(json.get_ref<const std::string&>(), marked));
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(from_json(item, marked, depth + 1));
      return Value::list(std::move(items));
    }
    case Json::value_t::object: {
      Dict dict;
      for (const auto& [key, value] : json.items())
        dict.set(Value::string(Str(key, marked)), from_json(value, marked, depth + 1));
      return Value::dict(std::move(dict));
    }
    default: return Value::none();
  }
}

// Throws TemplateError for a list or dict, or a tuple that holds one.
void require_hashable(const Value& v) {
  if (!hashable(v)) hash(v);
}

// A text, by what comparing or hashing it takes.
void charge_text(const Str& s) {
  constexpr std::size_t kBytesPerOperation = 64;
  if (s.size() >= kBytesPerOperation) Context::charge_current(s.size() / kBytesPerOperation);
}

bool equal_strings(const Str& a, const Str& b) {
  if (a.size() != b.size()) return false;
  charge_text(a);
  return a.text() == b.text();
}

bool equal_lists(const List& a, const List& b) {
  Context::charge_current(std::min(a.size(), b.size()));
  return a.is_tuple() == b.is_tuple() &&
         std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), equal);
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  Context::charge_current(a.size());
  return std::all_of(a.entries().begin(), a.entries().end(), [&](const Dict::Entry& entry) {
    const Value* other = b.find(entry.first);
    return other != nullptr && equal(entry.second, *other);
  });
}

bool less_lists(const List& a, const List& b, std::string_view op, bool swapped) {
  const std::size_t common = std::min(a.size(), b.size());
  Context::charge_current(common);
  for (std::size_t i = 0; i < common; ++i) {
    if (!equal(a.items()[i], b.items()[i])) return less(a.items()[i], b.items()[i], op, swapped);
  }
  return a.size() < b.size();
}

std::size_t combine(std::size_t seed, std::size_t h) {
  return seed ^ (h + 0x9e3779b97f4a7c15ULL + (seed << 6) + (seed >> 2));
}

std::size_t hash_double(double d) {
  // Whole numbers hash as the integer that they equal.
  if (std::abs(d) < 1e18 && d == std::floor(d))
    return std::hash<std::int64_t>()(static_cast<std::int64_t>(d));
  return std::hash<double>()(d);
}

}  // namespace

Value Value::undefined(std::string message) {
  return Value(Data(std::make_shared<const UndefinedInfo>(UndefinedInfo{std::move(message)})));
}

Value Value::list(std::vector<Value> items) {
  return of(std::make_shared<const List>(std::move(items), List::Type::kList));
}

Value Value::tuple(std::vector<Value> items) {
  return of(std::make_shared<const List>(std::move(items), List::Type::kTuple));
}

Value Value::dict(Dict d) { return Value(Data(std::make_shared<const Dict>(std::move(d)))); }

const std::string& Value::undefined_message() const {
  return std::get<UndefinedRef>(data_)->message;
}

std::optional<Int> Value::to_integer() const {
  if (is(Kind::kInt)) return as_int();
  if (is(Kind::kBool)) return as_bool() ? 1 : 0;
  return std::nullopt;
}

std::optional<double> Value::to_double() const {
  if (is(Kind::kDouble)) return as_double();
  if (const auto i = to_integer()) return static_cast<double>(*i);
  return std::nullopt;
}

int Value::depth() const {
  switch (kind()) {
    case Kind::kList: return as_list().depth();
    case Kind::kDict: return as_dict().depth();
    case Kind::kObject: return as_object()->depth();
    default: return 0;
  }
}

bool Value::same_as(const Value& other) const {
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::kString:
      // Equal strings are often one object in Python, and templates that ask mean the text.
      return as_string().text() == other.as_string().text();
    case Kind::kList: return list_ref() == other.list_ref();
    case Kind::kDict: return dict_ref() == other.dict_ref();
    case Kind::kObject: return as_object() == other.as_object();
    default: return equal(*this, other);
  }
}

List::List(std::vector<Value> items, Type type) : items_(std::move(items)), type_(type) {
  int deepest = 0;
  for (const Value& v : items_) deepest = std::max(deepest, v.depth());
  depth_ = checked_depth(deepest + 1);
}

std::optional<std::size_t> Dict::position(const Value& key) const {
  if (entries_.size() <= kLinear) {
    require_hashable(key);
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (equal(entries_[i].first, key)) return i;
    }
    return std::nullopt;
  }
  const auto [first, last] = index_.equal_range(hash(key));
  for (auto it = first; it != last; ++it) {
    if (equal(entries_[it->second].first, key)) return it->second;
  }
  return std::nullopt;
}

void Dict::set(Value key, Value value) {
  depth_ = checked_depth(std::max(depth_, value.depth() + 1));
  if (const auto i = position(key)) {
    entries_[*i].second = std::move(value);
    return;
  }
  entries_.emplace_back(std::move(key), std::move(value));
  if (entries_.size() == kLinear + 1) {
    for (std::size_t i = 0; i < entries_.size(); ++i) index_.emplace(hash(entries_[i].first), i);
  } else if (entries_.size() > kLinear) {
    index_.emplace(hash(entries_.back().first), entries_.size() - 1);
  }
}

const Value* Dict::find(const Value& key) const {
  const auto i = position(key);
  return i ? &entries_[*i].second : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  const auto matches = [&](const Value& v) { return v.is_string() && v.as_string().text() == key; };
  if (entries_.size() <= kLinear) {
    for (const Entry& entry : entries_) {
      if (matches(entry.first)) return &entry.second;
    }
    return nullptr;
  }
  const auto [first, last] = index_.equal_range(std::hash<std::string_view>()(key));
  for (auto it = first; it != last; ++it) {
    if (matches(entries_[it->second].first)) return &entries_[it->second].second;
  }
  return nullptr;
}

Value Object::call(Context&, const Arguments&) {
  throw TemplateError("'" + std::string(type_name()) + "' object is not callable");
}

std::optional<Value> Object::attribute(Context&, std::string_view) { return std::nullopt; }

void Object::repr(Context&, StrBuilder& out) {
  out.append("<" + std::string(type_name()) + " object>");
}

void Function::repr(Context&, StrBuilder& out) {
  out.append("<function " + std::string(name_) + ">");
}

void Method::repr(Context&, StrBuilder& out) {
  out.append("<method " + std::string(name_) + " of " + std::string(jinja::type_name(self_)) +
             " object>");
}

std::string_view type_name(const Value& v) {
  switch (v.kind()) {
    case Kind::kNone: return "NoneType";
    case Kind::kUndefined: return "Undefined";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int";
    case Kind::kDouble: return "float";
    case Kind::kString: return v.as_string().safe() ? "Markup" : "str";
    case Kind::kList: return v.as_list().is_tuple() ? "tuple" : "list";
    case Kind::kDict: return "dict";
    case Kind::kObject: return v.as_object()->type_name();
  }
  return "object";
}

bool truthy(const Value& v) {
  switch (v.kind()) {
    case Kind::kNone:
    case Kind::kUndefined: return false;
    case Kind::kBool: return v.as_bool();
    case Kind::kInt: return v.as_int() != 0;
    case Kind::kDouble: return v.as_double() != 0;
    case Kind::kString: return !v.as_string().empty();
    case Kind::kList: return v.as_list().size() != 0;
    case Kind::kDict: return v.as_dict().size() != 0;
    case Kind::kObject: return v.as_object()->length().value_or(1) != 0;
  }
  return true;
}

bool equal(const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) return equal_strings(a.as_string(), b.as_string());
  const auto i = a.to_integer();
  const auto j = b.to_integer();
  if (i && j) return *i == *j;
  const auto x = a.to_double();
  const auto y = b.to_double();
  if (x && y) return *x == *y;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kList: return a.list_ref() == b.list_ref() || equal_lists(a.as_list(), b.as_list());
    case Kind::kDict: return a.dict_ref() == b.dict_ref() || equal_dicts(a.as_dict(), b.as_dict());
    case Kind::kObject: return a.as_object() == b.as_object();
    default: return true;  // None, undefined
  }
}

bool less(const Value& a, const Value& b, std::string_view op, bool swapped) {
  if (a.is_string() && b.is_string()) {
    charge_text(a.as_string());
    return a.as_string().text() < b.as_string().text();
  }
  const auto i = a.to_integer();
  const auto j = b.to_integer();
  if (i && j) return *i < *j;
  const auto x = a.to_double();
  const auto y = b.to_double();
  if (x && y) return *x < *y;
  require_defined(a);
  require_defined(b);
  if (a.is(Kind::kList) && b.is(Kind::kList) && a.as_list().is_tuple() == b.as_list().is_tuple())
    return less_lists(a.as_list(), b.as_list(), op, swapped);
  throw TemplateError("'" + std::string(op) + "' not supported between instances of '" +
                      std::string(type_name(swapped ? b : a)) + "' and '" +
                      std::string(type_name(swapped ? a : b)) + "'");
}

bool hashable(const Value& v) {
  if (v.is(Kind::kList)) {
    const List& list = v.as_list();
    Context::charge_current(list.is_tuple() ? list.size() : 0);
    return list.is_tuple() && std::all_of(list.items().begin(), list.items().end(), hashable);
  }
  return !v.is(Kind::kDict);
}

std::size_t hash(const Value& v) {
  switch (v.kind()) {
    case Kind::kString:
      charge_text(v.as_string());
      return std::hash<std::string_view>()(v.as_string().text());
    case Kind::kBool:
    case Kind::kInt: {
      const Int i = *v.to_integer();
      constexpr Int kLimit = 1'000'000'000'000'000'000;  // as in hash_double()
      return -kLimit < i && i < kLimit ? std::hash<std::int64_t>()(static_cast<std::int64_t>(i))
                                       : hash_double(static_cast<double>(i));
    }
    case Kind::kDouble: return hash_double(v.as_double());
    case Kind::kList: {
      if (!v.as_list().is_tuple()) break;
      Context::charge_current(v.as_list().size());
      std::size_t seed = v.as_list().size();
      for (const Value& item : v.as_list().items()) seed = combine(seed, hash(item));
      return seed;
    }
    case Kind::kObject: return std::hash<const void*>()(v.as_object().get());
    case Kind::kDict: break;
    default: return static_cast<std::size_t>(v.kind());
  }
  throw TemplateError("unhashable type: '" + std::string(type_name(v)) + "'");
}

Value from_json(const nlohmann::ordered_json& json, bool marked) {
  return from_json(json, marked, 0);
}

void require_defined(const Value& v) {
  if (v.is_undefined()) throw TemplateError(v.undefined_message());
}

}  // namespace minisgl::jinja
