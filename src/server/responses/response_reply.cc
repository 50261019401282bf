#include "server/responses/response_reply.h"

#include <fmt/format.h>

#include <utility>

#include "server/chat_prompt.h"
#include "server/sse.h"

namespace minisgl::responses {

using Kind = ChatPiece::Kind;

ResponseReply::ResponseReply(const ApiContext& context, const ApiRequest& request,
                             const OutputFormat& format, Json echo)
    : stream_(request.stream),
      unique_id_(context.unique_id),
      model_(request.model),
      created_(context.created),
      echo_(std::move(echo)),
      parser_(format) {}

void ResponseReply::emit(const char* type, const Json& members) {
  Json event = {{"type", type}, {"sequence_number", sequence_number_++}};
  event.update(members);
  bytes_ += sse_event(dump(event), type);
}

// With the place of the item, and of its only part unless it is a call.
void ResponseReply::emit_of_item(const std::string& type, const Json& members) {
  if (!stream_) return;
  Json event = {{"item_id", item("")["id"]}, {"output_index", output_.size()}};
  if (kind_ != Kind::kCall) event["content_index"] = 0;
  event.update(members);
  emit(type.c_str(), event);
}

std::string ResponseReply::add(std::size_t /*choice*/, const GenerateUpdate& update) {
  if (stream_ && !std::exchange(started_, true)) {
    emit("response.created", {{"response", response("in_progress", nullptr)}});
    emit("response.in_progress", {{"response", response("in_progress", nullptr)}});
  }
  pending_tokens_ += static_cast<std::int64_t>(update.tokens.size());
  std::vector<ChatPiece> pieces = parser_.push(update.text);
  if (update.finish != FinishReason::kNone)
    for (ChatPiece& piece : parser_.finish()) pieces.push_back(std::move(piece));
  if (!pieces.empty()) {
    if (pieces.front().kind == Kind::kReasoning) reasoning_tokens_ += pending_tokens_;
    pending_tokens_ = 0;
  }
  for (const ChatPiece& piece : pieces) take(piece);
  finish_ = update.finish;
  if (finish_ != FinishReason::kNone) end_item();
  return std::exchange(bytes_, {});
}

void ResponseReply::take(const ChatPiece& piece) {
  const Kind kind = piece.kind == Kind::kArguments ? Kind::kCall : piece.kind;
  if (!in_item_ || kind != kind_ || piece.kind == Kind::kCall) {
    end_item();
    begin_item(piece);
  }
  if (piece.kind == Kind::kCall) return;
  text_ += piece.text;
  if (!stream_) return;
  Json members = {{"delta", piece.text}};
  if (kind_ == Kind::kContent) members["logprobs"] = Json::array();
  emit_of_item(kind_ == Kind::kContent     ? "response.output_text.delta"
               : kind_ == Kind::kReasoning ? "response.reasoning_text.delta"
                                           : "response.function_call_arguments.delta",
               std::move(members));
}

void ResponseReply::begin_item(const ChatPiece& piece) {
  in_item_ = true;
  kind_ = piece.kind;
  text_.clear();
  name_ = kind_ == Kind::kCall ? piece.text : "";
  if (!stream_) return;
  Json added = item("in_progress");
  if (kind_ != Kind::kCall) added["content"] = Json::array();
  emit("response.output_item.added",
       {{"output_index", output_.size()}, {"item", std::move(added)}});
  if (kind_ != Kind::kCall) emit_of_item("response.content_part.added", {{"part", part()}});
}

void ResponseReply::end_item() {
  if (!std::exchange(in_item_, false)) return;
  if (kind_ == Kind::kContent) {
    emit_of_item("response.output_text.done", {{"text", text_}, {"logprobs", Json::array()}});
  } else if (kind_ == Kind::kReasoning) {
    emit_of_item("response.reasoning_text.done", {{"text", text_}});
  } else {
    emit_of_item("response.function_call_arguments.done", {{"name", name_}, {"arguments", text_}});
  }
  if (kind_ != Kind::kCall) emit_of_item("response.content_part.done", {{"part", part()}});
  Json done = item(finish_ == FinishReason::kLength ? "incomplete" : "completed");
  if (stream_)
    emit("response.output_item.done", {{"output_index", output_.size()}, {"item", done}});
  output_.push_back(std::move(done));
  if (kind_ == Kind::kCall) ++num_calls_;
}

Json ResponseReply::part() const {
  if (kind_ == Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", text_}};
  return {{"type", "output_text"},
          {"text", text_},
          {"annotations", Json::array()},
          {"logprobs", Json::array()}};
}

Json ResponseReply::item(const char* status) const {
  const std::string id = fmt::format("{}_{}", unique_id_, output_.size());
  if (kind_ == Kind::kCall)
    return {{"id", "fc_" + id}, {"type", "function_call"},
            {"status", status}, {"call_id", tool_call_id(unique_id_, /*choice=*/0, num_calls_)},
            {"name", name_},    {"arguments", text_}};
  if (kind_ == Kind::kReasoning)
    return {{"id", "rs_" + id},
            {"type", "reasoning"},
            {"status", status},
            {"summary", Json::array()},
            {"content", Json::array({part()})}};
  return {{"id", "msg_" + id},
          {"type", "message"},
          {"status", status},
          {"role", "assistant"},
          {"content", Json::array({part()})}};
}

const char* ResponseReply::final_status() const {
  return finish_ == FinishReason::kLength ? "incomplete" : "completed";
}

// `usage`: null while the answer goes on.
Json ResponseReply::response(const char* status, const Usage* usage) const {
  Json body = {{"id", "resp_" + unique_id_},
               {"object", "response"},
               {"created_at", created_},
               {"status", status},
               {"error", nullptr},
               {"incomplete_details", nullptr},
               {"model", model_},
               {"output", output_}};
  if (usage != nullptr && finish_ == FinishReason::kLength)
    body["incomplete_details"] = {{"reason", "max_output_tokens"}};
  body.update(echo_);
  body["usage"] = nullptr;
  if (usage == nullptr) return body;
  body["usage"] = {{"input_tokens", usage->prompt_tokens},
                   {"input_tokens_details", {{"cached_tokens", usage->cached_tokens}}},
                   {"output_tokens", usage->completion_tokens},
                   {"output_tokens_details", {{"reasoning_tokens", reasoning_tokens_}}},
                   {"total_tokens", usage->prompt_tokens + usage->completion_tokens}};
  return body;
}

std::string ResponseReply::end_stream(const Usage& usage) {
  const std::string type = std::string("response.") + final_status();
  emit(type.c_str(), {{"response", response(final_status(), &usage)}});
  return std::exchange(bytes_, {});
}

HttpReply ResponseReply::whole(const Usage& usage) const {
  return json_reply(response(final_status(), &usage));
}

std::string ResponseReply::end_stream_with(int status, const std::string& message) {
  emit("error", {{"code", status == 503 ? "server_overloaded" : "server_error"},
                 {"message", message},
                 {"param", nullptr}});
  return std::exchange(bytes_, {});
}

}  // namespace minisgl::responses
