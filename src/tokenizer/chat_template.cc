#include "tokenizer/chat_template.h"

#include <algorithm>
#include <chrono>
#include <string_view>

#include "minisgl/error.h"
#include "tokenizer/chat_messages.h"

namespace minisgl {
namespace {

using jinja::Str;
using jinja::Value;
using Json = nlohmann::ordered_json;

std::tm local_time() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

jinja::Template parse(const std::string& source) {
  try {
    return jinja::Template(source);
  } catch (const jinja::TemplateError& e) {
    throw Error("chat template, line " + std::to_string(e.line()) + ": " + e.what());
  }
}

// Marked, but for known roles.
Value messages_value(const Json& messages) {
  if (!messages.is_array()) return jinja::from_json(messages, /*marked=*/true);
  std::vector<Value> items;
  items.reserve(messages.size());
  for (const Json& message : messages) {
    if (!message.is_object()) {
      items.push_back(jinja::from_json(message, /*marked=*/true));
      continue;
    }
    jinja::Dict dict;
    for (const auto& [key, value] : message.items()) {
      const bool plain =
          key == "role" && value.is_string() && is_known_role(value.get_ref<const std::string&>());
      dict.set(Value::string(Str(key, /*marked=*/true)), jinja::from_json(value, !plain));
    }
    items.push_back(Value::dict(std::move(dict)));
  }
  return Value::list(std::move(items));
}

jinja::Variables variables_of(const ChatInput& input) {
  jinja::Variables all{
      {"messages", messages_value(input.messages)},
      {"tools", jinja::from_json(input.tools, /*marked=*/true)},
      {"documents", jinja::from_json(input.documents, /*marked=*/true)},
      {"add_generation_prompt", Value::boolean(input.add_generation_prompt)},
      {"bos_token", Value::string(input.bos_token)},
      {"eos_token", Value::string(input.eos_token)},
  };
  for (const auto& [name, value] : input.kwargs.items())
    all.emplace_back(name, jinja::from_json(value, /*marked=*/true));
  return all;
}

}  // namespace

ChatTemplate::ChatTemplate(std::string source, Clock clock)
    : source_(std::move(source)),
      template_(parse(source_)),
      clock_(clock ? std::move(clock) : Clock(local_time)) {}

MarkedText ChatTemplate::render(const ChatInput& input) const {
  try {
    return template_.render(variables_of(input), clock_());
  } catch (const jinja::TemplateError& e) {
    if (e.raised()) throw RequestError(e.what(), "messages");
    const std::string where = e.line() > 0 ? ", line " + std::to_string(e.line()) : "";
    throw RequestError("chat template" + where + ": " + e.what(), "messages");
  }
}

bool ChatTemplate::knows_role(const std::string& role) const {
  return source_.find(role) != std::string::npos;
}

}  // namespace minisgl
