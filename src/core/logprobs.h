// Log-probabilities of tokens.

#pragma once

#include <vector>

#include "base/types.h"

namespace minisgl {

struct TokenLogprob {
  TokenId token = -1;
  float logprob = 0;  ///< natural logarithm; may be -inf

  bool operator==(const TokenLogprob&) const = default;
};

/// At one position, of the model's own distribution: before temperature, penalties, biases, masks
/// and filters.
struct PositionLogprobs {
  TokenLogprob chosen;  ///< the token that stands there
  std::vector<TokenLogprob>
      top;  ///< the most likely ones, in falling order; of equals the lowest id

  bool operator==(const PositionLogprobs&) const = default;
};

}  // namespace minisgl
