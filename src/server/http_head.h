// The first lines of requests and responses.

#pragma once

#include <boost/system/error_code.hpp>
#include <cstddef>
#include <cstdint>
#include <string>

#include "server/access_control.h"
#include "server/http_message.h"

namespace minisgl {

/// Longer heads of requests are refused.
inline constexpr std::uint32_t kMaxHeaderBytes = 32 << 10;

/// The reply to what Beast's parser could not read: 400, 413 for a body that is longer than
/// `max_body_bytes`, 431 for headers longer than kMaxHeaderBytes.
HttpReply broken_request_reply(boost::system::error_code error, std::size_t max_body_bytes);

/// What the head of a response depends on besides the reply.
struct HeadFields {
  unsigned http_version = 11;  ///< of the request
  bool keep_alive = true;
  std::string request_id;             ///< empty: none is written
  CorsPolicy::Headers extra_headers;  ///< of this request
};

/// Status line and headers, the empty line included. No value may hold a line end.
std::string reply_head(const HttpReply& reply, const HeadFields& fields);

/// The same for a stream of events, in chunks unless the client speaks HTTP/1.0 only.
std::string stream_head(const HeadFields& fields);

}  // namespace minisgl
