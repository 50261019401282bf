#include "server/json.h"

#include <fmt/format.h>

#include <cmath>

#include "base/json_shape.h"
#include "minisgl/error.h"

namespace minisgl {
namespace {

[[noreturn]] void wrong(const char* name, const std::string& expected, const Json& found) {
  throw RequestError(fmt::format("{} must be {}, not {}", name, expected, describe(found)), name);
}

}  // namespace

std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json parse_object(std::string_view body) {
  check_json_shape(body, "the body");
  Json value;
  try {
    value = Json::parse(body);
  } catch (const Json::exception& e) {
    std::string_view reason = e.what();  // "[json.exception.parse_error.101] parse error at ..."
    if (const std::size_t end = reason.find("] "); end != std::string_view::npos)
      reason.remove_prefix(end + 2);
    throw RequestError(fmt::format("the body is not JSON: {}", reason));
  }
  if (!value.is_object())
    throw RequestError(fmt::format("the body must be a JSON object, not {}", describe(value)));
  return value;
}

HttpReply json_reply(const Json& body) {
  return {.status = 200, .body = dump(body), .content_type = "application/json", .headers = {}};
}

std::string describe(const Json& value) {
  constexpr std::size_t kLimit = 60;
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  std::string text = dump(value);
  if (text.size() > kLimit) {
    std::size_t end = kLimit;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
    text.resize(end);
    text += "...";
  }
  return text;
}

std::optional<std::int64_t> as_integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto n = value.get<std::uint64_t>();
    if (n > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return std::nullopt;
    return static_cast<std::int64_t>(n);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number_float()) {
    const double d = value.get<double>();
    // 2^53: beyond it a float does not name one integer.
    if (std::abs(d) <= 9007199254740992.0 && std::trunc(d) == d)
      return static_cast<std::int64_t>(d);
  }
  return std::nullopt;
}

const Json* Fields::find(const char* name) const {
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

bool Fields::boolean(const char* name, bool fallback) const {
  const Json* value = find(name);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) wrong(name, "true or false", *value);
  return value->get<bool>();
}

double Fields::number(const char* name, double fallback, double min, double max) const {
  const Json* value = find(name);
  if (value == nullptr) return fallback;
  const std::string expected = fmt::format("a number from {} to {}", min, max);
  if (!value->is_number()) wrong(name, expected, *value);
  const double d = value->get<double>();
  if (!(d >= min && d <= max)) wrong(name, expected, *value);
  return d;
}

std::optional<std::int64_t> Fields::integer(const char* name, std::int64_t min,
                                            std::int64_t max) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<std::int64_t> n = as_integer(*value);
  if (n && *n >= min && *n <= max) return n;
  using Limits = std::numeric_limits<std::int64_t>;
  std::string expected = "an integer";
  if (min != Limits::min() && max != Limits::max())
    expected += fmt::format(" from {} to {}", min, max);
  else if (min != Limits::min())
    expected += fmt::format(" of at least {}", min);
  wrong(name, expected, *value);
}

std::optional<std::string> Fields::string(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) wrong(name, "a string", *value);
  return value->get<std::string>();
}

const Json* Fields::array(const char* name) const {
  const Json* value = find(name);
  if (value != nullptr && !value->is_array()) wrong(name, "an array", *value);
  return value;
}

const Json* Fields::object(const char* name) const {
  const Json* value = find(name);
  if (value != nullptr && !value->is_object()) wrong(name, "an object", *value);
  return value;
}

}  // namespace minisgl
