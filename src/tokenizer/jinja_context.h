// What one rendering carries along: its limits, its clock, its namespaces.

#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "tokenizer/jinja_value.h"

namespace minisgl::jinja {

/// Bounds of one rendering: a template comes with a model, not from the operator, and must not be
/// able to stop the server.
struct Limits {
  std::int64_t operations = 20'000'000;  ///< evaluated nodes, list items, 64 bytes of text each
  std::int64_t output_bytes = 64 << 20;  ///< of any one string, the result included
  int call_depth = 200;                  ///< macros within macros
  int nesting = 2'000;                   ///< expressions within expressions, calls included
  std::size_t namespaces = 100'000;
};

/// One rendering. Not thread-safe; lives as long as the rendering.
class Context {
 public:
  explicit Context(const std::tm& now, const Limits& limits = {})
      : now_(now), limits_(limits), outer_(std::exchange(current_, this)) {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// Counts work; throws TemplateError beyond the limit.
  void charge(std::int64_t operations) {
    used_ += operations;
    if (used_ > limits_.operations) [[unlikely]]
      fail_operations();
  }
  /// Counts a text about to be made; throws TemplateError when it is too large. Takes any size.
  void charge_bytes(double bytes);
  /// Counts a search for `wanted` bytes in a text, which may compare them at every place.
  void charge_search(std::size_t text_bytes, std::size_t wanted_bytes);
  /// As charge(), of the rendering that this thread is in, if any. For comparing and hashing
  /// values: containers call these and know no Context, and a value that shares its parts can be
  /// exponentially larger than the memory it takes.
  static void charge_current(std::size_t operations) {
    if (current_ != nullptr) current_->charge(static_cast<std::int64_t>(operations));
  }
  /// Throws TemplateError when a text is too large; counts nothing.
  void check_bytes(std::size_t bytes) const {
    if (bytes > static_cast<std::size_t>(limits_.output_bytes)) [[unlikely]]
      fail_bytes();
  }

  /// While one lives, the evaluation is one level deeper.
  class Nesting {
   public:
    explicit Nesting(Context& ctx) : ctx_(ctx) {
      if (++ctx_.nesting_ > ctx_.limits_.nesting) [[unlikely]]
        ctx_.fail_nesting();
    }
    ~Nesting() { --ctx_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Context& ctx_;
  };

  /// As Nesting, for calls of macros and recursive loops.
  class CallDepth {
   public:
    explicit CallDepth(Context& ctx) : ctx_(ctx) {
      if (++ctx_.call_depth_ > ctx_.limits_.call_depth) [[unlikely]]
        ctx_.fail_call_depth();
    }
    ~CallDepth() { --ctx_.call_depth_; }
    CallDepth(const CallDepth&) = delete;
    CallDepth& operator=(const CallDepth&) = delete;

   private:
    Context& ctx_;
  };

  /// The time that strftime_now() tells.
  const std::tm& now() const { return now_; }
  bool autoescape() const { return autoescape_; }
  void set_autoescape(bool on) { autoescape_ = on; }
  /// Pseudo-random, the same sequence in every rendering.
  std::uint64_t next_random();

  /// Namespaces can hold each other, so they are emptied at the end of the rendering.
  void keep(std::shared_ptr<class Namespace> ns);
  ~Context();

 private:
  [[noreturn]] void fail_operations() const;
  [[noreturn]] void fail_bytes() const;
  // These take the level back before they throw: the guard's destructor will not run.
  [[noreturn]] void fail_nesting();
  [[noreturn]] void fail_call_depth();

  static thread_local constinit Context* current_;

  std::tm now_;
  Limits limits_;
  Context* outer_;
  std::int64_t used_ = 0;
  int nesting_ = 0;
  int call_depth_ = 0;
  bool autoescape_ = false;
  std::uint64_t random_ = 0x9e3779b97f4a7c15ULL;
  std::vector<std::shared_ptr<class Namespace>> namespaces_;
};

/// namespace(): the only value that a template can change.
class Namespace final : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  std::optional<Value> attribute(Context& ctx, std::string_view name) override;
  void repr(Context& ctx, StrBuilder& out) override;
  void set(Value key, Value value) { attributes_.set(std::move(key), std::move(value)); }
  void clear() { attributes_ = Dict(); }

 private:
  Dict attributes_;
};

}  // namespace minisgl::jinja
