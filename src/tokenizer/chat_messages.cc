#include "tokenizer/chat_messages.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/json_shape.h"
#include "minisgl/error.h"

namespace minisgl {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 5> kRoles{"system", "developer", "user", "assistant",
                                                 "tool"};

// A value as a message shows it: short, one line.
std::string shown(const Json& v) {
  if (v.is_object()) return "an object";
  if (v.is_array()) return "an array";
  std::string text = v.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  constexpr std::size_t kMost = 60;
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

// The text of one content part.
std::string part_text(const Json& part, const std::string& where) {
  if (part.is_string()) return part.get<std::string>();
  if (!part.is_object() || !part.contains("type") || !part["type"].is_string())
    throw RequestError(
        where + ": a content part must be an object with a \"type\", found " + shown(part), where);
  const std::string type = part["type"].get<std::string>();
  if (type != "text")
    throw RequestError(where + ": content parts of type " + shown(part["type"]) +
                           " are not supported: this model reads text only",
                       where);
  if (!part.contains("text") || !part["text"].is_string())
    throw RequestError(where + ": a content part of type \"text\" must have a string \"text\"",
                       where);
  return part["text"].get<std::string>();
}

void normalise_content(Json& message, const std::string& where) {
  if (!message.contains("content")) {
    // Only an assistant that calls tools may say nothing at all.
    if (message["role"] != "assistant" || !message.contains("tool_calls"))
      throw RequestError(where + ": \"content\" is missing", where);
    message["content"] = "";
    return;
  }
  Json& content = message["content"];
  if (content.is_null()) {
    content = "";
  } else if (content.is_array()) {
    std::string text;
    for (std::size_t i = 0; i < content.size(); ++i) {
      if (i > 0) text += "\n";
      text += part_text(content[i], where + ".content[" + std::to_string(i) + "]");
    }
    content = std::move(text);
  } else if (!content.is_string()) {
    throw RequestError(
        where + ".content must be a string, an array of parts or null, found " + shown(content),
        where + ".content");
  }
}

void normalise_call(Json& call, const std::string& where) {
  if (!call.is_object() || !call.contains("function") || !call["function"].is_object())
    throw RequestError(where + ": a tool call must be an object with a \"function\"", where);
  Json& function = call["function"];
  if (!function.contains("name") || !function["name"].is_string())
    throw RequestError(where + ".function: a \"name\" is missing", where);
  if (!function.contains("arguments") || function["arguments"].is_null()) {
    function["arguments"] = Json::object();
    return;
  }
  Json& arguments = function["arguments"];
  if (!arguments.is_string()) return;  // an object already, as transformers has it
  const std::string& text = arguments.get_ref<const std::string&>();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {  // some clients send "" for {}
    arguments = Json::object();
    return;
  }
  check_json_shape(text, where + ".function.arguments");
  Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded())
    throw RequestError(where + ".function.arguments is not valid JSON: " + shown(arguments), where);
  arguments = std::move(parsed);
}

// Clients send every field of the API, null where it has no value; templates ask whether a field
// is there at all.
void drop_null_fields(Json& message) {
  Json kept = Json::object();
  for (auto& [key, value] : message.items()) {
    if (!value.is_null() || key == "content") kept[key] = std::move(value);
  }
  message = std::move(kept);
}

void normalise_calls(Json& message, const std::string& where) {
  if (!message.contains("tool_calls")) return;
  Json& calls = message["tool_calls"];
  if (!calls.is_array())
    throw RequestError(where + ".tool_calls must be an array, found " + shown(calls), where);
  for (std::size_t i = 0; i < calls.size(); ++i)
    normalise_call(calls[i], where + ".tool_calls[" + std::to_string(i) + "]");
}

void check_role(const Json& message, const std::string& where) {
  const bool there = message.contains("role") && message["role"].is_string();
  if (there && is_known_role(message["role"].get_ref<const std::string&>())) return;
  const std::string found = message.contains("role") ? shown(message["role"]) : "none";
  throw RequestError(
      where + ".role must be system, developer, user, assistant or tool, found " + found,
      where + ".role");
}

}  // namespace

bool is_known_role(std::string_view role) {
  return std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end();
}

nlohmann::ordered_json normalise_messages(nlohmann::ordered_json messages,
                                          NormaliseOptions options) {
  if (!messages.is_array())
    throw RequestError("messages must be an array of objects, found " + shown(messages),
                       "messages");
  if (messages.empty()) throw RequestError("messages must not be empty", "messages");
  for (std::size_t i = 0; i < messages.size(); ++i) {
    Json& message = messages[i];
    const std::string where = "messages[" + std::to_string(i) + "]";
    if (!message.is_object())
      throw RequestError(where + " must be an object, found " + shown(message), where);
    check_role(message, where);
    drop_null_fields(message);
    if (options.developer_as_system && message["role"] == "developer") message["role"] = "system";
    normalise_content(message, where);
    normalise_calls(message, where);
  }
  return messages;
}

}  // namespace minisgl
