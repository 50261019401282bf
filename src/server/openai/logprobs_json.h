// Log-probabilities in the two forms of OpenAI's API.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "llm/generator.h"
#include "server/json.h"

namespace minisgl::openai {

/// What the reply lists of `update`: not the token that ended the answer, which is no part of it.
std::vector<TextLogprobs> listed_logprobs(const GenerateUpdate& update);

/// {"content":[{"token","logprob","bytes","top_logprobs"}],"refusal":null}. A token that is not
/// whole UTF-8 shows U+FFFD; its bytes are exact. -inf becomes OpenAI's floor of -9999.
Json chat_logprobs(const std::vector<TextLogprobs>& tokens);

/// The form of /v1/completions: {"tokens","token_logprobs","top_logprobs","text_offset"}. A token
/// that is not whole UTF-8 is written as "bytes:\xe2\x80".
class CompletionLogprobs {
 public:
  /// `null_chosen`: nothing stands before the token (the first of a prompt).
  void add(const TextLogprobs& position, bool null_chosen = false);
  bool empty() const { return tokens_.empty(); }
  /// What was added since the last call.
  Json take();

 private:
  Json tokens_ = Json::array(), logprobs_ = Json::array(), top_ = Json::array(),
       offsets_ = Json::array();
  std::size_t offset_ = 0;  // characters so far
};

}  // namespace minisgl::openai
