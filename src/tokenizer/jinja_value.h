// Values of templates: what Python objects are to jinja2.

#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "minisgl/error.h"
#include "tokenizer/jinja_string.h"

namespace minisgl::jinja {

/// Python's integers are unbounded; 128 bits hold every number that JSON or a template can sensibly
/// contain, and going beyond is an error.
__extension__ typedef __int128 Int;

class Context;

/// What is wrong with a template, or with rendering it. what() is the message alone; the line is
/// added by whoever shows it.
class TemplateError : public Error {
 public:
  explicit TemplateError(const std::string& message, int line = 0, bool raised = false)
      : Error(message), line_(line), raised_(raised) {}
  /// Line of the template, from 1; 0 while it is not known.
  int line() const { return line_; }
  /// The template itself refused, by raise_exception(): the message is for the user.
  bool raised() const { return raised_; }

 private:
  int line_;
  bool raised_;
};

/// What an undefined value says when it is used.
struct UndefinedInfo {
  std::string message;
};

class List;
class Dict;
class Object;
struct Arguments;
using ListRef = std::shared_ptr<const List>;
using DictRef = std::shared_ptr<const Dict>;
using ObjectRef = std::shared_ptr<Object>;

enum class Kind { kNone, kUndefined, kBool, kInt, kDouble, kString, kList, kDict, kObject };

/// Containers deeper than this are refused, so that recursion over a value is bounded.
inline constexpr int kMaxNesting = 200;

/// A value of a template; cheap to copy (strings and containers are shared and immutable).
/// A default-constructed one is None.
class Value {
 public:
  Value() = default;
  static Value none() { return {}; }
  /// `message` is the error of any use beyond printing, testing and iterating.
  static Value undefined(std::string message);
  static Value boolean(bool b) { return Value(Data(b)); }
  static Value integer(Int i) { return Value(Data(i)); }
  static Value real(double d) { return Value(Data(d)); }
  static Value string(Str s) { return Value(Data(std::make_shared<const Str>(std::move(s)))); }
  static Value string(std::string s) { return string(Str(std::move(s))); }
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value dict(Dict d);
  static Value object(ObjectRef o) { return Value(Data(std::move(o))); }
  static Value of(ListRef l) { return Value(Data(std::move(l))); }

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is(Kind k) const { return kind() == k; }
  bool is_none() const { return is(Kind::kNone); }
  bool is_undefined() const { return is(Kind::kUndefined); }
  bool is_string() const { return is(Kind::kString); }

  // Each of these needs the kind that it names.
  bool as_bool() const { return std::get<bool>(data_); }
  Int as_int() const { return std::get<Int>(data_); }
  double as_double() const { return std::get<double>(data_); }
  const Str& as_string() const { return *std::get<StrRef>(data_); }
  const List& as_list() const { return *std::get<ListRef>(data_); }
  const ListRef& list_ref() const { return std::get<ListRef>(data_); }
  const Dict& as_dict() const { return *std::get<DictRef>(data_); }
  const DictRef& dict_ref() const { return std::get<DictRef>(data_); }
  const ObjectRef& as_object() const { return std::get<ObjectRef>(data_); }
  const std::string& undefined_message() const;

  /// The object of class T, or null.
  template <class T>
  T* object_as() const {
    const ObjectRef* o = std::get_if<ObjectRef>(&data_);
    return o ? dynamic_cast<T*>(o->get()) : nullptr;
  }

  /// int and bool as an integer; nothing for other kinds.
  std::optional<Int> to_integer() const;
  /// int, bool and float as a double; nothing for other kinds.
  std::optional<double> to_double() const;

  /// How deep containers are nested: 0 for scalars.
  int depth() const;
  /// Python's `is`: the same object, or equal scalars of one kind.
  bool same_as(const Value& other) const;

 private:
  using UndefinedRef = std::shared_ptr<const UndefinedInfo>;
  using Data = std::variant<std::monostate, UndefinedRef, bool, Int, double, StrRef, ListRef,
                            DictRef, ObjectRef>;
  explicit Value(Data data) : data_(std::move(data)) {}

  Data data_;
};

/// Arguments of a call, in order.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;
};

/// A list or a tuple; immutable.
class List {
 public:
  /// kGroup is the tuple of groupby, which has the attributes `grouper` and `list`.
  enum class Type { kList, kTuple, kGroup };

  /// Throws TemplateError when nested too deeply.
  List(std::vector<Value> items, Type type);

  const std::vector<Value>& items() const { return items_; }
  std::size_t size() const { return items_.size(); }
  Type type() const { return type_; }
  bool is_tuple() const { return type_ != Type::kList; }
  int depth() const { return depth_; }

 private:
  std::vector<Value> items_;
  Type type_;
  int depth_;
};

/// A dict in order of insertion; filled first, then shared and immutable.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  /// An equal key keeps its place and its first spelling. Throws TemplateError for a key that
  /// cannot be hashed, or when nested too deeply.
  void set(Value key, Value value);
  void set(std::string key, Value value) { set(Value::string(std::move(key)), std::move(value)); }

  /// Null when absent. Throws TemplateError for a key that cannot be hashed.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;

  const std::vector<Entry>& entries() const { return entries_; }
  std::size_t size() const { return entries_.size(); }
  int depth() const { return depth_; }

 private:
  std::optional<std::size_t> position(const Value& key) const;

  std::vector<Entry> entries_;
  // Only once there are more than kLinear entries: hash -> position in entries_.
  std::unordered_multimap<std::size_t, std::size_t> index_;
  int depth_ = 1;
};

/// Everything else: functions, methods, macros, namespaces, loops, ranges, views, generators.
class Object : public std::enable_shared_from_this<Object> {
 public:
  virtual ~Object() = default;
  /// Python's name of the class.
  virtual std::string_view type_name() const = 0;
  virtual bool callable() const { return false; }
  virtual Value call(Context& ctx, const Arguments& args);
  /// Nothing when there is no such attribute.
  virtual std::optional<Value> attribute(Context& ctx, std::string_view name);
  /// Python's repr().
  virtual void repr(Context& ctx, StrBuilder& out);
  /// All items, for iterating; nothing when not iterable.
  virtual std::optional<std::vector<Value>> items(Context&) { return std::nullopt; }
  /// len(); nothing when there is none.
  virtual std::optional<std::size_t> length() const { return std::nullopt; }
  /// Whether it has both a length and items by number.
  virtual bool is_sequence() const { return false; }
  /// How deep the values that it holds are nested.
  virtual int depth() const { return 0; }
};

/// A function made of a plain function.
class Function final : public Object {
 public:
  using Body = Value (*)(Context&, const Arguments&);
  Function(std::string_view name, Body body) : name_(name), body_(body) {}
  std::string_view type_name() const override { return "function"; }
  bool callable() const override { return true; }
  Value call(Context& ctx, const Arguments& args) override { return body_(ctx, args); }
  void repr(Context& ctx, StrBuilder& out) override;

 private:
  std::string_view name_;  // of static storage
  Body body_;
};

/// A method of a string, a list, ...: the value and a plain function.
class Method final : public Object {
 public:
  using Body = Value (*)(Context&, const Value& self, const Arguments&);
  Method(Value self, std::string_view name, Body body)
      : self_(std::move(self)), name_(name), body_(body) {}
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  bool callable() const override { return true; }
  Value call(Context& ctx, const Arguments& args) override { return body_(ctx, self_, args); }
  void repr(Context& ctx, StrBuilder& out) override;
  int depth() const override { return self_.depth() + 1; }

 private:
  Value self_;
  std::string_view name_;  // of static storage
  Body body_;
};

/// Python's name of the value's type: "str", "int", "NoneType", ...
std::string_view type_name(const Value& v);

/// Python's truth of a value.
bool truthy(const Value& v);
/// Python's ==.
bool equal(const Value& a, const Value& b);
/// Python's a < b. Throws TemplateError naming `op` and the types when they have no order;
/// `swapped` says that the template wrote b first.
bool less(const Value& a, const Value& b, std::string_view op = "<", bool swapped = false);
/// Consistent with equal(): 1, 1.0 and True agree. Throws TemplateError for lists and dicts.
std::size_t hash(const Value& v);
/// Whether hash() works.
bool hashable(const Value& v);

/// Strings, keys included, are marked as user text when `marked` is set. Throws TemplateError when
/// nested deeper than kMaxNesting.
Value from_json(const nlohmann::ordered_json& json, bool marked);

/// Throws if `v` is undefined, as any real use of it does.
void require_defined(const Value& v);

}  // namespace minisgl::jinja
