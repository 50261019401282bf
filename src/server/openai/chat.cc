#include "server/openai/chat.h"

#include <memory>
#include <utility>

#include "server/chat_prompt.h"
#include "server/openai/chat_reply.h"
#include "server/request_fields.h"
#include "server/response_format.h"

namespace minisgl::openai {
namespace {

constexpr int kMaxTopLogprobs = 20;  // OpenAI's

ToolChoice read_tool_choice(const Fields& fields) {
  using Kind = ToolChoice::Kind;
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr || *choice == "auto") return {.kind = Kind::kAuto};
  if (*choice == "none") return {.kind = Kind::kNone};
  if (*choice == "required") return {.kind = Kind::kRequired};
  if (choice->is_object() && choice->value("type", Json()) == "function" &&
      choice->contains("function") && (*choice)["function"].is_object() &&
      (*choice)["function"].value("name", Json()).is_string())
    return {.kind = Kind::kFunction, .function = (*choice)["function"]["name"].get<std::string>()};
  throw RequestError(
      "tool_choice must be \"none\", \"auto\", \"required\" or {\"type\": \"function\", "
      "\"function\": {\"name\": ...}}, not " +
          describe(*choice),
      "tool_choice");
}

ChatInputs read_inputs(const Fields& fields, const Json& messages) {
  ChatInputs inputs{.messages = messages, .tools = {}};
  if (const Json* tools = fields.array("tools"); tools != nullptr && !tools->empty()) {
    check_tools(*tools, "tools");
    inputs.tools = *tools;
  }
  inputs.choice = read_tool_choice(fields);
  inputs.parallel_calls = fields.boolean("parallel_tool_calls", true);
  if (const Json* given = fields.object("chat_template_kwargs")) inputs.kwargs = *given;
  if (const Json* documents = fields.array("documents")) inputs.kwargs["documents"] = *documents;
  if (auto effort = fields.string("reasoning_effort")) inputs.kwargs["reasoning_effort"] = *effort;
  inputs.add_generation_prompt = fields.boolean("add_generation_prompt", true);
  inputs.continue_final_message = fields.boolean("continue_final_message", false);
  inputs.separate_reasoning = fields.boolean("separate_reasoning", true);
  return inputs;
}

OutputFormat read_prompt(const Fields& fields, const Generator& generator, ApiRequest& request) {
  if (const Json* messages = fields.find("messages")) {
    request.param = "messages";
    return add_chat(read_inputs(fields, *messages), generator, request);
  }
  // Upstream's chat endpoint also takes a raw prompt, without a template.
  auto prompt = fields.string("prompt");
  if (!prompt) throw RequestError("messages is missing", "messages");
  request.param = "prompt";
  request.prompts.emplace_back(std::move(*prompt));
  return {};
}

// Whether log-probabilities are wanted.
bool read_logprobs(const Fields& fields, SamplingParams& sampling) {
  const bool wanted = fields.boolean("logprobs", false);
  const auto top = fields.integer("top_logprobs", 0, kMaxTopLogprobs);
  if (top && !wanted)
    throw RequestError("top_logprobs is allowed only together with \"logprobs\": true",
                       "top_logprobs");
  if (wanted) sampling.num_logprobs = static_cast<int>(top.value_or(0));
  return wanted;
}

}  // namespace

Job open_chat(std::string_view body, const ApiContext& context) {
  const Json object = parse_object(body);
  const Fields fields(object);
  ApiRequest request{.model = context.rules.served_name};
  check_model(fields, context.rules);
  refuse_unsupported(fields);
  refuse_field(fields, "echo");
  read_stream(fields, /*stream_by_default=*/false, request);
  request.sampling = read_sampling(fields, context.generator, openai_sampling(context.generator));
  const auto old_name = fields.integer("max_tokens", 0);
  const auto new_name = fields.integer("max_completion_tokens", 0);
  request.sampling.max_tokens = new_name ? *new_name : old_name.value_or(-1);
  request.sampling.response_format = read_response_format(fields);
  ChatReply::Options options;
  options.logprobs = read_logprobs(fields, request.sampling);
  options.format = read_prompt(fields, context.generator, request);
  read_num_choices(fields, request);
  auto reply = std::make_unique<ChatReply>(context, request, options);
  return {.request = std::move(request), .reply = std::move(reply)};
}

}  // namespace minisgl::openai
