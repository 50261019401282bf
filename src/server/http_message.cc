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

HttpReply unauthorized_reply() {
  HttpReply reply = error_reply(401,
                                "a key is needed: send one of this server's API keys as "
                                "\"Authorization: Bearer KEY\" or \"x-api-key: KEY\"",
                                "", "invalid_api_key");
  reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

HttpReply draining_reply(std::string_view path) {
  HttpReply reply = error_reply(503, "the server is shutting down", "", "draining");
  if (path == "/health") reply.body = R"({"status":"draining"})";
  reply.headers.emplace_back("Retry-After", "1");
  return reply;
}

}  // namespace minisgl
