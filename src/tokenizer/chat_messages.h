// Messages of the OpenAI API brought to the form that chat templates are written for.

#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace minisgl {

/// system, developer, user, assistant, tool.
bool is_known_role(std::string_view role);

struct NormaliseOptions {
  bool developer_as_system = false;  ///< for a template that does not know the role
};

/// Checks the messages and returns them as transformers' templates expect them:
///  - content null or [] becomes ""; text parts are joined with "\n" (as vllm does),
///  - the arguments of a tool call, a JSON string in the API, become the object,
///  - other fields that are null are dropped, as transformers 5 does.
/// Throws RequestError (param "messages" or "messages[i]...") for no messages, an unknown role, a
/// part that is not text, and for anything that is not of the API's shape.
nlohmann::ordered_json normalise_messages(nlohmann::ordered_json messages,
                                          NormaliseOptions options = {});

}  // namespace minisgl
