// The first lines of a response.

#pragma once

#include <string>

#include "server/access_control.h"
#include "server/http_message.h"

namespace minisgl {

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
