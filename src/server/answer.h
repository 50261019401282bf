// Updates of generated choices to OpenAI's JSON: one object, or the events of a stream.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llm/generator.h"
#include "server/http_message.h"
#include "server/json.h"
#include "server/openai_request.h"

namespace minisgl {

struct Usage {
  std::int64_t prompt_tokens = 0;      ///< each prompt counted once, however many answers it has
  std::int64_t completion_tokens = 0;  ///< of all choices
  std::int64_t cached_tokens = 0;  ///< prompt tokens that the first answer of each prompt reused
};

/// The reply to one request while it grows. Not thread-safe.
///
/// A stream's first chunk of each choice carries the role (chats), one chunk of each choice its
/// finish reason; after the last choice come the usage, if asked for, and "[DONE]". An error is an
/// event {"error":...} and ends the stream. /generate streams events {"text":...}: upstream writes
/// bare text there, which line ends in it would break.
class Answer {
 public:
  /// `created` in seconds since 1970; `id` is unique.
  Answer(const ApiRequest& request, std::string id, std::int64_t created);

  /// Takes an update of a choice. Returns the bytes to send now if the request is streamed.
  std::string add(std::size_t choice, const GenerateUpdate& update);

  /// Ends everything with an error. Returns the bytes to send if the request is streamed.
  std::string fail(int status, const std::string& message);

  /// True when every choice has its finish reason, or after an error.
  bool finished() const { return failed_ || num_open_ == 0; }
  /// True while `choice` has no finish reason.
  bool is_open(std::size_t choice) const {
    return choices_.at(choice).finish == FinishReason::kNone;
  }
  bool is_stream() const { return stream_; }
  /// The whole reply once finished, for requests that are not streamed.
  HttpReply whole() const;
  Usage usage() const;

 private:
  struct Choice {
    std::string text;  ///< empty when streamed
    FinishReason finish = FinishReason::kNone;
    int prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
    bool started = false;  ///< a chunk was sent
  };

  std::string chunk(std::size_t index, const GenerateUpdate& update);
  Json envelope(bool is_chunk) const;
  Json whole_choice(std::size_t index) const;
  Json usage_json() const;

  Endpoint endpoint_;
  bool stream_;
  bool include_usage_;
  std::size_t n_;
  std::string model_;
  std::string id_;
  std::int64_t created_;
  std::vector<Choice> choices_;
  std::size_t num_open_;
  bool failed_ = false;
  HttpReply error_;
};

}  // namespace minisgl
