#include "server/http_head.h"

#include <fmt/format.h>

#include <boost/beast/http/error.hpp>
#include <boost/beast/http/status.hpp>
#include <string_view>

namespace minisgl {
namespace {

namespace http = boost::beast::http;

// What every response has, the empty line included.
std::string common_headers(const HeadFields& fields) {
  std::string text = "Server: minisgl\r\n";
  if (!fields.request_id.empty()) text += fmt::format("X-Request-Id: {}\r\n", fields.request_id);
  for (const auto& [name, value] : fields.extra_headers)
    text += fmt::format("{}: {}\r\n", name, value);
  if (!fields.keep_alive)
    text += "Connection: close\r\n";
  else if (fields.http_version < 11)
    text += "Connection: keep-alive\r\n";
  return text += "\r\n";
}

}  // namespace

HttpReply broken_request_reply(boost::system::error_code error, std::size_t max_body_bytes) {
  if (error == http::error::body_limit)
    return error_reply(413, fmt::format("the body is longer than {} bytes", max_body_bytes));
  if (error == http::error::header_limit)
    return error_reply(431, fmt::format("the headers are longer than {} bytes", kMaxHeaderBytes));
  return error_reply(400, "this is not an HTTP/1.1 request: " + error.message());
}

std::string reply_head(const HttpReply& reply, const HeadFields& fields) {
  const auto reason = http::obsolete_reason(static_cast<http::status>(reply.status));
  std::string text = fmt::format("HTTP/1.1 {} {}\r\n", reply.status,
                                 std::string_view(reason.data(), reason.size()));
  if (!reply.content_type.empty()) text += fmt::format("Content-Type: {}\r\n", reply.content_type);
  if (reply.status != 204) text += fmt::format("Content-Length: {}\r\n", reply.body.size());
  for (const auto& [name, value] : reply.headers) text += fmt::format("{}: {}\r\n", name, value);
  return text += common_headers(fields);
}

std::string stream_head(const HeadFields& fields) {
  return fmt::format(
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
      "Cache-Control: no-cache\r\n{}{}",
      fields.http_version >= 11 ? "Transfer-Encoding: chunked\r\n" : "", common_headers(fields));
}

}  // namespace minisgl
