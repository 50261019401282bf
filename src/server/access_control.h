// Who may ask what: API keys, and which web pages may read the answers (CORS).

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace minisgl {

/// Secrets of which a client must know one. Immutable, so thread-safe.
class ApiKeys {
 public:
  /// Throws Error for an empty key.
  explicit ApiKeys(std::vector<std::string> keys);

  /// Without keys everything is open; with keys, only what monitoring asks for: /health, /metrics
  /// and /version (vLLM leaves open whatever is not below /v1).
  bool guards(std::string_view path) const;

  /// Whether a header "Authorization: Bearer KEY" or "x-api-key: KEY" (Anthropic's) holds a key.
  /// The time it takes depends on the lengths of what is compared, not on where they differ.
  bool accepts(std::string_view authorization, std::string_view x_api_key) const;

 private:
  bool knows(std::string_view candidate) const;

  const std::vector<std::string> keys_;
};

/// Which pages of other origins may use the server from a browser.
/// Source: https://fetch.spec.whatwg.org/#http-cors-protocol
class CorsPolicy {
 public:
  using Headers = std::vector<std::pair<std::string, std::string>>;

  /// Origins such as "https://chat.example.org"; "*" stands for all. Throws Error for what no
  /// browser sends as an origin.
  explicit CorsPolicy(std::vector<std::string> origins);

  bool enabled() const { return !origins_.empty(); }

  /// What every reply to a request with this Origin gets; may be empty.
  Headers headers(std::string_view origin) const;
  /// The reply's headers if the request is a preflight that is to be answered, else nullopt.
  /// `requested_headers`: of Access-Control-Request-Headers.
  std::optional<Headers> preflight(std::string_view method, std::string_view origin,
                                   std::string_view requested_method,
                                   std::string_view requested_headers) const;

 private:
  bool allows(std::string_view origin) const;

  const std::vector<std::string> origins_;
  bool all_ = false;
};

}  // namespace minisgl
