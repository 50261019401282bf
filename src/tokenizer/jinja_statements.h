// Statements of a parsed template. Immutable: one template is rendered by many threads.

#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tokenizer/jinja_expressions.h"

namespace minisgl::jinja {

/// How a statement ended: whether the loop around it goes on.
enum class Flow { kNext, kBreak, kContinue };

class Statement {
 public:
  explicit Statement(int line) : line_(line) {}
  virtual ~Statement() = default;
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  int line() const { return line_; }
  /// Runs it; text goes to frame.out. A TemplateError leaves with a line.
  Flow exec(Frame& frame) const;

 private:
  virtual Flow run(Frame& frame) const = 0;
  int line_;
};

using Body = std::vector<std::unique_ptr<const Statement>>;

/// Runs the statements in order.
Flow exec_body(const Body& body, Frame& frame);
/// What the statements write, in a scope of their own inside `frame`'s. Their `break` or
/// `continue` is stored in `flow`.
Str exec_to_text(const Body& body, Frame& frame, Flow& flow);

/// Writes str(v), escaped where autoescape is on.
void write_value(Frame& frame, const Value& v);

/// Where a value is stored: a name, the attribute of a namespace, or several of them.
struct Target {
  NameId name = -1;
  std::string name_text;
  std::string attribute;        ///< not empty: name.attribute
  std::vector<Target> members;  ///< not empty, or `tuple`: unpacks
  bool tuple = false;

  /// Throws TemplateError when the number of items does not fit, or for an attribute of something
  /// else than a namespace.
  void assign(Frame& frame, const Value& v) const;
};

/// Text and {{ expressions }}.
class Output final : public Statement {
 public:
  using Part = std::variant<std::string, ExprPtr>;
  Output(int line, std::vector<Part> parts) : Statement(line), parts_(std::move(parts)) {}

 private:
  Flow run(Frame& frame) const override;
  std::vector<Part> parts_;
};

/// if, elif, else: the conditions with their bodies in order; the last condition may be null.
class If final : public Statement {
 public:
  using Branch = std::pair<ExprPtr, Body>;
  If(int line, std::vector<Branch> branches) : Statement(line), branches_(std::move(branches)) {}

 private:
  Flow run(Frame& frame) const override;
  std::vector<Branch> branches_;
};

class Set final : public Statement {
 public:
  Set(int line, Target target, ExprPtr value)
      : Statement(line), target_(std::move(target)), value_(std::move(value)) {}

 private:
  Flow run(Frame& frame) const override;
  Target target_;
  ExprPtr value_;
};

/// {% set x | filter %}...{% endset %}
class SetBlock final : public Statement {
 public:
  SetBlock(int line, Target target, std::vector<FilterCall> filters, Body body)
      : Statement(line),
        target_(std::move(target)),
        filters_(std::move(filters)),
        body_(std::move(body)) {}

 private:
  Flow run(Frame& frame) const override;
  Target target_;
  std::vector<FilterCall> filters_;
  Body body_;
};

class FilterBlock final : public Statement {
 public:
  FilterBlock(int line, std::vector<FilterCall> filters, Body body)
      : Statement(line), filters_(std::move(filters)), body_(std::move(body)) {}

 private:
  Flow run(Frame& frame) const override;
  std::vector<FilterCall> filters_;
  Body body_;
};

/// A body in a scope of its own, with variables: with, generation, block.
class Scoped final : public Statement {
 public:
  /// `from_outermost`: the body sees the template's own variables only (block).
  Scoped(int line, std::vector<std::pair<Target, ExprPtr>> variables, Body body,
         bool from_outermost = false)
      : Statement(line),
        variables_(std::move(variables)),
        body_(std::move(body)),
        from_outermost_(from_outermost) {}

 private:
  Flow run(Frame& frame) const override;
  std::vector<std::pair<Target, ExprPtr>> variables_;
  Body body_;
  bool from_outermost_;
};

class Autoescape final : public Statement {
 public:
  Autoescape(int line, ExprPtr on, Body body)
      : Statement(line), on_(std::move(on)), body_(std::move(body)) {}

 private:
  Flow run(Frame& frame) const override;
  ExprPtr on_;
  Body body_;
};

/// break, continue
class Jump final : public Statement {
 public:
  Jump(int line, Flow flow) : Statement(line), flow_(flow) {}

 private:
  Flow run(Frame&) const override { return flow_; }
  Flow flow_;
};

class For final : public Statement {
 public:
  struct Parts {
    Target target;
    ExprPtr iterable;
    ExprPtr condition;  ///< items for which it does not hold are left out; may be null
    bool recursive = false;
    Body body;
    Body otherwise;  ///< runs when there was no item
  };
  /// `loop` is the name of the variable "loop".
  For(int line, NameId loop, Parts parts)
      : Statement(line), loop_(loop), parts_(std::move(parts)) {}

  /// Runs the loop over `items`. Only a jump in the `else` body reaches the loop around.
  Flow run_over(Frame& frame, const Value& items, int depth0) const;

 private:
  Flow run(Frame& frame) const override;
  ListRef selected(Frame& frame, const Value& items) const;

  NameId loop_;
  Parts parts_;
};

/// What macros and call blocks have in common: parameters and a body.
struct MacroCode {
  struct Parameter {
    NameId id = -1;
    std::string name;
    ExprPtr fallback;  ///< may be null
  };
  std::string name;  ///< empty for a call block
  std::vector<Parameter> parameters;
  Body body;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
  NameId caller = -1, varargs = -1, kwargs = -1;
};

class MacroDefinition final : public Statement {
 public:
  MacroDefinition(int line, NameId name, MacroCode code)
      : Statement(line), name_(name), code_(std::move(code)) {}

 private:
  Flow run(Frame& frame) const override;
  NameId name_;
  MacroCode code_;
};

/// {% call(a) macro(b) %}...{% endcall %}
class CallBlock final : public Statement {
 public:
  CallBlock(int line, std::unique_ptr<const Call> call, MacroCode code)
      : Statement(line), call_(std::move(call)), code_(std::move(code)) {}

 private:
  Flow run(Frame& frame) const override;
  std::unique_ptr<const Call> call_;
  MacroCode code_;
};

}  // namespace minisgl::jinja
