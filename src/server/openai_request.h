// Request bodies to structs. Sources: OpenAI's API reference for chat completions and completions;
// mini-sglang server/api_server.py for /generate.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "llm/generator.h"

namespace minisgl {

enum class Endpoint { kChat, kCompletion, kGenerate };

/// A request for one or more answers. Its choices are ordered by prompt, then by repetition.
struct ApiRequest {
  Endpoint endpoint = Endpoint::kChat;
  std::string model;  ///< the served id, whatever was asked for
  bool stream = false;
  bool include_usage = false;
  int n = 1;  ///< answers for each prompt
  std::vector<decltype(GenerateRequest::prompt)> prompts;
  SamplingParams sampling;  ///< max_tokens < 0: until the context ends
  std::string param;        ///< the field that the prompts came from

  std::size_t num_choices() const { return prompts.size() * static_cast<std::size_t>(n); }
  /// What to generate for a choice: repetition i of a prompt draws with seed + i.
  GenerateRequest generate_request(std::size_t choice) const;
};

struct RequestRules {
  std::string served_name;
  bool accept_any_model = false;
};

/// Reads a body; renders chat messages with `generator`'s template. Absent and null fields take
/// what the model advises (Generator::sampling_defaults), else OpenAI's defaults (temperature 1;
/// max_tokens 16 for completions, the rest of the context for chats); for /generate the defaults
/// are upstream's (greedy, streamed). Unknown fields are ignored. Throws RequestError that names
/// the field for bad values and for fields whose function is not there (log-probabilities,
/// penalties, ...), StatusError 404 for another model.
ApiRequest parse_request(Endpoint endpoint, std::string_view body, const Generator& generator,
                         const RequestRules& rules);

}  // namespace minisgl
