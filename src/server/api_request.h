// What every API's request comes down to: prompts, and how each is to be continued.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "llm/generator.h"

namespace minisgl {

/// A request for one or more choices. They are ordered by prompt, then by repetition, and so are
/// the answers that they are chosen from.
struct ApiRequest {
  std::string model;  ///< the served id, whatever was asked for
  bool stream = false;
  bool include_usage = false;  ///< a stream ends with its usage
  int n = 1;                   ///< choices for each prompt
  int best_of = 1;  ///< answers generated for each prompt; of more than n, the likeliest are chosen
  std::vector<decltype(GenerateRequest::prompt)> prompts = {};
  SamplingParams sampling = {};                      ///< max_tokens < 0: until the context ends
  std::string param = {};                            ///< the field that the prompts came from
  ReasoningStart reasoning = ReasoningStart::kOver;  ///< before a constrained answer

  std::size_t num_choices() const { return prompts.size() * static_cast<std::size_t>(n); }
  std::size_t num_answers() const { return prompts.size() * static_cast<std::size_t>(best_of); }
  /// What to generate for an answer: repetition i of a prompt draws with seed + i.
  GenerateRequest generate_request(std::size_t answer) const;
};

/// What the operator decided about requests.
struct RequestRules {
  std::string served_name;
  std::vector<std::string> aliases = {};  ///< other names that requests may have for the model
  bool accept_any_model = false;

  /// Whether `model` is one of the names. Another may be accepted nevertheless.
  bool serves(std::string_view model) const;
  /// StatusError 404, naming what is served.
  [[noreturn]] void refuse(std::string_view model) const;
};

/// What the reading of a body may draw upon.
struct ApiContext {
  const Generator& generator;
  const RequestRules& rules;
  std::string unique_id;     ///< of this request; an API puts its own prefix before it
  std::int64_t created = 0;  ///< seconds since 1970
};

}  // namespace minisgl
