// The objects that functions and methods return: ranges, views of a dict, generators, cyclers, ...

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja_context.h"

namespace minisgl::jinja {

/// range(start, stop, step); step is not 0.
class Range final : public Object {
 public:
  Range(std::int64_t start, std::int64_t stop, std::int64_t step);
  std::string_view type_name() const override { return "range"; }
  void repr(Context& ctx, StrBuilder& out) override;
  std::optional<std::vector<Value>> items(Context& ctx) override;
  std::optional<std::size_t> length() const override { return count_; }
  bool is_sequence() const override { return true; }
  Value at(std::size_t index) const;
  /// The range of every `step`-th item from index `first` to `last`, exclusive.
  Value slice(std::int64_t first, std::int64_t last, std::int64_t step) const;

 private:
  std::int64_t start_;
  std::int64_t stop_;
  std::int64_t step_;
  std::size_t count_;
};

/// dict.items(), keys(), values().
class DictView final : public Object {
 public:
  enum class Part { kItems, kKeys, kValues };
  DictView(DictRef dict, Part part) : dict_(std::move(dict)), part_(part) {}
  std::string_view type_name() const override;
  void repr(Context& ctx, StrBuilder& out) override;
  std::optional<std::vector<Value>> items(Context& ctx) override;
  std::optional<std::size_t> length() const override { return dict_->size(); }
  int depth() const override { return dict_->depth() + 1; }

 private:
  DictRef dict_;
  Part part_;
};

/// What map, select, ... give: can be iterated once. The items are made at once, not on demand:
/// filters have no effects by which a template could tell.
class Generator final : public Object {
 public:
  explicit Generator(std::vector<Value> items);
  std::string_view type_name() const override { return "generator"; }
  std::optional<std::vector<Value>> items(Context& ctx) override;
  /// The next item alone; nothing at the end.
  std::optional<Value> next();
  int depth() const override { return depth_; }

 private:
  std::vector<Value> items_;
  std::size_t next_ = 0;
  int depth_ = 0;
};

/// cycler(...): attributes current, next(), reset().
class Cycler final : public Object {
 public:
  explicit Cycler(ListRef items) : items_(std::move(items)) {}
  std::string_view type_name() const override { return "Cycler"; }
  std::optional<Value> attribute(Context& ctx, std::string_view name) override;
  int depth() const override { return items_->depth() + 1; }

 private:
  static Value next(Context& ctx, const Value& self, const Arguments& args);
  static Value reset(Context& ctx, const Value& self, const Arguments& args);

  ListRef items_;
  std::size_t position_ = 0;
};

/// joiner(sep): nothing at the first call, then `sep`.
class Joiner final : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  std::string_view type_name() const override { return "Joiner"; }
  bool callable() const override { return true; }
  Value call(Context& ctx, const Arguments& args) override;
  int depth() const override { return separator_.depth() + 1; }

 private:
  Value separator_;
  bool used_ = false;
};

/// The result of str.encode(): only good for printing.
class Bytes final : public Object {
 public:
  explicit Bytes(std::string bytes) : bytes_(std::move(bytes)) {}
  std::string_view type_name() const override { return "bytes"; }
  void repr(Context& ctx, StrBuilder& out) override;
  std::optional<std::size_t> length() const override { return bytes_.size(); }

 private:
  std::string bytes_;
};

}  // namespace minisgl::jinja
