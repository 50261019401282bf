// {% for %} and its variable `loop` (declared in jinja_statements.h).

#include <algorithm>

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_objects.h"
#include "tokenizer/jinja_statements.h"

namespace minisgl::jinja {
namespace {

/// The variable `loop`.
class Loop final : public Object {
 public:
  Loop(const For& statement, const Frame& frame, ListRef items, int depth0, bool recursive)
      : for_(statement),
        scopes_(frame.scopes),
        scope_(frame.scope),
        items_(std::move(items)),
        depth0_(depth0),
        recursive_(recursive) {}

  std::string_view type_name() const override { return "LoopContext"; }
  bool callable() const override { return true; }
  int depth() const override { return items_->depth() + 1; }
  std::optional<std::size_t> length() const override { return items_->size(); }

  void repr(Context&, StrBuilder& out) override {
    out.append("<LoopContext " + std::to_string(index_ + 1) + "/" + std::to_string(items_->size()) +
               ">");
  }

  Value call(Context& ctx, const Arguments& args) override {
    const Bound bound("loop", args, {"iterable"}, 1);
    if (!recursive_)
      throw TemplateError("The loop must have the 'recursive' marker to be called recursively.");
    const Context::CallDepth depth(ctx);
    StrBuilder text;
    Frame frame{ctx, scopes_, scope_, text};
    for_.run_over(frame, bound.at(0), depth0_ + 1);
    return Value::string(text.build(ctx.autoescape()));
  }

  std::optional<Value> attribute(Context&, std::string_view name) override {
    const auto number = [](std::size_t n) { return Value::integer(static_cast<Int>(n)); };
    const std::size_t n = items_->size();
    if (name == "index") return number(index_ + 1);
    if (name == "index0") return number(index_);
    if (name == "revindex") return number(n - index_);
    if (name == "revindex0") return number(n - index_ - 1);
    if (name == "first") return Value::boolean(index_ == 0);
    if (name == "last") return Value::boolean(index_ + 1 == n);
    if (name == "length") return number(n);
    if (name == "depth") return Value::integer(depth0_ + 1);
    if (name == "depth0") return Value::integer(depth0_);
    if (name == "previtem")
      return index_ > 0 ? items_->items()[index_ - 1]
                        : Value::undefined("there is no previous item");
    if (name == "nextitem")
      return index_ + 1 < n ? items_->items()[index_ + 1]
                            : Value::undefined("there is no next item");
    const auto method = [&](std::string_view method_name, Method::Body body) {
      return Value::object(
          std::make_shared<Method>(Value::object(shared_from_this()), method_name, body));
    };
    if (name == "cycle") return method("cycle", &Loop::cycle);
    if (name == "changed") return method("changed", &Loop::changed);
    return std::nullopt;
  }

  void set_index(std::size_t index) { index_ = index; }
  /// What changed() remembers may refer to the loop itself.
  void forget() { last_changed_.reset(); }

 private:
  static Value cycle(Context&, const Value& self, const Arguments& args) {
    if (args.positional.empty()) throw TemplateError("no items for cycling given");
    return args.positional[self.object_as<Loop>()->index_ % args.positional.size()];
  }

  static Value changed(Context&, const Value& self, const Arguments& args) {
    auto* loop = self.object_as<Loop>();
    Value now = Value::tuple(args.positional);
    if (loop->last_changed_ && equal(*loop->last_changed_, now)) return Value::boolean(false);
    loop->last_changed_ = std::move(now);
    return Value::boolean(true);
  }

  const For& for_;
  ScopePool& scopes_;
  Scope& scope_;
  ListRef items_;
  std::size_t index_ = 0;
  int depth0_;
  bool recursive_;
  std::optional<Value> last_changed_;
};

struct ForgetAtEnd {
  Loop& loop;
  ~ForgetAtEnd() { loop.forget(); }
};

}  // namespace

Flow For::run(Frame& frame) const {
  return run_over(frame, parts_.iterable->eval(frame), /*depth0=*/0);
}

ListRef For::selected(Frame& frame, const Value& v) const {
  ListRef all = iterate(frame.ctx, v);
  if (!parts_.condition) return all;
  std::vector<Value> kept;
  for (const Value& item : all->items()) {
    const InnerScope scope(frame.scopes, frame.scope);
    Frame inner{frame.ctx, frame.scopes, *scope, frame.out};
    parts_.target.assign(inner, item);
    if (truthy(parts_.condition->eval(inner))) kept.push_back(item);
  }
  return std::make_shared<const List>(std::move(kept), List::Type::kList);
}

Flow For::run_over(Frame& frame, const Value& v, int depth0) const {
  const ListRef items = selected(frame, v);
  if (items->size() == 0) {
    const InnerScope scope(frame.scopes, frame.scope);
    Frame inner{frame.ctx, frame.scopes, *scope, frame.out};
    return exec_body(parts_.otherwise, inner);
  }
  // A recursive loop may be called while its scope is gone only if that scope is kept.
  if (parts_.recursive) frame.scope.capture();
  const auto loop = std::make_shared<Loop>(*this, frame, items, depth0, parts_.recursive);
  const ForgetAtEnd forget{*loop};
  const Value loop_value = Value::object(loop);
  for (std::size_t i = 0; i < items->size(); ++i) {
    frame.ctx.charge(1);
    loop->set_index(i);
    const InnerScope scope(frame.scopes, frame.scope);
    Frame inner{frame.ctx, frame.scopes, *scope, frame.out};
    scope->set(loop_, loop_value);
    parts_.target.assign(inner, items->items()[i]);
    if (exec_body(parts_.body, inner) == Flow::kBreak) break;
  }
  return Flow::kNext;
}

}  // namespace minisgl::jinja
