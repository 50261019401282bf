// The border between what was generated and how an API writes it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "llm/generator.h"
#include "server/api_request.h"
#include "server/http_message.h"

namespace minisgl {

struct Usage {
  std::int64_t prompt_tokens = 0;      ///< each prompt counted once, however many answers it has
  std::int64_t completion_tokens = 0;  ///< of all choices
  std::int64_t cached_tokens = 0;  ///< prompt tokens that the first answer of each prompt reused
};

/// One request's reply in the form of one API, while it grows: one object, or the events of a
/// stream. Each API has an implementation. Not thread-safe; Answer calls it.
class Reply {
 public:
  virtual ~Reply() = default;

  /// A choice gained something; its last update has a finish reason, kStop or kLength. Returns the
  /// bytes to send now; empty for a request that is not streamed.
  virtual std::string add(std::size_t choice, const GenerateUpdate& update) = 0;
  /// Every choice has its finish reason: the bytes that end the stream.
  virtual std::string end_stream(const Usage& usage) = 0;
  /// The whole reply, once every choice has its finish reason.
  virtual HttpReply whole(const Usage& usage) const = 0;

  /// The reply in place of whole() when something went wrong.
  virtual HttpReply failure(int status, const std::string& message) const {
    return error_reply(status, message);
  }
  /// The bytes that end a stream in which something went wrong.
  virtual std::string end_stream_with(int status, const std::string& message) = 0;
};

/// A body that was understood.
struct Job {
  ApiRequest request;
  std::unique_ptr<Reply> reply;
};

}  // namespace minisgl
