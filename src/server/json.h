// JSON that comes from strangers and JSON that goes to them.

#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "server/http_message.h"

namespace minisgl {

using Json = nlohmann::ordered_json;

/// Compact text. Never throws: bytes that are not UTF-8 become U+FFFD.
std::string dump(const Json& value);

/// The JSON object in a request's body. Throws RequestError that says where it is broken; also for
/// other values than objects, ill-formed UTF-8, numbers that overflow, and what
/// check_json_shape() refuses.
Json parse_object(std::string_view body);

/// `body` with status 200.
HttpReply json_reply(const Json& body);

/// `value` as text for an error message: at most some 60 bytes.
std::string describe(const Json& value);

/// The value of an integer, or of a float without a fraction; nullopt for all else and for what
/// does not fit.
std::optional<std::int64_t> as_integer(const Json& value);

/// Typed access to the optional fields of an object. A field that is null counts as absent. Every
/// member throws RequestError, naming the field, its range and what was found, when the type or the
/// range is wrong.
class Fields {
 public:
  /// `object` must outlive this.
  explicit Fields(const Json& object) : object_(object) {}

  const Json* find(const char* name) const;
  bool boolean(const char* name, bool fallback) const;
  double number(const char* name, double fallback, double min, double max) const;
  std::optional<std::int64_t> integer(
      const char* name, std::int64_t min = std::numeric_limits<std::int64_t>::min(),
      std::int64_t max = std::numeric_limits<std::int64_t>::max()) const;
  std::optional<std::string> string(const char* name) const;
  const Json* array(const char* name) const;
  const Json* object(const char* name) const;

 private:
  const Json& object_;
};

}  // namespace minisgl
