#include "server/tokenize.h"

#include <string>
#include <utility>
#include <vector>

#include "server/json.h"
#include "server/openai/chat.h"
#include "server/request_fields.h"

namespace minisgl {
namespace {

std::vector<TokenId> ids_of(const Fields& fields, std::string_view body,
                            const ApiContext& context) {
  if (fields.find("messages") != nullptr) {
    const Job chat = openai::open_chat(body, context);
    return context.generator.encode(chat.request.prompts.at(0), /*add_special=*/false);
  }
  const auto prompt = fields.string("prompt");
  if (!prompt) throw RequestError("prompt is missing; a chat has messages in its place", "prompt");
  return context.generator.encode(*prompt, fields.boolean("add_special_tokens", true));
}

}  // namespace

HttpReply tokenize(std::string_view body, const ApiContext& context) {
  const Json object = parse_object(body);
  const Fields fields(object);
  check_model(fields, context.rules);
  const std::vector<TokenId> ids = ids_of(fields, body, context);
  Json texts;
  if (fields.boolean("return_token_strs", false)) {
    texts = Json::array();
    for (const TokenId id : ids) texts.push_back(context.generator.token_bytes(id));
  }
  return json_reply({{"count", ids.size()},
                     {"max_model_len", context.generator.max_seq_len()},
                     {"tokens", ids},
                     {"token_strs", std::move(texts)}});
}

HttpReply detokenize(std::string_view body, const ApiContext& context) {
  const Json object = parse_object(body);
  const Fields fields(object);
  check_model(fields, context.rules);
  const Json* tokens = fields.array("tokens");
  if (tokens == nullptr) throw RequestError("tokens is missing", "tokens");
  const std::vector<TokenId> ids = read_ids(*tokens, "tokens", context.generator.vocab_size());
  return json_reply({{"prompt", context.generator.decode(ids, /*skip_special=*/false)}});
}

}  // namespace minisgl
