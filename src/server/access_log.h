// One line in the log for each request.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/log.h"

namespace minisgl {

/// In the log: the client left before its reply was complete (nginx's number for it).
inline constexpr int kClientGone = 499;

struct AccessRecord {
  std::string client;  ///< address
  std::string method;
  std::string path;  ///< without the query, which may hold what is nobody's business
  std::string request_id;
  int status = 0;
  double seconds = 0;             ///< from the request's last byte to the reply's
  double first_byte_seconds = 0;  ///< to the first byte of the reply
  bool generated = false;         ///< the rest counts
  bool stream = false;
  std::int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
};

/// "POST /v1/chat/completions 200 in 0.512 s, first after 0.120 s, 12 (8 cached) + 34 tokens, from
/// 127.0.0.1, id 1f"; as JSON every number in a field of its own. Health checks and scrapes that
/// succeed are for the level debug.
void write_access_log(const AccessRecord& record);

/// A target as it may stand in a log: without query, shortened to some 200 bytes.
std::string loggable_path(std::string_view target);

/// The client's X-Request-Id if it is harmless (1 to 128 characters that are printable ASCII and no
/// quotes), else a new one of 32 hex digits.
std::string request_id_or_new(std::string_view from_client);

}  // namespace minisgl
