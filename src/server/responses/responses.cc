#include "server/responses/responses.h"

#include <memory>
#include <utility>

#include "llm/sampling_json.h"
#include "server/chat_prompt.h"
#include "server/request_fields.h"
#include "server/responses/response_reply.h"

namespace minisgl::responses {
namespace {

// What needs a memory between requests.
void refuse_memory(const Fields& fields) {
  for (const char* field : {"previous_response_id", "conversation", "background", "prompt"})
    if (const Json* value = fields.find(field); value != nullptr && *value != false)
      throw RequestError(
          std::string(field) +
              " is not supported: responses are not kept; send the whole conversation as input",
          field, "unsupported_parameter");
}

// [{"type":"function","name":...}] as chat completions have it.
Json chat_tools(const Json& tools) {
  Json all = Json::array();
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const Json& tool = tools[i];
    const std::string where = "tools[" + std::to_string(i) + "]";
    if (!tool.is_object())
      throw RequestError(where + ": a tool must be an object, not " + describe(tool), where);
    if (tool.value("type", Json()) != "function")
      throw RequestError(where + ".type: only tools of type \"function\" are supported, not " +
                             describe(tool.value("type", Json())),
                         where + ".type");
    Json function = Json::object();
    for (const char* member : {"name", "description", "parameters", "strict"})
      if (tool.contains(member) && !tool[member].is_null()) function[member] = tool[member];
    all.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  check_tools(all, "tools");
  return all;
}

ToolChoice read_tool_choice(const Fields& fields) {
  using Kind = ToolChoice::Kind;
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr || *choice == "auto") return {.kind = Kind::kAuto};
  if (*choice == "none") return {.kind = Kind::kNone};
  if (*choice == "required") return {.kind = Kind::kRequired};
  if (choice->is_object() && choice->value("type", Json()) == "function" &&
      choice->value("name", Json()).is_string())
    return {.kind = Kind::kFunction, .function = (*choice)["name"].get<std::string>()};
  throw RequestError(
      "tool_choice must be \"none\", \"auto\", \"required\" or {\"type\": \"function\", \"name\": "
      "...}, not " +
          describe(*choice),
      "tool_choice");
}

// text.format: as response_format, but a schema and its name are members of the format itself.
ResponseFormat read_format(const Fields& fields) {
  const Json* text = fields.object("text");
  const Json* format = text == nullptr ? nullptr : Fields(*text).object("format");
  if (format == nullptr) return {};
  if (format->value("type", Json()) == "json_schema")
    return response_format_from_json({{"type", "json_schema"}, {"json_schema", *format}});
  return response_format_from_json(*format);
}

ChatInputs read_inputs(const Fields& fields) {
  const Json* input = fields.find("input");
  if (input == nullptr) throw RequestError("input is missing", "input");
  ChatInputs inputs{.messages = chat_messages(fields.find("instructions"), *input), .tools = {}};
  if (const Json* tools = fields.array("tools"); tools != nullptr && !tools->empty())
    inputs.tools = chat_tools(*tools);
  inputs.choice = read_tool_choice(fields);
  inputs.parallel_calls = fields.boolean("parallel_tool_calls", true);
  if (const Json* kwargs = fields.object("chat_template_kwargs")) inputs.kwargs = *kwargs;
  if (const Json* reasoning = fields.object("reasoning"))
    if (auto effort = Fields(*reasoning).string("effort"))
      inputs.kwargs["reasoning_effort"] = *effort;
  return inputs;
}

// What the response repeats of the request.
Json echo(const Fields& fields, const ApiRequest& request) {
  const auto given = [&](const char* name, const Json& otherwise) {
    const Json* value = fields.find(name);
    return value == nullptr ? otherwise : *value;
  };
  return {{"instructions", given("instructions", nullptr)},
          {"max_output_tokens", given("max_output_tokens", nullptr)},
          {"metadata", given("metadata", Json::object())},
          {"parallel_tool_calls", given("parallel_tool_calls", true)},
          {"previous_response_id", nullptr},
          {"reasoning", given("reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
          {"store", false},
          {"temperature", request.sampling.temperature},
          {"text", given("text", {{"format", {{"type", "text"}}}})},
          {"tool_choice", given("tool_choice", "auto")},
          {"tools", given("tools", Json::array())},
          {"top_p", request.sampling.top_p},
          {"truncation", "disabled"}};
}

}  // namespace

Job open_response(std::string_view body, const ApiContext& context) {
  const Json object = parse_object(body);
  const Fields fields(object);
  ApiRequest request{.model = context.rules.served_name, .param = "input"};
  check_model(fields, context.rules);
  refuse_memory(fields);
  request.stream = fields.boolean("stream", false);
  request.sampling = read_sampling(fields, context.generator, openai_sampling(context.generator));
  request.sampling.max_tokens = fields.integer("max_output_tokens", 0).value_or(-1);
  request.sampling.response_format = read_format(fields);
  const OutputFormat format = add_chat(read_inputs(fields), context.generator, request);
  auto reply = std::make_unique<ResponseReply>(context, request, format, echo(fields, request));
  return {.request = std::move(request), .reply = std::move(reply)};
}

}  // namespace minisgl::responses
