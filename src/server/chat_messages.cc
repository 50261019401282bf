#include "server/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "minisgl/error.h"

namespace minisgl {
namespace {

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant",
                                                    "tool"};

[[noreturn]] void refuse(std::size_t index, const std::string& what) {
  throw RequestError(fmt::format("messages[{}]{}", index, what), "messages");
}

std::string joined_parts(const Json& parts, std::size_t index) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Json& part = parts[i];
    if (part.is_string()) {
      text += part.get_ref<const std::string&>();
      continue;
    }
    const auto type = part.is_object() ? part.find("type") : part.end();
    if (!part.is_object() || type == part.end() || !type->is_string())
      refuse(index, fmt::format(".content[{}] must be an object with a \"type\"", i));
    if (*type != "text" && *type != "refusal")
      refuse(index, fmt::format(".content[{}] is of type {}: the model takes text only", i,
                                describe(*type)));
    const auto value = part.find(type->get_ref<const std::string&>());
    if (value == part.end() || !value->is_string())
      refuse(index, fmt::format(".content[{}].{} must be a string", i, type->get<std::string>()));
    text += value->get_ref<const std::string&>();
  }
  return text;
}

void parse_arguments(Json& message, std::size_t index) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end()) return;
  if (calls->is_null()) {
    message.erase("tool_calls");  // templates ask whether it is defined
    return;
  }
  if (!calls->is_array()) refuse(index, ".tool_calls must be an array");
  for (Json& call : *calls) {
    const auto function = call.is_object() ? call.find("function") : call.end();
    if (!call.is_object() || function == call.end() || !function->is_object() ||
        !function->contains("name") || !(*function)["name"].is_string())
      refuse(index, ".tool_calls must hold objects with a \"function\" that has a \"name\"");
    const auto arguments = function->find("arguments");
    if (arguments == function->end() || !arguments->is_string()) continue;
    try {
      Json parsed = parse_object(arguments->get_ref<const std::string&>());
      *arguments = std::move(parsed);
    } catch (const RequestError&) {
      // A model may have written broken JSON in an earlier turn: the history is as it is.
    }
  }
}

Json normalized(const Json& message, std::size_t index) {
  if (!message.is_object()) refuse(index, " must be an object, not " + describe(message));
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string() ||
      std::find(kRoles.begin(), kRoles.end(), role->get_ref<const std::string&>()) == kRoles.end())
    refuse(index, fmt::format(".role must be one of {}, not {}", fmt::join(kRoles, ", "),
                              role == message.end() ? "absent" : describe(*role)));
  Json result = message;
  const auto content = message.find("content");
  if (content == message.end() || content->is_null())
    result["content"] = "";
  else if (content->is_array())
    result["content"] = joined_parts(*content, index);
  else if (!content->is_string())
    refuse(index, ".content must be a string or an array of parts, not " + describe(*content));
  parse_arguments(result, index);
  return result;
}

}  // namespace

Json normalize_messages(const Json& messages) {
  if (!messages.is_array() || messages.empty())
    throw RequestError(fmt::format("messages must be an array of at least one message, not {}",
                                   messages.is_array() ? "an empty one" : describe(messages)),
                       "messages");
  Json result = Json::array();
  for (std::size_t i = 0; i < messages.size(); ++i) result.push_back(normalized(messages[i], i));
  return result;
}

}  // namespace minisgl
