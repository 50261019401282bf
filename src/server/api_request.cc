#include "server/api_request.h"

namespace minisgl {

GenerateRequest ApiRequest::generate_request(std::size_t answer) const {
  const std::size_t repetition = answer % static_cast<std::size_t>(best_of);
  GenerateRequest result{.prompt = prompts.at(answer / static_cast<std::size_t>(best_of)),
                         .sampling = sampling,
                         .param = param};
  if (sampling.seed) result.sampling.seed = *sampling.seed + repetition;
  // To know the likeliest, the sum of the log-probabilities is needed.
  if (best_of > n && !sampling.num_logprobs) result.sampling.num_logprobs = 0;
  return result;
}

}  // namespace minisgl
