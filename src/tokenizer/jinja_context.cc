#include "tokenizer/jinja_context.h"

#include <algorithm>

#include "tokenizer/jinja_repr.h"

namespace minisgl::jinja {

thread_local constinit Context* Context::current_ = nullptr;

void Context::charge_bytes(double bytes) {
  if (bytes > static_cast<double>(limits_.output_bytes)) fail_bytes();
  charge(static_cast<std::int64_t>(bytes / 64));
}

void Context::charge_search(std::size_t text_bytes, std::size_t wanted_bytes) {
  // A short word is found at the speed of memory, which charge_bytes() has counted.
  constexpr std::size_t kShort = 64;
  if (wanted_bytes <= kShort) return;
  // A comparison goes through about this many bytes in the time of an operation.
  constexpr double kBytesPerOperation = 1024;
  const double bytes = static_cast<double>(text_bytes) * static_cast<double>(wanted_bytes);
  charge(static_cast<std::int64_t>(std::min(bytes / kBytesPerOperation, 1e15)));
}

std::uint64_t Context::next_random() {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return random_;
}

void Context::keep(std::shared_ptr<Namespace> ns) {
  if (namespaces_.size() >= limits_.namespaces)
    throw TemplateError("the template makes more than " + std::to_string(limits_.namespaces) +
                        " namespaces");
  namespaces_.push_back(std::move(ns));
}

Context::~Context() {
  // All are still held by namespaces_, so that a chain of them is not unwound recursively.
  for (const auto& ns : namespaces_) ns->clear();
  current_ = outer_;
}

void Context::fail_operations() const {
  throw TemplateError("the template takes more than " + std::to_string(limits_.operations) +
                      " operations");
}

void Context::fail_bytes() const {
  throw TemplateError("the template makes a text of more than " +
                      std::to_string(limits_.output_bytes) + " bytes");
}

void Context::fail_nesting() {
  --nesting_;
  throw TemplateError("the template nests expressions or calls deeper than " +
                      std::to_string(limits_.nesting) + " levels");
}

void Context::fail_call_depth() {
  --call_depth_;
  throw TemplateError("maximum recursion depth exceeded: more than " +
                      std::to_string(limits_.call_depth) + " macros or loops within each other");
}

std::optional<Value> Namespace::attribute(Context&, std::string_view name) {
  const Value* v = attributes_.find(name);
  return v ? std::optional(*v) : std::nullopt;
}

void Namespace::repr(Context& ctx, StrBuilder& out) {
  out.append("<Namespace ");
  append_repr(ctx, Value::dict(attributes_), out);
  out.append(">");
}

}  // namespace minisgl::jinja
