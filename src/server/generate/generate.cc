#include "server/generate/generate.h"

#include <memory>

namespace minisgl {
namespace {

// Says that there was an answer, not which.
class EmptyReply final : public Reply {
 public:
  std::string add(std::size_t /*choice*/, const GenerateUpdate& /*update*/) override { return {}; }
  std::string end_stream(const Usage& /*usage*/) override { return {}; }
  std::string end_stream_with(int /*status*/, const std::string& /*message*/) override {
    return {};
  }
  HttpReply whole(const Usage& /*usage*/) const override {
    return {.status = 200, .body = {}, .content_type = "text/plain", .headers = {}};
  }
};

}  // namespace

Job open_generate(std::string_view body, const ApiContext& context) {
  const Json object = parse_object(body);
  for (const char* field : {"text", "input_ids", "sampling_params"})
    if (object.contains(field)) return open_sglang_generate(object, context);
  return open_mini_sglang_generate(object, context);
}

Job open_health_generate(std::string_view /*body*/, const ApiContext& context) {
  ApiRequest request{.model = context.rules.served_name,
                     .prompts = {std::vector<TokenId>{0}},
                     .sampling = {.max_tokens = 1},
                     .param = "prompt"};
  return {.request = std::move(request), .reply = std::make_unique<EmptyReply>()};
}

}  // namespace minisgl
