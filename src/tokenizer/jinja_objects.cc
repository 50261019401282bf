#include "tokenizer/jinja_objects.h"

#include <fmt/format.h>

#include <algorithm>

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_repr.h"

namespace minisgl::jinja {

Range::Range(std::int64_t start, std::int64_t stop, std::int64_t step)
    : start_(start), stop_(stop), step_(step) {
  // In 128 bits: the bounds may be 62 bits apart in either direction.
  const Int distance = step > 0 ? Int{stop} - start : Int{start} - stop;
  const Int stride = step > 0 ? step : -Int{step};
  count_ = distance <= 0 ? 0 : static_cast<std::size_t>((distance + stride - 1) / stride);
}

void Range::repr(Context&, StrBuilder& out) {
  out.append(step_ == 1 ? fmt::format("range({}, {})", start_, stop_)
                        : fmt::format("range({}, {}, {})", start_, stop_, step_));
}

Value Range::at(std::size_t index) const {
  return Value::integer(Int{start_} + Int{step_} * static_cast<Int>(index));
}

Value Range::slice(std::int64_t first, std::int64_t last, std::int64_t step) const {
  // 62-bit bounds and at most 100,000 items: only the new step can overflow.
  std::int64_t new_step = 0;
  if (__builtin_mul_overflow(step_, step, &new_step))
    throw TemplateError("the step of a range is too large");
  const auto at_index = [&](std::int64_t i) {
    const Int item = Int{start_} + Int{step_} * i;
    constexpr Int kLimit = Int{1} << 62;
    return static_cast<std::int64_t>(std::clamp<Int>(item, -kLimit, kLimit));
  };
  return Value::object(std::make_shared<Range>(at_index(first), at_index(last), new_step));
}

std::optional<std::vector<Value>> Range::items(Context& ctx) {
  ctx.charge(static_cast<std::int64_t>(count_));
  std::vector<Value> out;
  out.reserve(count_);
  for (std::size_t i = 0; i < count_; ++i) out.push_back(at(i));
  return out;
}

std::string_view DictView::type_name() const {
  return part_ == Part::kItems ? "dict_items" : part_ == Part::kKeys ? "dict_keys" : "dict_values";
}

void DictView::repr(Context& ctx, StrBuilder& out) {
  out.append(type_name());
  out.append("(");
  append_repr(ctx, Value::list(*items(ctx)), out);
  out.append(")");
}

std::optional<std::vector<Value>> DictView::items(Context& ctx) {
  ctx.charge(static_cast<std::int64_t>(dict_->size()));
  std::vector<Value> out;
  out.reserve(dict_->size());
  for (const auto& [key, value] : dict_->entries()) {
    out.push_back(part_ == Part::kItems  ? Value::tuple({key, value})
                  : part_ == Part::kKeys ? key
                                         : value);
  }
  return out;
}

Generator::Generator(std::vector<Value> items) : items_(std::move(items)) {
  for (const Value& v : items_) depth_ = std::max(depth_, v.depth());
  ++depth_;
}

std::optional<std::vector<Value>> Generator::items(Context& ctx) {
  ctx.charge(static_cast<std::int64_t>(items_.size() - next_));
  std::vector<Value> out(items_.begin() + static_cast<std::ptrdiff_t>(next_), items_.end());
  next_ = items_.size();
  return out;
}

std::optional<Value> Generator::next() {
  if (next_ >= items_.size()) return std::nullopt;
  return items_[next_++];
}

std::optional<Value> Cycler::attribute(Context&, std::string_view name) {
  const auto method = [&](std::string_view n, Method::Body body) {
    return Value::object(std::make_shared<Method>(Value::object(shared_from_this()), n, body));
  };
  if (name == "current") return items_->items()[position_];
  if (name == "next") return method("next", &Cycler::next);
  if (name == "reset") return method("reset", &Cycler::reset);
  if (name == "items") return Value::of(items_);
  if (name == "pos") return Value::integer(static_cast<Int>(position_));
  return std::nullopt;
}

Value Cycler::next(Context&, const Value& self, const Arguments& args) {
  const Bound bound("next", args, {});
  auto* cycler = self.object_as<Cycler>();
  Value current = cycler->items_->items()[cycler->position_];
  cycler->position_ = (cycler->position_ + 1) % cycler->items_->size();
  return current;
}

Value Cycler::reset(Context&, const Value& self, const Arguments& args) {
  const Bound bound("reset", args, {});
  self.object_as<Cycler>()->position_ = 0;
  return {};
}

Value Joiner::call(Context&, const Arguments& args) {
  const Bound bound("joiner", args, {});
  if (used_) return separator_;
  used_ = true;
  return Value::string("");
}

void Bytes::repr(Context&, StrBuilder& out) {
  const bool single = bytes_.find('\'') != std::string::npos;
  const char quote = single && bytes_.find('"') == std::string::npos ? '"' : '\'';
  out.append(std::string{'b', quote});
  for (const char c : bytes_) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      out.append(std::string{'\\', c});
    } else if (c == '\n') {
      out.append("\\n");
    } else if (c == '\r') {
      out.append("\\r");
    } else if (c == '\t') {
      out.append("\\t");
    } else if (byte >= 0x20 && byte < 0x7F) {
      out.append(std::string{c});
    } else {
      out.append(fmt::format("\\x{:02x}", byte));
    }
  }
  out.append(std::string{quote});
}

}  // namespace minisgl::jinja
