#include "tokenizer/jinja_lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "tokenizer/jinja_text.h"

namespace minisgl::jinja {
namespace {

std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) text();
    add(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const { throw TemplateError(message, line_); }

  bool looking_at(std::string_view what) const { return looking_at(at_, what); }
  bool looking_at(std::size_t at, std::string_view what) const {
    return source_.compare(at, what.size(), what) == 0;
  }

  void add(TokenType type, std::string text, Value number = {}) {
    tokens_.push_back({type, std::move(text), line_, std::move(number)});
  }

  // Moves to `end`, counting lines.
  void advance(std::size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    if (end > at_) line_starting_ = source_[end - 1] == '\n';
    at_ = end;
  }

  std::size_t after_blanks(std::size_t at) const {
    while (at < source_.size()) {
      const Char c = char_at(source_, at);
      if (!is_space(c.code)) break;
      at = c.end;
    }
    return at;
  }

  // Adds the text up to `end`, less the blanks that the tag there takes away: all of them with '-';
  // those in front of it on its own line unless it is '+' or prints a variable.
  void add_data(std::size_t end, char sign, bool variable) {
    std::string_view data(source_.data() + at_, end - at_);
    if (sign == '-') {
      data = data.substr(0, strip(Str(std::string(data)), Side::kRight).size());
    } else if (sign != '+' && !variable) {
      const std::size_t newline = data.rfind('\n');
      const std::size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
      const std::string_view indentation = data.substr(begin);
      bool blank = begin > 0 || line_starting_;
      for_each_char(indentation, [&](const Char& c) { blank = blank && is_space(c.code); });
      if (blank) data = data.substr(0, begin);
    }
    if (!data.empty()) add(TokenType::kData, std::string(data));
    advance(end);
  }

  // Data up to the next tag, and that tag.
  void text() {
    std::size_t begin = at_;
    while ((begin = source_.find('{', begin)) != std::string::npos) {
      const char next = begin + 1 < source_.size() ? source_[begin + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') break;
      ++begin;
    }
    if (begin == std::string::npos) {
      add(TokenType::kData, source_.substr(at_));
      return advance(source_.size());
    }
    const char kind = source_[begin + 1];
    const char after = begin + 2 < source_.size() ? source_[begin + 2] : '\0';
    const char sign = after == '-' || after == '+' ? after : '\0';
    add_data(begin, sign, kind == '{');
    const std::size_t inside = begin + (sign != '\0' ? 3 : 2);
    if (kind == '#') return comment(inside);
    if (kind == '{') {
      add(TokenType::kVariableBegin, "");
      advance(inside);
      return tag(/*variable=*/true);
    }
    if (const auto end = raw_tag(inside, "raw", /*trims=*/false)) return raw(*end);
    add(TokenType::kBlockBegin, "");
    advance(inside);
    tag(/*variable=*/false);
  }

  // If the tag whose inside begins at `at` is `name` alone: where what it takes ends.
  std::optional<std::size_t> raw_tag(std::size_t at, std::string_view name, bool trims) const {
    at = after_blanks(at);
    if (!looking_at(at, name)) return std::nullopt;
    at = after_blanks(at + name.size());
    if (looking_at(at, "-%}")) return after_blanks(at + 3);
    if (trims && looking_at(at, "+%}")) return at + 3;
    if (!looking_at(at, "%}")) return std::nullopt;
    return at + (trims && looking_at(at + 2, "\n") ? 3 : 2);
  }

  void raw(std::size_t begin) {
    advance(begin);
    for (std::size_t i = at_; (i = source_.find("{%", i)) != std::string::npos; ++i) {
      const bool has_sign = looking_at(i + 2, "-") || looking_at(i + 2, "+");
      const auto end = raw_tag(i + (has_sign ? 3 : 2), "endraw", /*trims=*/true);
      if (!end) continue;
      add_data(i, has_sign ? source_[i + 2] : '\0', /*variable=*/false);
      return advance(*end);
    }
    fail("Missing end of raw directive");
  }

  void comment(std::size_t begin) {
    const std::size_t close = source_.find("#}", begin);
    if (close == std::string::npos) fail("Missing end of comment tag");
    const char sign = close > begin ? source_[close - 1] : '\0';
    std::size_t end = close + 2;
    if (sign == '-') {
      end = after_blanks(end);
    } else if (sign != '+' && looking_at(end, "\n")) {
      ++end;
    }
    advance(end);
  }

  // If the tag ends here: where what it takes ends.
  std::optional<std::size_t> tag_end(bool variable) const {
    if (!open_.empty()) return std::nullopt;  // a "}" closes a brace first
    const std::string_view close = variable ? "}}" : "%}";
    if (looking_at("-") && looking_at(at_ + 1, close)) return after_blanks(at_ + 3);
    if (!variable && looking_at("+%}")) return at_ + 3;
    if (!looking_at(close)) return std::nullopt;
    return at_ + (!variable && looking_at(at_ + 2, "\n") ? 3 : 2);
  }

  void tag(bool variable) {
    while (at_ < source_.size()) {
      if (const auto end = tag_end(variable)) {
        add(variable ? TokenType::kVariableEnd : TokenType::kBlockEnd, "");
        open_.clear();
        return advance(*end);
      }
      const std::size_t begin = after_blanks(at_);
      if (begin > at_) {
        advance(begin);
      } else if (!number() && !name() && !string() && !operator_token()) {
        const Char c = char_at(source_, at_);
        const std::string shown = source_.substr(c.begin, c.end - c.begin);
        const std::string quote = shown == "'" ? "\"" : "'";
        fail("unexpected char " + quote + shown + quote + " at " +
             std::to_string(count_code_points(std::string_view(source_).substr(0, at_))));
      }
    }
  }

  // Digits with single underscores between them, from `at` on; where they end.
  template <class IsDigit>
  std::size_t digits(std::size_t at, IsDigit is) const {
    const auto there = [&](std::size_t i) { return i < source_.size() && is(source_[i]); };
    while (there(at)) {
      ++at;
      if (at < source_.size() && source_[at] == '_' && there(at + 1)) ++at;
    }
    return at;
  }

  bool number() {
    if (!is_digit(source_[at_])) return false;
    const std::size_t whole = digits(at_, is_digit);
    // "l.0.1" has indexes, not a fraction.
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    std::size_t end = whole;
    if (!after_dot) {
      if (looking_at(end, ".") && end + 1 < source_.size() && is_digit(source_[end + 1]))
        end = digits(end + 1, is_digit);
      if (looking_at(end, "e") || looking_at(end, "E")) {
        std::size_t exponent = end + 1;
        if (looking_at(exponent, "+") || looking_at(exponent, "-")) ++exponent;
        const std::size_t exponent_end = digits(exponent, is_digit);
        if (exponent_end > exponent) end = exponent_end;
      }
    }
    if (end > whole) {
      std::string text = source_.substr(at_, end - at_);
      std::erase(text, '_');
      add(TokenType::kFloat, text, Value::real(std::strtod(text.c_str(), nullptr)));
      advance(end);
      return true;
    }
    integer(whole);
    return true;
  }

  void integer(std::size_t end) {
    unsigned base = 10;
    std::size_t begin = at_;
    const char mark = at_ + 1 < source_.size() ? static_cast<char>(source_[at_ + 1] | 0x20) : '\0';
    if (source_[at_] == '0' && (mark == 'x' || mark == 'o' || mark == 'b')) {
      base = mark == 'x' ? 16 : mark == 'o' ? 8 : 2;
      const auto is = [&](char c) { return digit_value(c) < base; };
      const std::size_t first = at_ + 2 + (looking_at(at_ + 2, "_") ? 1 : 0);
      const std::size_t last = digits(first, is);
      if (last > first) {
        begin = first;
        end = last;
      } else {
        base = 10;
      }
    } else if (source_[at_] == '0') {
      // "012" is 0 and then 12, as in jinja2.
      end = digits(at_, [](char c) { return c == '0'; });
    }
    Int value = 0;
    for (std::size_t i = begin; i < end; ++i) {
      if (source_[i] == '_') continue;
      if (__builtin_mul_overflow(value, static_cast<Int>(base), &value) ||
          __builtin_add_overflow(value, static_cast<Int>(digit_value(source_[i])), &value))
        fail("integers of more than 128 bits are not supported");
    }
    add(TokenType::kInteger, source_.substr(at_, end - at_), Value::integer(value));
    advance(end);
  }

  static unsigned digit_value(char c) {
    if (is_digit(c)) return static_cast<unsigned>(c - '0');
    const char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? static_cast<unsigned>(lower - 'a') + 10 : 99;
  }

  bool name() {
    std::size_t end = at_;
    while (end < source_.size()) {
      const Char c = char_at(source_, end);
      if (!is_word(c.code)) break;
      end = c.end;
    }
    if (end == at_) return false;
    add(TokenType::kName, source_.substr(at_, end - at_));
    advance(end);
    return true;
  }

  bool string() {
    const char quote = source_[at_];
    if (quote != '\'' && quote != '"') return false;
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return false;
    add(TokenType::kString, unescaped(source_.substr(at_ + 1, end - at_ - 1)));
    advance(end + 1);
    return true;
  }

  // Python's escapes; an unknown one keeps its backslash.
  std::string unescaped(const std::string& text) const {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        out.push_back(text[i]);
        continue;
      }
      const char c = text[++i];  // there is one: a backslash takes the next character along
      constexpr std::string_view kNames = "\\'\"abfnrtv";
      constexpr std::string_view kValues = "\\'\"\a\b\f\n\r\t\v";
      if (const std::size_t k = kNames.find(c); k != std::string_view::npos) {
        out.push_back(kValues[k]);
      } else if (c == '\n') {
        continue;
      } else if (c >= '0' && c <= '7') {
        std::size_t n = 1;
        while (n < 3 && i + n < text.size() && text[i + n] >= '0' && text[i + n] <= '7') ++n;
        out += encode_utf8(hex(text.substr(i, n), 8));
        i += n - 1;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const std::size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        std::uint32_t code = hex_digits(text, i + 1, n, c);
        i += n;
        if (code >= 0xD800 && code < 0xDC00 && text.compare(i + 1, 2, "\\u") == 0) {
          const std::uint32_t low = hex_digits(text, i + 3, 4, 'u');
          if (low >= 0xDC00 && low < 0xE000) {
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            i += 6;
          }
        }
        out += encode_utf8(code);
      } else if (c == 'N') {
        fail("character names (\\N{...}) are not supported");
      } else {
        out.push_back('\\');
        out.push_back(c);
      }
    }
    return out;
  }

  static std::uint32_t hex(const std::string& digits, int base) {
    return static_cast<std::uint32_t>(std::strtoul(digits.c_str(), nullptr, base));
  }

  std::uint32_t hex_digits(const std::string& text, std::size_t at, std::size_t n, char c) const {
    const std::string digits = at <= text.size() ? text.substr(at, n) : "";
    if (digits.size() < n ||
        digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
      fail(std::string("truncated \\") + c + std::string(n, 'X') + " escape");
    return hex(digits, 16);
  }

  bool operator_token() {
    constexpr std::array<std::string_view, 26> kOperators{
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    const auto it = std::find_if(kOperators.begin(), kOperators.end(),
                                 [&](std::string_view symbol) { return looking_at(symbol); });
    if (it == kOperators.end()) return false;
    const char c = (*it)[0];
    if (c == '(' || c == '[' || c == '{') {
      open_.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (open_.empty()) fail(std::string("unexpected '") + c + "'");
      const char expected = open_.back();
      open_.pop_back();
      if (expected != c) fail(std::string("unexpected '") + c + "', expected '" + expected + "'");
    }
    add(TokenType::kOperator, std::string(*it));
    advance(at_ + it->size());
    return true;
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the token before ended a line
  std::string open_;           // the closing brackets that are due
  std::vector<Token> tokens_;
};

}  // namespace

std::string describe(const Token& token) {
  switch (token.type) {
    case TokenType::kData: return "template data / text";
    case TokenType::kVariableBegin: return "begin of print statement";
    case TokenType::kVariableEnd: return "end of print statement";
    case TokenType::kBlockBegin: return "begin of statement block";
    case TokenType::kBlockEnd: return "end of statement block";
    case TokenType::kString: return "string";
    case TokenType::kInteger: return "integer";
    case TokenType::kFloat: return "float";
    case TokenType::kEnd: return "end of template";
    default: return token.text;
  }
}

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace minisgl::jinja
