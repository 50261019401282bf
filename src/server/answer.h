// All answers to one request while they are generated.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "llm/generator.h"
#include "server/api_request.h"
#include "server/http_message.h"
#include "server/reply.h"

namespace minisgl {

/// Counts tokens, knows which answers are still open and when all is over, and chooses the best
/// ones; how they are written is the Reply's. Not thread-safe.
class Answer {
 public:
  Answer(const ApiRequest& request, std::unique_ptr<Reply> reply);

  /// Takes an update of an answer. Returns the bytes to send now if the request is streamed.
  std::string add(std::size_t index, const GenerateUpdate& update);

  /// Ends everything with an error. Returns the bytes to send if the request is streamed.
  std::string fail(int status, const std::string& message);

  /// True when every answer has its finish reason, or after an error.
  bool finished() const { return failed_ || num_open_ == 0; }
  /// True while the answer has no finish reason.
  bool is_open(std::size_t index) const { return answers_.at(index).finish == FinishReason::kNone; }
  bool is_stream() const { return stream_; }
  /// The whole reply once finished, for requests that are not streamed.
  HttpReply whole() const;
  Usage usage() const;

 private:
  struct State {
    FinishReason finish = FinishReason::kNone;
    int prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
    GenerateUpdate all;  ///< every update joined, if the best are to be chosen
  };

  void choose_best();

  bool stream_;
  std::size_t n_, best_of_;
  std::unique_ptr<Reply> reply_;
  std::vector<State> answers_;
  std::size_t num_open_;
  bool failed_ = false;
  HttpReply error_;
};

}  // namespace minisgl
