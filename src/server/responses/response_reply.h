// The reply of /v1/responses: one response, or the events of a stream.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "chat/output_parser.h"
#include "server/json.h"
#include "server/reply.h"

namespace minisgl::responses {

/// Reasoning, text and calls are output items in the order in which the model wrote them. A stream
/// has response.created and response.in_progress, then for each item its added, delta and done
/// events, then response.completed or response.incomplete; or an event "error". All are numbered.
class ResponseReply final : public Reply {
 public:
  /// `echo`: what the response repeats of the request.
  ResponseReply(const ApiContext& context, const ApiRequest& request, const OutputFormat& format,
                Json echo);

  std::string add(std::size_t choice, const GenerateUpdate& update) override;
  std::string end_stream(const Usage& usage) override;
  HttpReply whole(const Usage& usage) const override;
  std::string end_stream_with(int status, const std::string& message) override;

 private:
  void take(const ChatPiece& piece);
  void begin_item(const ChatPiece& piece);
  void end_item();
  void emit(const char* type, const Json& members);
  void emit_of_item(const std::string& type, const Json& members);
  Json item(const char* status) const;
  Json part() const;
  Json response(const char* status, const Usage* usage) const;
  const char* final_status() const;

  bool stream_;
  std::string unique_id_, model_;
  std::int64_t created_;
  Json echo_;
  OutputParser parser_;

  std::string bytes_;  // events that were not returned yet
  std::int64_t sequence_number_ = 0;
  bool started_ = false;
  bool in_item_ = false;
  ChatPiece::Kind kind_ = ChatPiece::Kind::kContent;  // of the item
  std::string name_, text_;                           // of the item: function; text or arguments
  Json output_ = Json::array();                       // items that are done
  std::size_t num_calls_ = 0;
  FinishReason finish_ = FinishReason::kNone;
  std::int64_t reasoning_tokens_ = 0, pending_tokens_ = 0;
};

}  // namespace minisgl::responses
