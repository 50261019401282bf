#include "tokenizer/normalizer.h"

#include <string>

#include "base/utf8.h"
#include "minisgl/error.h"
#include "tokenizer/unicode.h"

namespace minisgl {
namespace {

// Steps come with a model. Some that each double what they find would fill the memory, so a text
// may grow to this; Unicode's composition makes it at most three times as long, marks for spaces as
// well.
constexpr std::size_t kMaxGrowth = 16, kMaxExtraBytes = 1024;

void check_growth(std::size_t bytes, std::size_t limit) {
  if (bytes > limit)
    throw Error("the normalizer makes a text more than " + std::to_string(kMaxGrowth) +
                " times as long");
}

// Each returns whether it wrote the changed text, of at most `limit` bytes, to `out`.

bool change(const Normalizer::Nfc&, std::string_view text, std::size_t /*limit*/,
            std::string& out) {
  if (is_surely_nfc(text)) return false;
  out = to_nfc(text);
  return true;
}

bool change(const Normalizer::Form& step, std::string_view text, std::size_t limit,
            std::string& out) {
  if (ascii_run(text, 0) == text.size()) return false;
  using Kind = Normalizer::Form::Kind;
  out = step.kind == Kind::kNfd    ? to_nfd(text)
        : step.kind == Kind::kNfkc ? to_nfkc(text)
                                   : to_nfkd(text);
  check_growth(out.size(), limit);
  return true;
}

bool change(const Normalizer::ReplaceMatches& step, std::string_view text, std::size_t limit,
            std::string& out) {
  std::string result;
  std::size_t copied = 0;
  for (std::size_t from = 0; from <= text.size();) {
    const auto match = step.pattern.find(text, from);
    if (!match) break;
    if (match->begin == match->end) {  // goes on one character later
      from = match->end < text.size() ? match->end + decode_utf8(text, match->end).length
                                      : text.size() + 1;
      continue;
    }
    result.append(text, copied, match->begin - copied);
    result += step.content;
    check_growth(result.size(), limit);
    copied = from = match->end;
  }
  if (copied == 0) return false;
  result.append(text, copied);
  out = std::move(result);
  return true;
}

bool change(const Normalizer::Prepend& step, std::string_view text, std::size_t limit,
            std::string& out) {
  if (text.empty()) return false;
  check_growth(text.size() + step.text.size(), limit);
  out = step.text;
  out += text;
  return true;
}

bool change(const Normalizer::Replace& step, std::string_view text, std::size_t limit,
            std::string& out) {
  std::size_t found = text.find(step.pattern);
  if (found == std::string_view::npos) return false;
  std::string result;
  result.reserve(text.size() + text.size() / 4);
  std::size_t copied = 0;
  for (; found != std::string_view::npos; found = text.find(step.pattern, copied)) {
    result.append(text, copied, found - copied);
    result += step.content;
    check_growth(result.size(), limit);
    copied = found + step.pattern.size();
  }
  result.append(text, copied);
  out = std::move(result);
  return true;
}

}  // namespace

std::string_view Normalizer::apply(std::string_view text, std::string& buffer) const {
  const std::size_t limit = kMaxExtraBytes + kMaxGrowth * text.size();
  std::string changed;
  for (const Step& step : steps_) {
    const bool did =
        std::visit([&](const auto& s) { return change(s, text, limit, changed); }, step);
    if (!did) continue;
    std::swap(buffer, changed);
    text = buffer;
  }
  return text;
}

}  // namespace minisgl
