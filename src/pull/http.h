// Fetching over HTTP, with libcurl.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

namespace minisgl::pull {

/// What the end of a request came of. Whether it is worth another attempt is for the caller.
struct HttpReply {
  int status = 0;  ///< 0: no reply came
  std::map<std::string, std::string, std::less<>>
      headers;        ///< of the last reply; names in lower case
  std::string body;   ///< unless it went to a sink
  std::string fault;  ///< why no reply, or not all of it, came; empty when all did

  std::string header(std::string_view name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

/// Thrown when `stop` says so.
class Stopped : public std::runtime_error {
 public:
  Stopped() : std::runtime_error("stopped") {}
};

/// One connection that is used again. Not thread-safe.
class HttpClient {
 public:
  /// `stop` is asked ten times a second while a request runs; true ends it with Stopped.
  explicit HttpClient(std::function<bool()> stop);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  struct Request {
    std::string url;
    std::string token;      ///< sent to the host of `url` alone, wherever it redirects to
    std::int64_t from = 0;  ///< first byte wanted
    /// Called once with the last reply before its body; false: the body is not wanted.
    std::function<bool(const HttpReply&)> on_reply;
    /// Takes the body of a reply below 300 in pieces; what it throws ends the request.
    std::function<void(std::span<const std::byte>)> on_body;
  };

  /// GET. Follows up to ten redirects, not from https to http. Takes up to 64 MiB of a body that
  /// has no sink. Gives up when nothing comes for 30 s.
  HttpReply get(const Request& request);

  /// Waits, at all or not; throws Stopped.
  void sleep(std::chrono::milliseconds time) const;

 private:
  struct Transfer;
  HttpReply get_once(const std::string& url, const std::string& token, const Request& request);

  std::function<bool()> stop_;
  void* curl_;
};

/// Whether two addresses have the scheme, the host and the port in common.
bool same_origin(const std::string& a, const std::string& b);
/// Where a redirect from `base` to `location`, which may be relative, leads to. Throws Error.
std::string resolve_url(const std::string& base, const std::string& location);
/// `text` for a path or a query: all but letters, digits and - . _ ~ becomes %XX, '/' as well
/// unless it is to be kept.
std::string encode_url(const std::string& text, bool keep_slashes);

}  // namespace minisgl::pull
