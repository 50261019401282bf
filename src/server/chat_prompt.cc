#include "server/chat_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace minisgl {
namespace {

using Choice = ToolChoice::Kind;

const std::string& name_of(const Json& tool) {
  return tool["function"]["name"].get_ref<const std::string&>();
}

// The schema of a tool's arguments.
Json parameters_of(const Json& tool) {
  const auto found = tool["function"].find("parameters");
  if (found == tool["function"].end() || found->is_null() || found->empty())
    return {{"type", "object"}, {"properties", Json::object()}};
  return *found;
}

// What a required call looks like: [{"name": ..., "parameters": {...}}, ...].
Json schema_of_calls(const Json& tools, bool parallel_calls) {
  Json calls = Json::array();
  Json definitions = Json::object();
  for (const Json& tool : tools) {
    Json parameters = parameters_of(tool);
    // References "#/$defs/X" are meant from the root, which is no longer that of the parameters.
    if (const auto defs = parameters.find("$defs"); defs != parameters.end() && defs->is_object()) {
      definitions.update(*defs);
      parameters.erase("$defs");
    }
    calls.push_back({{"type", "object"},
                     {"properties",
                      {{"name", {{"type", "string"}, {"enum", Json::array({name_of(tool)})}}},
                       {"parameters", std::move(parameters)}}},
                     {"required", {"name", "parameters"}},
                     {"additionalProperties", false}});
  }
  Json schema = {{"type", "array"}, {"minItems", 1}, {"items", {{"anyOf", std::move(calls)}}}};
  if (!parallel_calls) schema["maxItems"] = 1;
  if (!definitions.empty()) schema["$defs"] = std::move(definitions);
  return schema;
}

const Json& find_tool(const Json& tools, const std::string& function) {
  std::string known;
  for (const Json& tool : tools) {
    if (name_of(tool) == function) return tool;
    known += (known.empty() ? "" : ", ") + name_of(tool);
  }
  throw RequestError(
      fmt::format("tool_choice names \"{}\", which is not among the tools: {}", function, known),
      "tool_choice");
}

void constrain(ApiRequest& request, const Json& schema) {
  if (request.sampling.response_format.kind != ResponseFormat::Kind::kText)
    throw RequestError(
        "response_format cannot be kept together with a tool_choice that forces a call",
        "response_format");
  request.sampling.response_format = {.kind = ResponseFormat::Kind::kJsonSchema,
                                      .text = dump(schema)};
}

// Takes away what the template wrote after the content of the last message.
void end_with_last_message(const Json& messages, MarkedText& prompt) {
  const Json* last = messages.is_array() && !messages.empty() ? &messages.back() : nullptr;
  if (last == nullptr || !last->is_object() || !last->contains("content") ||
      !(*last)["content"].is_string() || last->value("role", Json()) != "assistant")
    throw RequestError(
        "continue_final_message needs a last message of the assistant whose content is a string",
        "continue_final_message");
  std::string content = (*last)["content"].get<std::string>();
  std::size_t at = content.empty() ? std::string::npos : prompt.text.rfind(content);
  if (at == std::string::npos) {  // many templates trim it
    const std::size_t begin = content.find_first_not_of(" \t\r\n");
    const std::size_t end = content.find_last_not_of(" \t\r\n");
    content = begin == std::string::npos ? "" : content.substr(begin, end + 1 - begin);
    at = content.empty() ? std::string::npos : prompt.text.rfind(content);
  }
  if (at == std::string::npos)
    throw RequestError("the chat template changes the last message: it cannot be continued",
                       "continue_final_message");
  const std::size_t size = at + content.size();
  prompt.text.resize(size);
  auto& spans = prompt.message_spans;
  spans.erase(std::remove_if(spans.begin(), spans.end(),
                             [size](const auto& span) { return span.begin >= size; }),
              spans.end());
  if (!spans.empty()) spans.back().end = std::min(spans.back().end, size);
}

}  // namespace

void check_tools(const Json& tools, const std::string& param) {
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const Json& tool = tools[i];
    const std::string where = fmt::format("{}[{}]", param, i);
    const auto refuse = [&](const std::string& what, const std::string& field) {
      throw RequestError(fmt::format("{}{}: {}", where, field, what), where + field);
    };
    if (!tool.is_object()) refuse("a tool must be an object, not " + describe(tool), "");
    if (tool.value("type", Json("function")) != "function")
      refuse("only tools of type \"function\" are supported, not " + describe(tool["type"]),
             ".type");
    const auto function = tool.find("function");
    if (function == tool.end() || !function->is_object())
      refuse("a tool must have an object \"function\"", ".function");
    const auto name = function->find("name");
    if (name == function->end() || !name->is_string() || *name == "")
      refuse("a function must have a name, a string that is not empty", ".function.name");
    const auto parameters = function->find("parameters");
    if (parameters != function->end() && !parameters->is_null() && !parameters->is_object())
      refuse(
          "a function's parameters must be a JSON schema, an object, not " + describe(*parameters),
          ".function.parameters");
  }
}

OutputFormat add_chat(const ChatInputs& inputs, const Generator& generator, ApiRequest& request) {
  const bool has_tools = inputs.tools.is_array() && !inputs.tools.empty();
  const bool shows_tools = has_tools && inputs.choice.kind != Choice::kNone;
  if (!has_tools &&
      (inputs.choice.kind == Choice::kRequired || inputs.choice.kind == Choice::kFunction))
    throw RequestError("tool_choice forces a call, but there are no tools", "tool_choice");
  OutputFormat format;
  const ChatDialect dialect = generator.chat_dialect();
  if (shows_tools && inputs.choice.kind == Choice::kRequired) {
    constrain(request, schema_of_calls(inputs.tools, inputs.parallel_calls));
    format.calls = CallSyntax::kList;
  } else if (shows_tools && inputs.choice.kind == Choice::kFunction) {
    constrain(request, parameters_of(find_tool(inputs.tools, inputs.choice.function)));
    format.calls = CallSyntax::kArguments;
    format.function = inputs.choice.function;
  } else if (shows_tools) {
    format.calls = dialect.calls;
    if (has_special_tokens(dialect.calls)) request.sampling.skip_special_tokens = false;
  }
  format.parallel_calls = inputs.parallel_calls;
  MarkedText prompt =
      generator.render_chat(inputs.messages, shows_tools ? inputs.tools : Json(), inputs.kwargs,
                            inputs.add_generation_prompt && !inputs.continue_final_message);
  if (inputs.continue_final_message) end_with_last_message(inputs.messages, prompt);
  const ReasoningStart start = reasoning_after(prompt.text);
  const bool is_free = request.sampling.response_format.kind == ResponseFormat::Kind::kText;
  // Reasoning that stays in the content leaves a constrained answer no room for any.
  format.reasoning = dialect.reasoning && inputs.separate_reasoning &&
                     (is_free || dialect.reasoning_before_formats);
  format.in_reasoning = start == ReasoningStart::kBegun;
  // A message that goes on has got its content already.
  const bool goes_on = inputs.continue_final_message && start != ReasoningStart::kBegun;
  if (format.reasoning && !goes_on) request.reasoning = start;
  request.prompts.emplace_back(std::move(prompt));
  return format;
}

std::string tool_call_id(const std::string& unique_id, std::size_t choice, std::size_t call) {
  constexpr std::string_view kDigits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  constexpr std::size_t kLength = 9;
  std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a
  const auto add = [&hash](unsigned char byte) { hash = (hash ^ byte) * 0x100000001b3U; };
  for (const char c : unique_id) add(static_cast<unsigned char>(c));
  for (const std::size_t n : {choice, call})
    for (int shift = 0; shift < 32; shift += 8) add(static_cast<unsigned char>(n >> shift));
  std::string id;
  for (std::size_t i = 0; i < kLength; ++i, hash /= kDigits.size())
    id += kDigits[hash % kDigits.size()];
  return id;
}

}  // namespace minisgl
