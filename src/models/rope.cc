#include "models/rope.h"

#include <cmath>
#include <numbers>

#include "base/check.h"

namespace minisgl::models {
namespace {

/// A wavelength that the original context holds `high_freq_factor` times or more is kept, one that
/// it holds `low_freq_factor` times or less is stretched by `factor`; in between the two
/// frequencies are mixed.
double llama3_scaled(double frequency, const RopeConfig& rope) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const double turns = static_cast<double>(rope.original_max_position) / wavelength;
  if (turns > rope.high_freq_factor) return frequency;
  if (turns < rope.low_freq_factor) return frequency / rope.factor;
  const double kept =
      (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - kept) * frequency / rope.factor + kept * frequency;
}

}  // namespace

std::vector<float> rope_inverse_frequencies(const RopeConfig& rope, std::int64_t head_dim) {
  check(head_dim > 0 && head_dim % 2 == 0, "rope needs an even head_dim, not ", head_dim);
  const std::int64_t count = head_dim / 2;
  check(rope.divisors.empty() || static_cast<std::int64_t>(rope.divisors.size()) == count,
        "rope has ", rope.divisors.size(), " divisors, expected head_dim / 2 = ", count);
  std::vector<float> result;
  for (std::int64_t i = 0; i < count; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
    double frequency = std::pow(rope.theta, exponent);
    switch (rope.kind) {
      case RopeKind::kDefault: break;
      case RopeKind::kLinear: frequency /= rope.factor; break;
      case RopeKind::kLlama3: frequency = llama3_scaled(frequency, rope); break;
    }
    if (!rope.divisors.empty()) frequency /= rope.divisors[static_cast<std::size_t>(i)];
    result.push_back(static_cast<float>(frequency));
  }
  return result;
}

}  // namespace minisgl::models
