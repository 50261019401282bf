// What the routes see of HTTP: no socket, no library.

#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/error.h"

namespace minisgl {

struct HttpRequest {
  std::string method;  ///< "GET", ...
  std::string target;  ///< as sent: path, and a query after '?'
  std::string body;
  /// When its last byte had come in.
  std::chrono::steady_clock::time_point arrival = std::chrono::steady_clock::now();
};

/// A whole reply.
struct HttpReply {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;  ///< further ones
};

/// A request that gets another status than 400.
class StatusError : public RequestError {
 public:
  StatusError(int status, const std::string& message, std::string param = "", std::string code = "")
      : RequestError(message, std::move(param), std::move(code)), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

/// {"error":{"message","type","param","code"}} for a status of 400 or more; empty `param` and
/// `code` become null. `type` is rate_limit_error for 429, else invalid_request_error below 500,
/// unavailable_error for 503, else server_error. Bytes that are not UTF-8 become U+FFFD.
std::string error_json(int status, const std::string& message, const std::string& param = "",
                       const std::string& code = "");
HttpReply error_reply(int status, const std::string& message, const std::string& param = "",
                      const std::string& code = "");

}  // namespace minisgl
