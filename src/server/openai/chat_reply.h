// The reply of /v1/chat/completions: one chat.completion, or a stream of chat.completion.chunk.

#pragma once

#include <string>
#include <vector>

#include "server/openai/openai_json.h"
#include "server/reply.h"

namespace minisgl::openai {

/// The first chunk of each choice carries the role, one chunk of each choice its finish reason;
/// after the last choice come the usage, if asked for, and "[DONE]". An error is an event
/// {"error":...} and ends the stream.
class ChatReply final : public Reply {
 public:
  ChatReply(const ApiContext& context, const ApiRequest& request);

  std::string add(std::size_t choice, const GenerateUpdate& update) override;
  std::string end_stream(const Usage& usage) override { return writer_.end(usage); }
  std::string end_stream_with(int status, const std::string& message) override {
    return end_stream_with_error(status, message);
  }
  HttpReply whole(const Usage& usage) const override;

 private:
  struct Choice {
    std::string text;  // empty when streamed
    FinishReason finish = FinishReason::kNone;
    bool started = false;  // a chunk was sent
  };

  bool stream_;
  Json envelope_;
  ChunkWriter writer_;
  std::vector<Choice> choices_;
};

}  // namespace minisgl::openai
