#include "server/api_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/http_message.h"

namespace minisgl {

GenerateRequest ApiRequest::generate_request(std::size_t answer) const {
  const std::size_t repetition = answer % static_cast<std::size_t>(best_of);
  GenerateRequest result{.prompt = prompts.at(answer / static_cast<std::size_t>(best_of)),
                         .sampling = sampling,
                         .param = param,
                         .reasoning = reasoning};
  if (sampling.seed) result.sampling.seed = *sampling.seed + repetition;
  // To know the likeliest, the sum of the log-probabilities is needed.
  if (best_of > n && !sampling.num_logprobs) result.sampling.num_logprobs = 0;
  return result;
}

bool RequestRules::serves(std::string_view model) const {
  return model == served_name || std::find(aliases.begin(), aliases.end(), model) != aliases.end();
}

void RequestRules::refuse(std::string_view model) const {
  std::string known = fmt::format("\"{}\"", served_name);
  for (const std::string& alias : aliases) known += fmt::format(", \"{}\"", alias);
  throw StatusError(
      404, fmt::format("the model \"{}\" is not served here; this server has {}", model, known),
      "model", "model_not_found");
}

}  // namespace minisgl
