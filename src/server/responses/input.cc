#include <fmt/format.h>

#include <string>
#include <utility>

#include "server/responses/responses.h"

namespace minisgl::responses {
namespace {

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw RequestError(where + ": " + what, where);
}

std::string string_member(const Json& object, const char* name, const std::string& where) {
  const Json value = object.value(name, Json());
  if (!value.is_string())
    refuse(where + "." + name, "a string is expected, not " + describe(value));
  return value.get<std::string>();
}

// The text of a string or of parts input_text, output_text, reasoning_text, ...
std::string text_of(const Json& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (content.is_null()) return "";
  if (!content.is_array())
    refuse(where, "a string or an array of parts is expected, not " + describe(content));
  std::string text;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", where, i);
    if (!content[i].is_object())
      refuse(at, "a part must be an object, not " + describe(content[i]));
    const std::string type = string_member(content[i], "type", at);
    if (!type.ends_with("text"))
      refuse(at, "parts of type " + describe(type) + " are not supported here");
    if (i > 0) text += "\n";
    text += string_member(content[i], "text", at);
  }
  return text;
}

// The assistant's message to which reasoning and calls belong: the last one.
Json& assistant(Json& messages) {
  if (messages.empty() || messages.back()["role"] != "assistant")
    messages.push_back({{"role", "assistant"}, {"content", ""}});
  return messages.back();
}

void add_message(const Json& item, const std::string& where, Json& messages) {
  const std::string role = string_member(item, "role", where);
  std::string text = text_of(item.value("content", Json()), where + ".content");
  // Reasoning came before it.
  if (role == "assistant" && !messages.empty() && messages.back()["role"] == "assistant" &&
      messages.back()["content"] == "" && !messages.back().contains("tool_calls"))
    messages.back()["content"] = std::move(text);
  else
    messages.push_back({{"role", role}, {"content", std::move(text)}});
}

void add_item(const Json& item, const std::string& where, Json& messages) {
  if (!item.is_object()) refuse(where, "an item must be an object, not " + describe(item));
  const Json type = item.value("type", Json("message"));
  if (type == "message") {
    add_message(item, where, messages);
  } else if (type == "function_call") {
    assistant(messages)["tool_calls"].push_back(
        {{"id", string_member(item, "call_id", where)},
         {"type", "function"},
         {"function",
          {{"name", string_member(item, "name", where)},
           {"arguments", string_member(item, "arguments", where)}}}});
  } else if (type == "function_call_output") {
    messages.push_back({{"role", "tool"},
                        {"tool_call_id", string_member(item, "call_id", where)},
                        {"content", text_of(item.value("output", Json()), where + ".output")}});
  } else if (type == "reasoning") {
    const std::string text = text_of(item.value("content", Json()), where + ".content");
    if (!text.empty())
      messages.push_back({{"role", "assistant"}, {"content", ""}, {"reasoning_content", text}});
  } else {
    refuse(where + ".type", "items of type " + describe(type) + " are not supported here");
  }
}

}  // namespace

Json chat_messages(const Json* instructions, const Json& input) {
  Json messages = Json::array();
  if (instructions != nullptr)
    messages.push_back({{"role", "system"}, {"content", text_of(*instructions, "instructions")}});
  if (input.is_string()) {
    messages.push_back({{"role", "user"}, {"content", input}});
    return messages;
  }
  if (!input.is_array() || input.empty())
    refuse("input",
           "a string or an array of items that is not empty is expected, not " + describe(input));
  for (std::size_t i = 0; i < input.size(); ++i)
    add_item(input[i], fmt::format("input[{}]", i), messages);
  return messages;
}

}  // namespace minisgl::responses
