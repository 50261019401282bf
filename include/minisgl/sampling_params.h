// How the tokens of an answer are chosen, and when it ends.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace minisgl {

/// The most alternatives that a position's log-probabilities may list.
constexpr int kMaxLogprobs = 50;

/// What is added to one token's logit.
struct LogitBias {
  std::int32_t token = 0;
  double bias = 0;  ///< in [-100, 100]

  bool operator==(const LogitBias&) const = default;
};

/// What an answer has to look like (constrained output).
struct ResponseFormat {
  enum class Kind : std::uint8_t {
    kText,           ///< anything
    kJsonObject,     ///< any JSON object; `text` is empty
    kJsonSchema,     ///< `text` is a JSON schema
    kRegex,          ///< `text` is a regular expression that the whole answer matches
    kGrammar,        ///< `text` is a grammar in EBNF
    kChoice,         ///< `text` is a JSON array of strings, one of which is the answer
    kStructuralTag,  ///< `text` is the JSON of tags whose insides are constrained
  };
  Kind kind = Kind::kText;
  std::string text = {};

  bool operator==(const ResponseFormat&) const = default;
};

/// The defaults are greedy and change no logit. Before a token is drawn, these are applied, in this
/// order: response_format, logit_bias and min_tokens, repetition_penalty, frequency_penalty,
/// presence_penalty, temperature, min_p, top_k, top_p; each of the last three renormalises what it
/// leaves. docs/sampling.md says more.
struct SamplingParams {
  double temperature = 0.0;  ///< 0: the most likely token, the lowest id of equals
  std::int64_t top_k = -1;   ///< keep the k most likely (and all that tie with the last); <= 0: off
  double top_p = 1.0;  ///< keep the smallest set of the most likely with at least this sum; 1: off
  double min_p = 0.0;  ///< keep p >= min_p * max p; 0: off

  /// Subtracted from the logit of every token that the answer has so far: once, and once for each
  /// time that it has it. In [-2, 2].
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  /// Of every token that prompt or answer have so far, a positive logit is divided by it and
  /// another one multiplied; > 0, 1: off.
  double repetition_penalty = 1.0;
  std::vector<LogitBias> logit_bias = {};  ///< each token at most once

  /// Draws are a pure function of (seed, position in the answer). Without one the engine takes a
  /// number from the system.
  std::optional<std::uint64_t> seed = std::nullopt;

  std::int64_t max_tokens = 1024;  ///< lowered to what is left of the context
  /// Before the answer has so many, no token that would end it is drawn, and no stop text is looked
  /// for.
  std::int64_t min_tokens = 0;
  bool ignore_eos = false;                        ///< go on after an end-of-sequence token
  std::vector<std::int32_t> stop_token_ids = {};  ///< further ids that end the answer
  std::vector<std::string> stop = {};             ///< texts that end it
  bool include_stop_str_in_output = false;        ///< the stop text is the end of the answer's text
  bool skip_special_tokens = true;                ///< special tokens are no part of the text

  /// Log-probabilities of the answer's tokens and, at each of its positions, of so many of the most
  /// likely ones; 0: the answer's only. Of the model's distribution: before everything above.
  std::optional<int> num_logprobs = std::nullopt;
  /// The same for the tokens of the prompt. Such a prompt is not taken from the prefix cache.
  std::optional<int> prompt_logprobs = std::nullopt;

  ResponseFormat response_format = {};

  bool is_greedy() const { return temperature <= 0.0 || top_k == 1; }
};

/// What a model's authors advise (generation_config.json), for what a request leaves open.
struct SamplingDefaults {
  std::optional<double> temperature = std::nullopt;
  std::optional<std::int64_t> top_k = std::nullopt;
  std::optional<double> top_p = std::nullopt;
  std::optional<double> min_p = std::nullopt;

  bool operator==(const SamplingDefaults&) const = default;
  /// `params` with those of its members replaced for which there is an advice.
  SamplingParams over(SamplingParams params) const;
};

/// Throws RequestError naming field, value and range: temperature in [0, 2] (finite), top_p in
/// [0, 1], min_p in [0, 1], presence_penalty and frequency_penalty in [-2, 2], repetition_penalty
/// in (0, 100], logit_bias in [-100, 100] and of different tokens, max_tokens >= 0, min_tokens in
/// [0, max_tokens], stop texts not empty and at most 16, num_logprobs and prompt_logprobs in
/// [0, kMaxLogprobs].
void validate(const SamplingParams& params);

}  // namespace minisgl
