// One row of the sampler, step by step: what sample() does and what the tests look into.

#pragma once

#include <cstdint>
#include <span>

#include "kernels/sampling.h"

namespace minisgl::kernels::cpu {

/// Memory for one row at a time.
struct SamplingScratch {
  std::span<float> weights;            ///< [vocab]
  std::span<std::int32_t> candidates;  ///< [vocab]
};

/// A row's distribution: token i has probability weights[i] / total.
struct FilteredRow {
  std::span<const float> weights;
  double total = 0;
};

/// True if the row is drawn by argmax, which needs no distribution.
bool is_greedy(const SamplingRow& row);

/// The distribution that sample() draws from, in scratch.weights. A row that is greedy, or is no
/// distribution (see sample()), has all its weight on one token.
FilteredRow filtered_probabilities(std::span<const float> logits, const SamplingRow& row,
                                   const SamplingScratch& scratch);

/// The token at `uniform` (in [0, 1)) of the distribution, whose tokens lie in order of their ids.
std::int32_t draw(const FilteredRow& row, double uniform);

}  // namespace minisgl::kernels::cpu
