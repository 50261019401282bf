#include "tokenizer/normalizer.h"

#include "tokenizer/unicode.h"

namespace minisgl {
namespace {

// Each returns whether it wrote the changed text to `out`.

bool change(const Normalizer::Nfc&, std::string_view text, std::string& out) {
  if (is_surely_nfc(text)) return false;
  out = to_nfc(text);
  return true;
}

bool change(const Normalizer::Prepend& step, std::string_view text, std::string& out) {
  if (text.empty()) return false;
  out = step.text;
  out += text;
  return true;
}

bool change(const Normalizer::Replace& step, std::string_view text, std::string& out) {
  std::size_t found = text.find(step.pattern);
  if (found == std::string_view::npos) return false;
  std::string result;
  result.reserve(text.size() + text.size() / 4);
  std::size_t copied = 0;
  for (; found != std::string_view::npos; found = text.find(step.pattern, copied)) {
    result.append(text, copied, found - copied);
    result += step.content;
    copied = found + step.pattern.size();
  }
  result.append(text, copied);
  out = std::move(result);
  return true;
}

}  // namespace

std::string_view Normalizer::apply(std::string_view text, std::string& buffer) const {
  std::string changed;
  for (const Step& step : steps_) {
    const bool did = std::visit([&](const auto& s) { return change(s, text, changed); }, step);
    if (!did) continue;
    std::swap(buffer, changed);
    text = buffer;
  }
  return text;
}

}  // namespace minisgl
