#include "minisgl/llm.h"

#include <condition_variable>
#include <mutex>

#include "llm/generate_all.h"
#include "llm/local_generator.h"

namespace minisgl {

class Llm::Impl {
 public:
  explicit Impl(const LlmOptions& options) : generator(options) {}
  LocalGenerator generator;
};

Llm::Llm(const LlmOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Llm::~Llm() = default;
Llm::Llm(Llm&&) noexcept = default;
Llm& Llm::operator=(Llm&&) noexcept = default;

SamplingParams Llm::with_model_defaults(SamplingParams params) const {
  return impl_->generator.sampling_defaults().over(std::move(params));
}

std::vector<Completion> Llm::generate(std::span<const Prompt> prompts,
                                      const SamplingParams& sampling) {
  const std::vector<SamplingParams> same(prompts.size(), sampling);
  return generate(prompts, same);
}

std::vector<Completion> Llm::generate(std::span<const Prompt> prompts,
                                      std::span<const SamplingParams> sampling) {
  if (prompts.size() != sampling.size())
    throw Error("generate() got " + std::to_string(prompts.size()) +
                " prompts, but sampling parameters for " + std::to_string(sampling.size()));
  std::vector<GenerateRequest> requests;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    GenerateRequest request{.prompt = prompts[i].text, .sampling = sampling[i]};
    if (!prompts[i].token_ids.empty()) request.prompt = prompts[i].token_ids;
    requests.push_back(std::move(request));
  }
  return generate_all(impl_->generator, std::move(requests), {});
}

}  // namespace minisgl
