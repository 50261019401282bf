// Expressions of a parsed template. Immutable: one template is rendered by many threads.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/jinja_filters.h"
#include "tokenizer/jinja_frame.h"
#include "tokenizer/jinja_ops.h"
#include "tokenizer/jinja_tests.h"

namespace minisgl::jinja {

class Expr {
 public:
  explicit Expr(int line) : line_(line) {}
  virtual ~Expr() = default;
  Expr(const Expr&) = delete;
  Expr& operator=(const Expr&) = delete;

  int line() const { return line_; }
  /// The value; counts one operation. A TemplateError leaves with the line of the innermost
  /// expression that failed.
  Value eval(Frame& frame) const;

 private:
  virtual Value compute(Frame& frame) const = 0;
  int line_;
};

using ExprPtr = std::unique_ptr<const Expr>;

/// (a, b, name=c, *d, **e)
struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
  ExprPtr more_positional;  ///< *d, or null
  ExprPtr more_keywords;    ///< **e, or null

  Arguments eval(Frame& frame) const;
};

/// `| name(arguments)`. A null body is a filter that does not exist, which matters only when it
/// is reached.
struct FilterCall {
  std::string name;
  FilterBody body = nullptr;
  CallArguments arguments;
  int line = 0;

  Value apply(Frame& frame, const Value& v) const;
};

class Constant final : public Expr {
 public:
  Constant(int line, Value value) : Expr(line), value_(std::move(value)) {}
  const Value& value() const { return value_; }

 private:
  Value compute(Frame&) const override { return value_; }
  Value value_;
};

class Name final : public Expr {
 public:
  /// `builtin` is its value where no variable of that name is set, if any.
  Name(int line, NameId id, std::string name, std::optional<Value> builtin)
      : Expr(line), id_(id), name_(std::move(name)), builtin_(std::move(builtin)) {}
  NameId id() const { return id_; }
  const std::string& name() const { return name_; }

 private:
  Value compute(Frame& frame) const override;
  NameId id_;
  std::string name_;
  std::optional<Value> builtin_;
};

/// [a, b] or (a, b)
class Sequence final : public Expr {
 public:
  Sequence(int line, std::vector<ExprPtr> items, bool tuple)
      : Expr(line), items_(std::move(items)), tuple_(tuple) {}
  bool is_tuple() const { return tuple_; }
  const std::vector<ExprPtr>& items() const { return items_; }

 private:
  Value compute(Frame& frame) const override;
  std::vector<ExprPtr> items_;
  bool tuple_;
};

class DictLiteral final : public Expr {
 public:
  DictLiteral(int line, std::vector<std::pair<ExprPtr, ExprPtr>> entries)
      : Expr(line), entries_(std::move(entries)) {}

 private:
  Value compute(Frame& frame) const override;
  std::vector<std::pair<ExprPtr, ExprPtr>> entries_;
};

/// a.name
class Attribute final : public Expr {
 public:
  Attribute(int line, ExprPtr object, std::string name)
      : Expr(line), object_(std::move(object)), name_(std::move(name)) {}

 private:
  Value compute(Frame& frame) const override;
  ExprPtr object_;
  std::string name_;
};

/// a[key]
class Item final : public Expr {
 public:
  Item(int line, ExprPtr object, ExprPtr key)
      : Expr(line), object_(std::move(object)), key_(std::move(key)) {}

 private:
  Value compute(Frame& frame) const override;
  ExprPtr object_;
  ExprPtr key_;
};

/// a[start:stop:step]; absent bounds are null.
class Slice final : public Expr {
 public:
  Slice(int line, ExprPtr object, ExprPtr start, ExprPtr stop, ExprPtr step)
      : Expr(line),
        object_(std::move(object)),
        start_(std::move(start)),
        stop_(std::move(stop)),
        step_(std::move(step)) {}

 private:
  Value compute(Frame& frame) const override;
  ExprPtr object_, start_, stop_, step_;
};

class Call final : public Expr {
 public:
  Call(int line, ExprPtr function, CallArguments arguments)
      : Expr(line), function_(std::move(function)), arguments_(std::move(arguments)) {}
  /// As eval(), with one more keyword argument, `caller`.
  Value eval_with_caller(Frame& frame, Value caller) const;

 private:
  Value compute(Frame& frame) const override;
  ExprPtr function_;
  CallArguments arguments_;
};

class Filter final : public Expr {
 public:
  Filter(int line, ExprPtr operand, FilterCall filter)
      : Expr(line), operand_(std::move(operand)), filter_(std::move(filter)) {}

 private:
  Value compute(Frame& frame) const override;
  ExprPtr operand_;
  FilterCall filter_;
};

/// a is name(arguments)
class Test final : public Expr {
 public:
  Test(int line, ExprPtr operand, std::string name, CallArguments arguments)
      : Expr(line),
        operand_(std::move(operand)),
        name_(std::move(name)),
        body_(find_test(name_)),
        arguments_(std::move(arguments)) {}

 private:
  Value compute(Frame& frame) const override;
  ExprPtr operand_;
  std::string name_;
  TestBody body_;
  CallArguments arguments_;
};

enum class UnaryOp { kNot, kNegate, kPlus };

class Unary final : public Expr {
 public:
  Unary(int line, UnaryOp op, ExprPtr operand)
      : Expr(line), op_(op), operand_(std::move(operand)) {}

 private:
  Value compute(Frame& frame) const override;
  UnaryOp op_;
  ExprPtr operand_;
};

class Binary final : public Expr {
 public:
  Binary(int line, Arithmetic op, ExprPtr left, ExprPtr right)
      : Expr(line), op_(op), left_(std::move(left)), right_(std::move(right)) {}

 private:
  Value compute(Frame& frame) const override;
  Arithmetic op_;
  ExprPtr left_, right_;
};

/// a ~ b ~ c
class Concat final : public Expr {
 public:
  Concat(int line, std::vector<ExprPtr> parts) : Expr(line), parts_(std::move(parts)) {}

 private:
  Value compute(Frame& frame) const override;
  std::vector<ExprPtr> parts_;
};

/// a and b, a or b
class Logical final : public Expr {
 public:
  Logical(int line, bool is_and, ExprPtr left, ExprPtr right)
      : Expr(line), is_and_(is_and), left_(std::move(left)), right_(std::move(right)) {}

 private:
  Value compute(Frame& frame) const override;
  bool is_and_;
  ExprPtr left_, right_;
};

/// a < b < c
class CompareChain final : public Expr {
 public:
  CompareChain(int line, ExprPtr first, std::vector<std::pair<Comparison, ExprPtr>> rest)
      : Expr(line), first_(std::move(first)), rest_(std::move(rest)) {}

 private:
  Value compute(Frame& frame) const override;
  ExprPtr first_;
  std::vector<std::pair<Comparison, ExprPtr>> rest_;
};

/// a if condition else b; b may be null.
class Conditional final : public Expr {
 public:
  Conditional(int line, ExprPtr condition, ExprPtr then, ExprPtr otherwise)
      : Expr(line),
        condition_(std::move(condition)),
        then_(std::move(then)),
        otherwise_(std::move(otherwise)) {}

 private:
  Value compute(Frame& frame) const override;
  ExprPtr condition_, then_, otherwise_;
};

}  // namespace minisgl::jinja
