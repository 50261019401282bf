// The reply of /v1/chat/completions: one chat.completion, or a stream of chat.completion.chunk.

#pragma once

#include <string>
#include <vector>

#include "chat/output_parser.h"
#include "server/openai/openai_json.h"
#include "server/reply.h"

namespace minisgl::openai {

/// The first chunk of each choice carries the role, one chunk of each choice its finish reason;
/// after the last choice come the usage, if asked for, and "[DONE]". An error is an event
/// {"error":...} and ends the stream.
class ChatReply final : public Reply {
 public:
  struct Options {
    OutputFormat format = {};
    bool logprobs = false;
  };
  ChatReply(const ApiContext& context, const ApiRequest& request, const Options& options);

  std::string add(std::size_t choice, const GenerateUpdate& update) override;
  std::string end_stream(const Usage& usage) override { return writer_.end(usage); }
  std::string end_stream_with(int status, const std::string& message) override {
    return end_stream_with_error(status, message);
  }
  HttpReply whole(const Usage& usage) const override;

 private:
  struct Choice {
    explicit Choice(const OutputFormat& format) : parser(format) {}

    OutputParser parser;
    FinishReason finish = FinishReason::kNone;
    bool started = false;                // a chunk was sent
    std::size_t num_calls = 0;           // so far
    std::vector<TextLogprobs> logprobs;  // not sent yet
    // Stay empty when streamed.
    std::string reasoning, content;
    Json calls = Json::array();
  };

  std::string events(std::size_t index, const std::vector<ChatPiece>& pieces);
  std::string event(std::size_t index, Json delta, const char* finish_reason);
  void collect(std::size_t index, const std::vector<ChatPiece>& pieces);
  std::string call_id(std::size_t index) const;
  Json whole_choice(std::size_t index) const;
  static const char* finish_reason(const Choice& choice);

  bool stream_;
  bool wants_logprobs_;
  std::string unique_id_;
  Json envelope_;
  ChunkWriter writer_;
  std::vector<Choice> choices_;
};

}  // namespace minisgl::openai
