// The prompt of a chat, and what its answer will look like: what the chat APIs have in common.

#pragma once

#include <cstdint>
#include <string>

#include "chat/output_parser.h"
#include "server/api_request.h"
#include "server/json.h"

namespace minisgl {

/// May, or must, the model call a tool?
struct ToolChoice {
  enum class Kind : std::uint8_t { kNone, kAuto, kRequired, kFunction };
  Kind kind = Kind::kAuto;
  std::string function = {};  ///< for kFunction
};

/// A chat in the form of OpenAI's API, to which the others are brought first.
struct ChatInputs {
  Json messages;
  Json tools;  ///< [{"type":"function","function":{"name","description","parameters"}}], or null
  ToolChoice choice = {};
  bool parallel_calls = true;
  Json kwargs = Json::object();  ///< further variables of the template
  bool add_generation_prompt = true;
  bool continue_final_message = false;  ///< the answer goes on with the last message
  bool separate_reasoning = true;       ///< else reasoning stays in the content
};

/// Renders the chat into `request.prompts`, makes a constraint of a call that is required, and says
/// how the answer is to be read. Throws RequestError, naming the field, for tools that are not well
/// described, for a choice that is not among them, and for messages that cannot be rendered.
OutputFormat add_chat(const ChatInputs& inputs, const Generator& generator, ApiRequest& request);

/// Throws RequestError for what is not an array of OpenAI's function tools. `param` names it.
void check_tools(const Json& tools, const std::string& param);

/// An id for a tool call of the request `unique_id`: letters and digits. Nine of them: Mistral's
/// templates take no other length.
std::string tool_call_id(const std::string& unique_id, std::size_t choice, std::size_t call);

}  // namespace minisgl
