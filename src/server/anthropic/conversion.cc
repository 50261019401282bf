#include "server/anthropic/conversion.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace minisgl::anthropic {
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

std::string type_of(const Json& block, const std::string& where) {
  if (!block.is_object())
    refuse(where, "a content block must be an object, not " + describe(block));
  return string_member(block, "type", where);
}

[[noreturn]] void refuse_block(const std::string& type, const std::string& where) {
  refuse(where, "content blocks of type " + describe(type) + " are not supported here");
}

// The text of a string or of text blocks.
std::string text_of(const Json& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (content.is_null()) return "";
  if (!content.is_array())
    refuse(where, "a string or an array of content blocks is expected, not " + describe(content));
  std::string text;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", where, i);
    if (const std::string type = type_of(content[i], at); type != "text") refuse_block(type, at);
    if (i > 0) text += "\n";
    text += string_member(content[i], "text", at);
  }
  return text;
}

void add_text(Json& message, const std::string& text) {
  if (!message.contains("content")) message["content"] = "";
  std::string& content = message["content"].get_ref<std::string&>();
  if (!content.empty()) content += "\n";
  content += text;
}

void add_assistant(const Json& blocks, const std::string& where, Json& all) {
  Json message = {{"role", "assistant"}, {"content", ""}};
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Json& block = blocks[i];
    const std::string at = fmt::format("{}[{}]", where, i);
    const std::string type = type_of(block, at);
    if (type == "text") {
      add_text(message, string_member(block, "text", at));
    } else if (type == "thinking") {
      message["reasoning_content"] = string_member(block, "thinking", at);
    } else if (type == "tool_use") {
      const Json input = block.value("input", Json::object());
      if (!input.is_object())
        refuse(at + ".input", "an object is expected, not " + describe(input));
      message["tool_calls"].push_back(
          {{"id", string_member(block, "id", at)},
           {"type", "function"},
           {"function", {{"name", string_member(block, "name", at)}, {"arguments", input}}}});
    } else if (type != "redacted_thinking") {
      refuse_block(type, at);
    }
  }
  all.push_back(std::move(message));
}

// Results of tools come before what the user says with them.
void add_user(const Json& blocks, const std::string& where, Json& all) {
  Json message = {{"role", "user"}};
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Json& block = blocks[i];
    const std::string at = fmt::format("{}[{}]", where, i);
    const std::string type = type_of(block, at);
    if (type == "text") {
      add_text(message, string_member(block, "text", at));
    } else if (type == "tool_result") {
      all.push_back({{"role", "tool"},
                     {"tool_call_id", string_member(block, "tool_use_id", at)},
                     {"content", text_of(block.value("content", Json()), at + ".content")}});
    } else {
      refuse_block(type, at);
    }
  }
  if (blocks.empty()) message["content"] = "";
  if (message.contains("content")) all.push_back(std::move(message));
}

}  // namespace

Json openai_messages(const Json* system, const Json& messages) {
  if (!messages.is_array() || messages.empty())
    refuse("messages", "an array of messages that is not empty is expected");
  Json all = Json::array();
  if (system != nullptr)
    if (std::string text = text_of(*system, "system"); !text.empty())
      all.push_back({{"role", "system"}, {"content", std::move(text)}});
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    const std::string where = fmt::format("messages[{}]", i);
    if (!message.is_object())
      refuse(where, "a message must be an object, not " + describe(message));
    const std::string role = string_member(message, "role", where);
    if (role != "user" && role != "assistant" && role != "system")
      refuse(where + ".role", "user or assistant is expected, not " + describe(role));
    const Json content = message.value("content", Json());
    if (role == "system" || !content.is_array())
      all.push_back({{"role", role}, {"content", text_of(content, where + ".content")}});
    else if (role == "assistant")
      add_assistant(content, where + ".content", all);
    else
      add_user(content, where + ".content", all);
  }
  return all;
}

Json openai_tools(const Json& tools) {
  Json all = Json::array();
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const Json& tool = tools[i];
    const std::string where = fmt::format("tools[{}]", i);
    if (!tool.is_object()) refuse(where, "a tool must be an object, not " + describe(tool));
    const Json type = tool.value("type", Json());
    if (!type.is_null() && type != "custom")
      refuse(where + ".type", "tools of type " + describe(type) + " are not supported here");
    Json function = {{"name", string_member(tool, "name", where)}};
    if (tool.contains("description") && !tool["description"].is_null())
      function["description"] = string_member(tool, "description", where);
    const Json schema = tool.value("input_schema", Json());
    if (!schema.is_object())
      refuse(where + ".input_schema",
             "a JSON schema, an object, is expected, not " + describe(schema));
    function["parameters"] = schema;
    all.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return all;
}

}  // namespace minisgl::anthropic
