#include "server/api_request.h"

namespace minisgl {

GenerateRequest ApiRequest::generate_request(std::size_t choice) const {
  const std::size_t repetition = choice % static_cast<std::size_t>(n);
  GenerateRequest result{.prompt = prompts.at(choice / static_cast<std::size_t>(n)),
                         .sampling = sampling,
                         .param = param};
  if (sampling.seed) result.sampling.seed = *sampling.seed + repetition;
  return result;
}

}  // namespace minisgl
