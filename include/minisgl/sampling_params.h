// How the tokens of an answer are chosen, and when it ends.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace minisgl {

/// The defaults are greedy. Filters apply in the order temperature, min_p, top_k, top_p; each
/// renormalises what it leaves.
struct SamplingParams {
  double temperature = 0.0;  ///< 0: the most likely token, the lowest id of equals
  std::int64_t top_k = -1;   ///< keep the k most likely (and all that tie with the last); <= 0: off
  double top_p = 1.0;  ///< keep the smallest set of the most likely with at least this sum; 1: off
  double min_p = 0.0;  ///< keep p >= min_p * max p; 0: off
  /// Draws are a pure function of (seed, position in the answer). Without one the engine takes a
  /// number from the system.
  std::optional<std::uint64_t> seed = std::nullopt;

  std::int64_t max_tokens = 1024;                 ///< lowered to what is left of the context
  bool ignore_eos = false;                        ///< go on after an end-of-sequence token
  std::vector<std::int32_t> stop_token_ids = {};  ///< further ids that end the answer
  std::vector<std::string> stop = {};             ///< texts that end it; they are not part of it

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
/// [0, 1], min_p in [0, 1], max_tokens >= 0, stop texts not empty and at most 16.
void validate(const SamplingParams& params);

}  // namespace minisgl
