#include "server/access_control.h"

#include <algorithm>
#include <cctype>
#include <cstddef>

#include "minisgl/error.h"

namespace minisgl {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::string_view bearer_token(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  authorization = trimmed(authorization);
  if (authorization.size() < kScheme.size()) return {};
  for (std::size_t i = 0; i < kScheme.size(); ++i)
    if (std::tolower(static_cast<unsigned char>(authorization[i])) != kScheme[i]) return {};
  return trimmed(authorization.substr(kScheme.size()));
}

/// Reads all of `candidate`, whatever it finds; volatile keeps the compiler from stopping early.
bool equal_in_constant_time(std::string_view candidate, std::string_view key) {
  volatile unsigned char difference = candidate.size() == key.size() ? 0 : 1;
  for (std::size_t i = 0; i < candidate.size(); ++i)
    difference =
        static_cast<unsigned char>(difference | (static_cast<unsigned char>(candidate[i]) ^
                                                 static_cast<unsigned char>(key[i % key.size()])));
  return difference == 0;
}

std::string checked_origin(std::string origin) {
  if (origin == "*" || origin == "null") return origin;
  const std::size_t scheme = origin.find("://");
  const bool has_path =
      scheme != std::string::npos && origin.find('/', scheme + 3) != std::string::npos;
  if (scheme == std::string::npos || scheme == 0 || scheme + 3 == origin.size() || has_path ||
      origin.find_first_of(" ,\r\n") != std::string::npos)
    throw Error("--cors-origin \"" + origin +
                "\" is not an origin: it is scheme and host, as in https://chat.example.org or "
                "http://localhost:3000, or * for all");
  return origin;
}

}  // namespace

ApiKeys::ApiKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {
  for (const std::string& key : keys_)
    if (trimmed(key).empty()) throw Error("an API key is empty: leave --api-key out for none");
}

bool ApiKeys::guards(std::string_view path) const {
  return !keys_.empty() && path != "/health" && path != "/metrics" && path != "/version";
}

bool ApiKeys::knows(std::string_view candidate) const {
  bool known = false;
  for (const std::string& key : keys_) known |= equal_in_constant_time(candidate, key);
  return known;
}

bool ApiKeys::accepts(std::string_view authorization, std::string_view x_api_key) const {
  const bool bearer = knows(bearer_token(authorization));
  return knows(trimmed(x_api_key)) || bearer;
}

CorsPolicy::CorsPolicy(std::vector<std::string> origins)
    : origins_([&] {
        std::vector<std::string> checked;
        for (std::string& origin : origins) checked.push_back(checked_origin(std::move(origin)));
        return checked;
      }()) {
  all_ = std::find(origins_.begin(), origins_.end(), "*") != origins_.end();
}

bool CorsPolicy::allows(std::string_view origin) const {
  return !origin.empty() &&
         (all_ || std::find(origins_.begin(), origins_.end(), origin) != origins_.end());
}

CorsPolicy::Headers CorsPolicy::headers(std::string_view origin) const {
  if (!enabled()) return {};
  Headers headers;
  if (!all_) headers.emplace_back("Vary", "Origin");
  if (!allows(origin)) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", all_ ? "*" : std::string(origin));
  headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
  return headers;
}

std::optional<CorsPolicy::Headers> CorsPolicy::preflight(std::string_view method,
                                                         std::string_view origin,
                                                         std::string_view requested_method,
                                                         std::string_view requested_headers) const {
  if (!enabled() || method != "OPTIONS" || requested_method.empty()) return std::nullopt;
  Headers headers = this->headers(origin);
  if (!allows(origin)) return headers;
  headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
  if (!requested_headers.empty())
    headers.emplace_back("Access-Control-Allow-Headers", std::string(requested_headers));
  headers.emplace_back("Access-Control-Max-Age", "600");
  return headers;
}

}  // namespace minisgl
