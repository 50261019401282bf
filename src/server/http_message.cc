#include "server/http_message.h"

#include "server/json.h"

namespace minisgl {

std::string error_json(int status, const std::string& message, const std::string& param,
                       const std::string& code) {
  const auto text_or_null = [](const std::string& s) { return s.empty() ? Json() : Json(s); };
  const char* type = status == 429   ? "rate_limit_error"
                     : status < 500  ? "invalid_request_error"
                     : status == 503 ? "unavailable_error"
                                     : "server_error";
  return dump({{"error",
                {{"message", message},
                 {"type", type},
                 {"param", text_or_null(param)},
                 {"code", text_or_null(code)}}}});
}

HttpReply error_reply(int status, const std::string& message, const std::string& param,
                      const std::string& code) {
  return {.status = status,
          .body = error_json(status, message, param, code),
          .content_type = "application/json",
          .headers = {}};
}

}  // namespace minisgl
