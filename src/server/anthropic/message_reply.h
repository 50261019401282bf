// The reply of /v1/messages: one message, or the events of a stream.

#pragma once

#include <string>
#include <vector>

#include "chat/output_parser.h"
#include "server/json.h"
#include "server/reply.h"

namespace minisgl::anthropic {

/// Text, thinking and calls are content blocks in the order in which the model wrote them. A stream
/// has message_start, then content_block_start, its deltas and content_block_stop for each block,
/// then message_delta with the reason and message_stop; or an event "error".
class MessageReply final : public Reply {
 public:
  MessageReply(const ApiContext& context, const ApiRequest& request, const OutputFormat& format);

  std::string add(std::size_t choice, const GenerateUpdate& update) override;
  std::string end_stream(const Usage& usage) override;
  HttpReply whole(const Usage& usage) const override;
  HttpReply failure(int status, const std::string& message) const override;
  std::string end_stream_with(int status, const std::string& message) override;

 private:
  std::string events(const std::vector<ChatPiece>& pieces);
  std::string begin_block(const ChatPiece& piece);
  std::string end_block();
  Json message() const;
  void set_stop_reason(const GenerateUpdate& update);
  std::string call_id(std::size_t call) const;

  bool stream_;
  std::string unique_id_, model_;
  OutputParser parser_;
  std::size_t num_calls_ = 0;
  Json stop_reason_, stop_sequence_;
  bool started_ = false;
  bool in_block_ = false;
  ChatPiece::Kind block_kind_ = ChatPiece::Kind::kContent;
  std::size_t num_blocks_ = 0;
  ChatPieces pieces_;  // of the whole answer; stays empty when streamed
  std::vector<ChatPiece> blocks_;
};

}  // namespace minisgl::anthropic
