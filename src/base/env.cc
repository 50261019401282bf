#include "base/env.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>

#include "minisgl/error.h"

namespace minisgl {
namespace {

std::string_view text_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

template <class T>
T parse(const char* name, T fallback, const char* expected) {
  const std::string_view text = text_of(name);
  if (text.empty()) return fallback;
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw Error(std::string("the environment variable ") + name + " is \"" + std::string(text) +
                "\", which is not " + expected);
  return value;
}

}  // namespace

double env_double(const char* name, double fallback) { return parse(name, fallback, "a number"); }
std::int64_t env_int(const char* name, std::int64_t fallback) {
  return parse(name, fallback, "an integer");
}

bool env_bool(const char* name, bool fallback) {
  std::string text(text_of(name));
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  if (text.empty()) return fallback;
  if (text == "1" || text == "true" || text == "yes" || text == "on") return true;
  if (text == "0" || text == "false" || text == "no" || text == "off") return false;
  throw Error(std::string("the environment variable ") + name + " is \"" + text +
              "\", which is neither true nor false");
}

}  // namespace minisgl
