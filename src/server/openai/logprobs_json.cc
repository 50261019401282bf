#include "server/openai/logprobs_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/utf8.h"

namespace minisgl::openai {
namespace {

constexpr double kFloor = -9999.0;  // JSON has no infinity

double finite(double logprob) {
  return std::isfinite(logprob) ? std::max(logprob, kFloor) : kFloor;
}

Json entry(const TextLogprob& token) {
  Json bytes = Json::array();
  for (const char c : token.bytes) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", replace_ill_formed(token.bytes)},
          {"logprob", finite(token.logprob)},
          {"bytes", std::move(bytes)}};
}

std::string legacy_name(const std::string& bytes) {
  if (is_valid_utf8(bytes)) return bytes;
  std::string name = "bytes:";
  for (const char c : bytes) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return name;
}

}  // namespace

std::vector<TextLogprobs> listed_logprobs(const GenerateUpdate& update) {
  std::vector<TextLogprobs> listed = update.logprobs;
  if (std::holds_alternative<TokenId>(update.stop_reason) && !listed.empty()) listed.pop_back();
  return listed;
}

Json chat_logprobs(const std::vector<TextLogprobs>& tokens) {
  Json content = Json::array();
  for (const TextLogprobs& position : tokens) {
    Json token = entry(position.chosen);
    token["top_logprobs"] = Json::array();
    for (const TextLogprob& other : position.top) token["top_logprobs"].push_back(entry(other));
    content.push_back(std::move(token));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

void CompletionLogprobs::add(const TextLogprobs& position, bool null_chosen) {
  tokens_.push_back(legacy_name(position.chosen.bytes));
  offsets_.push_back(offset_);
  // A character counts where it begins.
  offset_ += static_cast<std::size_t>(
      std::count_if(position.chosen.bytes.begin(), position.chosen.bytes.end(),
                    [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
  if (null_chosen) {
    logprobs_.push_back(nullptr);
    top_.push_back(nullptr);
    return;
  }
  logprobs_.push_back(finite(position.chosen.logprob));
  Json top = Json::object();
  for (const TextLogprob& other : position.top)
    top[legacy_name(other.bytes)] = finite(other.logprob);
  top[legacy_name(position.chosen.bytes)] = finite(position.chosen.logprob);
  top_.push_back(std::move(top));
}

Json CompletionLogprobs::take() {
  return {{"tokens", std::exchange(tokens_, Json::array())},
          {"token_logprobs", std::exchange(logprobs_, Json::array())},
          {"top_logprobs", std::exchange(top_, Json::array())},
          {"text_offset", std::exchange(offsets_, Json::array())}};
}

}  // namespace minisgl::openai
