#define PCRE2_CODE_UNIT_WIDTH 8

#include "tokenizer/regex.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>

#include "formats/file_kind.h"
#include "minisgl/error.h"

namespace minisgl {
namespace {

// PCRE2's own \s has U+180E besides; this is Unicode's White_Space, as Oniguruma and Rust have it.
constexpr std::string_view kWhiteSpace =
    R"(\x09-\x0D\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

[[noreturn]] void unsupported(std::string_view pattern, std::string_view what) {
  throw Error("regular expression " + in_quotes(pattern) + ": " + std::string(what) +
              " is not supported");
}

// From Oniguruma's dialect to PCRE2's, construct by construct.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  std::string run() {
    while (pos_ < pattern_.size()) {
      const char c = pattern_[pos_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        inside_class(c);
      } else {
        outside_class(c);
      }
    }
    return std::move(out_);
  }

 private:
  char peek(std::size_t ahead) const {
    return pos_ + ahead < pattern_.size() ? pattern_[pos_ + ahead] : '\0';
  }

  void copy(std::size_t n) {
    out_.append(pattern_, pos_, n);
    pos_ += n;
    class_is_empty_ = false;
  }

  void escape() {
    const char kind = peek(1);
    const auto replace = [&](const std::string& by) {
      out_ += by;
      pos_ += 2;
      class_is_empty_ = false;
    };
    if (kind == 's')
      return replace(in_class_ ? std::string(kWhiteSpace) : "[" + std::string(kWhiteSpace) + "]");
    if (kind == 'S' && !in_class_) return replace("[^" + std::string(kWhiteSpace) + "]");
    if (kind == 'S') return replace("\\P{White_Space}");
    if (kind == 'u') return code_point();
    if (kind == 'h' || kind == 'H') unsupported(pattern_, "\\h (a hexadecimal digit)");
    copy(2);
  }

  // \uHHHH
  void code_point() {
    const std::string_view digits = pattern_.substr(std::min(pos_ + 2, pattern_.size()), 4);
    const bool valid = digits.size() == 4 && std::ranges::all_of(digits, [](unsigned char c) {
                         return std::isxdigit(c) != 0;
                       });
    if (!valid) unsupported(pattern_, "\\u without four hexadecimal digits");
    out_ += "\\x{" + std::string(digits) + "}";
    pos_ += 6;
    class_is_empty_ = false;
  }

  void inside_class(char c) {
    if (c == '&' && peek(1) == '&') unsupported(pattern_, "&& in a character class");
    if (c == '[') {
      if (peek(1) != ':') unsupported(pattern_, "a character class inside another");
      const std::size_t end = pattern_.find(":]", pos_ + 2);
      if (end == std::string_view::npos) unsupported(pattern_, "an unclosed [: :]");
      return copy(end + 2 - pos_);
    }
    if (c == ']' && !class_is_empty_) in_class_ = false;
    copy(1);
  }

  void outside_class(char c) {
    if (c == '[') {
      in_class_ = true;
      copy(peek(1) == '^' ? 2 : 1);
      class_is_empty_ = true;
      return;
    }
    // After an interval PCRE2 reads + as "possessive", Ruby as "once more".
    if (c == '}' && peek(1) == '+' && is_interval_end()) unsupported(pattern_, "{n,m}+");
    copy(1);
  }

  bool is_interval_end() const {
    std::size_t i = pos_;
    while (i > 0 && ((pattern_[i - 1] >= '0' && pattern_[i - 1] <= '9') || pattern_[i - 1] == ','))
      --i;
    return i < pos_ && i > 0 && pattern_[i - 1] == '{';
  }

  std::string_view pattern_;
  std::size_t pos_ = 0;
  std::string out_;
  bool in_class_ = false;
  bool class_is_empty_ = false;
};

// What a thread needs to match: a place for one result, and a stack for patterns that nest.
struct ThreadState {
  ThreadState()
      : data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(kSmallStack, kLargeStack, nullptr)) {
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~ThreadState() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    if (stack != nullptr) pcre2_jit_stack_free(stack);
  }
  ThreadState(const ThreadState&) = delete;
  ThreadState& operator=(const ThreadState&) = delete;

  static constexpr std::size_t kSmallStack = 32 << 10, kLargeStack = 8 << 20;  // bytes
  pcre2_match_data* data;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;
};

ThreadState& thread_state() {
  thread_local ThreadState state;
  return state;
}

std::string error_text(int code) {
  std::array<PCRE2_UCHAR, 160> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

PCRE2_SPTR bytes(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

struct Regex::Code {
  Code(const std::string& pattern, const std::string& translated) {
    // \C would match a part of a character: what is left of it would be no text any more.
    constexpr std::uint32_t kOptions =
        PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    int error = 0;
    PCRE2_SIZE offset = 0;
    code = pcre2_compile(bytes(translated), translated.size(), kOptions, &error, &offset, nullptr);
    if (code == nullptr)
      throw Error("regular expression " + in_quotes(pattern) + ": " + error_text(error));
    jit = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
  }
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  pcre2_code* code = nullptr;
  bool jit = false;  // the interpreter does where the machine has no just-in-time compiler
};

Regex::Regex(std::string_view pattern)
    : Regex(Raw{}, std::string(pattern), Translator(pattern).run()) {}

Regex Regex::literal(std::string_view text) {
  std::string quoted;
  for (const char c : text) {
    // A backslash before any ASCII character that is no letter or digit makes it itself.
    const bool ascii = static_cast<unsigned char>(c) < 0x80;
    const bool alphanumeric =
        (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (ascii && !alphanumeric) quoted += '\\';
    quoted += c;
  }
  return {Raw{}, std::string(text), quoted};
}

Regex::Regex(Raw, std::string pattern, const std::string& translated)
    : pattern_(std::move(pattern)), code_(std::make_shared<const Code>(pattern_, translated)) {}

std::optional<Regex::Match> Regex::find(std::string_view text, std::size_t from) const {
  ThreadState& state = thread_state();
  const auto match = code_->jit ? pcre2_jit_match : pcre2_match;
  const int found = match(code_->code, bytes(text), text.size(), from, PCRE2_NO_UTF_CHECK,
                          state.data, state.context);
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (found < 0)
    throw Error("regular expression " + in_quotes(pattern_) + " failed on a text of " +
                std::to_string(text.size()) + " bytes: " + error_text(found));
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(state.data);
  return Match{range[0], range[1]};
}

}  // namespace minisgl
