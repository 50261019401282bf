#include "server/anthropic/messages.h"

#include <memory>
#include <utility>

#include "server/anthropic/conversion.h"
#include "server/anthropic/message_reply.h"
#include "server/chat_prompt.h"
#include "server/json.h"
#include "server/request_fields.h"

namespace minisgl::anthropic {
namespace {

constexpr std::size_t kMaxStops = 16;

struct StatusType {
  int status;
  const char* type;
};
constexpr StatusType kTypes[] = {{401, "authentication_error"}, {403, "permission_error"},
                                 {404, "not_found_error"},      {413, "request_too_large"},
                                 {429, "rate_limit_error"},     {503, "overloaded_error"}};

const char* type_of(int status) {
  for (const StatusType& row : kTypes)
    if (row.status == status) return row.type;
  return status < 500 ? "invalid_request_error" : "api_error";
}

ToolChoice read_tool_choice(const Fields& fields, bool& parallel_calls) {
  using Kind = ToolChoice::Kind;
  const Json* choice = fields.object("tool_choice");
  if (choice == nullptr) return {};
  const Fields members(*choice);
  parallel_calls = !members.boolean("disable_parallel_tool_use", false);
  const std::string type = members.string("type").value_or("");
  if (type == "auto") return {.kind = Kind::kAuto};
  if (type == "none") return {.kind = Kind::kNone};
  if (type == "any") return {.kind = Kind::kRequired};
  if (type == "tool")
    return {.kind = Kind::kFunction, .function = members.string("name").value_or("")};
  throw RequestError("tool_choice.type must be auto, any, tool or none, not " + describe(type),
                     "tool_choice.type");
}

bool wants_thinking(const Fields& fields) {
  const Json* thinking = fields.object("thinking");
  if (thinking == nullptr) return false;
  const std::string type = Fields(*thinking).string("type").value_or("");
  if (type == "enabled" || type == "adaptive") return true;
  if (type == "disabled") return false;
  throw RequestError("thinking.type must be enabled, adaptive or disabled, not " + describe(type),
                     "thinking.type");
}

// The assistant's last words are the beginning of the answer.
bool is_to_be_continued(const Json& messages) {
  const Json& last = messages.back();
  return last["role"] == "assistant" && !last.contains("tool_calls") && last["content"] != "";
}

ChatInputs read_inputs(const Fields& fields) {
  const Json* messages = fields.find("messages");
  if (messages == nullptr) throw RequestError("messages is missing", "messages");
  ChatInputs inputs{.messages = openai_messages(fields.find("system"), *messages), .tools = {}};
  if (const Json* tools = fields.array("tools"); tools != nullptr && !tools->empty())
    inputs.tools = openai_tools(*tools);
  inputs.choice = read_tool_choice(fields, inputs.parallel_calls);
  inputs.kwargs["enable_thinking"] = wants_thinking(fields);
  if (const Json* kwargs = fields.object("chat_template_kwargs")) inputs.kwargs.update(*kwargs);
  inputs.continue_final_message = is_to_be_continued(inputs.messages);
  return inputs;
}

std::vector<std::string> read_stop_sequences(const Fields& fields) {
  const Json* sequences = fields.array("stop_sequences");
  std::vector<std::string> stop;
  if (sequences == nullptr) return stop;
  for (const Json& text : *sequences) {
    if (!text.is_string() || text == "")
      throw RequestError("stop_sequences must be strings that are not empty, not " + describe(text),
                         "stop_sequences");
    stop.push_back(text.get<std::string>());
  }
  if (stop.size() > kMaxStops)
    throw RequestError(
        "stop_sequences has " + std::to_string(stop.size()) + " strings, at most 16 are allowed",
        "stop_sequences");
  return stop;
}

}  // namespace

Job open_messages(std::string_view body, const ApiContext& context) {
  const Json object = parse_object(body);
  const Fields fields(object);
  ApiRequest request{.model = context.rules.served_name, .param = "messages"};
  check_model(fields, context.rules);
  request.stream = fields.boolean("stream", false);
  request.sampling = read_sampling(fields, context.generator, openai_sampling(context.generator));
  request.sampling.stop = read_stop_sequences(fields);
  const auto max_tokens = fields.integer("max_tokens", 0);
  if (!max_tokens) throw RequestError("max_tokens is missing", "max_tokens");
  request.sampling.max_tokens = *max_tokens;
  const OutputFormat format = add_chat(read_inputs(fields), context.generator, request);
  auto reply = std::make_unique<MessageReply>(context, request, format);
  return {.request = std::move(request), .reply = std::move(reply)};
}

HttpReply count_tokens(std::string_view body, const ApiContext& context) {
  const Json object = parse_object(body);
  const Fields fields(object);
  check_model(fields, context.rules);
  ApiRequest request;
  add_chat(read_inputs(fields), context.generator, request);
  const auto ids = context.generator.encode(request.prompts.at(0), /*add_special=*/false);
  return json_reply({{"input_tokens", ids.size()}});
}

HttpReply error_reply(int status, const std::string& message) {
  return {.status = status,
          .body = dump(
              {{"type", "error"}, {"error", {{"type", type_of(status)}, {"message", message}}}}),
          .content_type = "application/json",
          .headers = {}};
}

}  // namespace minisgl::anthropic
