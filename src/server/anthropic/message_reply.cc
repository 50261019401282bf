#include "server/anthropic/message_reply.h"

#include <utility>

#include "server/anthropic/messages.h"
#include "server/chat_prompt.h"
#include "server/sse.h"

namespace minisgl::anthropic {
namespace {

using Kind = ChatPiece::Kind;

std::string event(const Json& data) {
  return sse_event(dump(data), data["type"].get_ref<const std::string&>());
}

// Tokens from the cache are not part of the input tokens.
Json usage_json(std::int64_t prompt_tokens, std::int64_t cached_tokens,
                std::int64_t completion_tokens) {
  return {{"input_tokens", prompt_tokens - cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached_tokens},
          {"output_tokens", completion_tokens}};
}

// The arguments as an object, which the API wants even of a call that was cut off.
Json input_of(const std::string& arguments) {
  Json input = Json::parse(arguments, nullptr, /*allow_exceptions=*/false);
  return input.is_object() ? input : Json::object();
}

}  // namespace

MessageReply::MessageReply(const ApiContext& context, const ApiRequest& request,
                           const OutputFormat& format)
    : stream_(request.stream),
      unique_id_(context.unique_id),
      model_(request.model),
      parser_(format) {}

std::string MessageReply::call_id(std::size_t call) const {
  return tool_call_id(unique_id_, /*choice=*/0, call);
}

Json MessageReply::message() const {
  return {{"id", "msg_" + unique_id_},
          {"type", "message"},
          {"role", "assistant"},
          {"model", model_},
          {"content", Json::array()},
          {"stop_reason", stop_reason_},
          {"stop_sequence", stop_sequence_}};
}

void MessageReply::set_stop_reason(const GenerateUpdate& update) {
  if (update.finish == FinishReason::kLength) {
    stop_reason_ = "max_tokens";
  } else if (const auto* text = std::get_if<std::string>(&update.stop_reason)) {
    stop_reason_ = "stop_sequence";
    stop_sequence_ = *text;
  } else {
    stop_reason_ = num_calls_ > 0 ? "tool_use" : "end_turn";
  }
}

std::string MessageReply::add(std::size_t /*choice*/, const GenerateUpdate& update) {
  std::string bytes;
  if (stream_ && !std::exchange(started_, true)) {
    Json start = message();
    start["usage"] =
        usage_json(update.prompt_tokens, update.cached_tokens, /*completion_tokens=*/0);
    bytes = event({{"type", "message_start"}, {"message", std::move(start)}});
  }
  std::vector<ChatPiece> pieces = parser_.push(update.text);
  const bool is_last = update.finish != FinishReason::kNone;
  if (is_last)
    for (ChatPiece& piece : parser_.finish()) pieces.push_back(std::move(piece));
  if (stream_) {
    bytes += events(pieces);
  } else {
    for (const ChatPiece& piece : pieces) {
      if (piece.kind == Kind::kCall) ++num_calls_;
      pieces_.add(piece.kind, piece.text);
    }
  }
  if (!is_last) return bytes;
  set_stop_reason(update);
  blocks_ = pieces_.take();
  if (stream_) bytes += end_block();
  return bytes;
}

std::string MessageReply::events(const std::vector<ChatPiece>& pieces) {
  std::string bytes;
  for (const ChatPiece& piece : pieces) {
    // Arguments belong to the block of their call.
    const Kind kind = piece.kind == Kind::kArguments ? Kind::kCall : piece.kind;
    if (!in_block_ || kind != block_kind_ || piece.kind == Kind::kCall) {
      bytes += end_block();
      bytes += begin_block(piece);
    }
    Json delta;
    switch (piece.kind) {
      case Kind::kContent: delta = {{"type", "text_delta"}, {"text", piece.text}}; break;
      case Kind::kReasoning: delta = {{"type", "thinking_delta"}, {"thinking", piece.text}}; break;
      case Kind::kArguments:
        delta = {{"type", "input_json_delta"}, {"partial_json", piece.text}};
        break;
      case Kind::kCall: continue;
    }
    bytes += event(
        {{"type", "content_block_delta"}, {"index", num_blocks_}, {"delta", std::move(delta)}});
  }
  return bytes;
}

std::string MessageReply::begin_block(const ChatPiece& piece) {
  in_block_ = true;
  block_kind_ = piece.kind;
  Json block;
  if (piece.kind == Kind::kContent) {
    block = {{"type", "text"}, {"text", ""}};
  } else if (piece.kind == Kind::kReasoning) {
    block = {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
  } else {
    block = {{"type", "tool_use"},
             {"id", call_id(num_calls_)},
             {"name", piece.text},
             {"input", Json::object()}};
    ++num_calls_;
  }
  return event({{"type", "content_block_start"},
                {"index", num_blocks_},
                {"content_block", std::move(block)}});
}

std::string MessageReply::end_block() {
  if (!std::exchange(in_block_, false)) return {};
  return event({{"type", "content_block_stop"}, {"index", num_blocks_++}});
}

std::string MessageReply::end_stream(const Usage& usage) {
  return event({{"type", "message_delta"},
                {"delta", {{"stop_reason", stop_reason_}, {"stop_sequence", stop_sequence_}}},
                {"usage",
                 usage_json(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)}}) +
         event({{"type", "message_stop"}});
}

HttpReply MessageReply::whole(const Usage& usage) const {
  Json body = message();
  Json& content = body["content"];
  std::size_t num_calls = 0;
  for (const ChatPiece& piece : blocks_) {
    switch (piece.kind) {
      case Kind::kContent: content.push_back({{"type", "text"}, {"text", piece.text}}); break;
      case Kind::kReasoning:
        content.push_back({{"type", "thinking"}, {"thinking", piece.text}, {"signature", ""}});
        break;
      case Kind::kCall:
        content.push_back({{"type", "tool_use"},
                           {"id", call_id(num_calls++)},
                           {"name", piece.text},
                           {"input", Json::object()}});
        break;
      case Kind::kArguments: content.back()["input"] = input_of(piece.text); break;
    }
  }
  body["usage"] = usage_json(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens);
  return json_reply(body);
}

HttpReply MessageReply::failure(int status, const std::string& message) const {
  return error_reply(status, message);
}

std::string MessageReply::end_stream_with(int status, const std::string& message) {
  return sse_event(error_reply(status, message).body, "error");
}

}  // namespace minisgl::anthropic
