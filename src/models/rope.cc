#include "models/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

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

/// Dimensions between which yarn goes from kept to divided frequencies. They need not be in
/// ascending order.
struct YarnRamp {
  YarnRamp(const RopeConfig& rope, std::int64_t head_dim) {
    const auto dims = static_cast<double>(head_dim);
    // The dimension whose wave the original context holds `turns` times.
    const auto dimension = [&](double turns) {
      const double wavelength = static_cast<double>(rope.original_max_position) / turns;
      return dims * std::log(wavelength / (2.0 * std::numbers::pi)) / (2.0 * std::log(rope.theta));
    };
    low = dimension(rope.beta_fast);
    high = dimension(rope.beta_slow);
    if (rope.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, dims - 1.0);
    if (low == high) high += 0.001;
  }
  double divided(std::int64_t i) const {
    return std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
  }
  double low, high;
};

double dynamic_theta(const RopeConfig& rope, std::int64_t head_dim, std::int64_t max_seq_len) {
  if (max_seq_len <= rope.original_max_position || head_dim <= 2) return rope.theta;
  const double stretch =
      static_cast<double>(max_seq_len) / static_cast<double>(rope.original_max_position);
  const auto dims = static_cast<double>(head_dim);
  return rope.theta * std::pow(rope.factor * stretch - (rope.factor - 1.0), dims / (dims - 2.0));
}

}  // namespace

std::vector<float> rope_inverse_frequencies(const RopeConfig& rope, std::int64_t whole_head_dim,
                                            std::int64_t max_seq_len) {
  const std::int64_t head_dim = rope.rotated_dims > 0 ? rope.rotated_dims : whole_head_dim;
  check(head_dim > 0 && head_dim % 2 == 0, "rope needs an even head_dim, not ", head_dim);
  const std::int64_t count = head_dim / 2;
  const bool is_long = rope.kind == RopeKind::kLongRope && max_seq_len > rope.original_max_position;
  const std::vector<float>& divisors = is_long ? rope.long_divisors : rope.divisors;
  check(divisors.empty() || static_cast<std::int64_t>(divisors.size()) == count, "rope has ",
        divisors.size(), " divisors, expected head_dim / 2 = ", count);
  double theta = rope.theta;
  if (rope.kind == RopeKind::kDynamic) theta = dynamic_theta(rope, head_dim, max_seq_len);
  std::optional<YarnRamp> yarn;
  if (rope.kind == RopeKind::kYarn) yarn.emplace(rope, head_dim);
  std::vector<float> result;
  for (std::int64_t i = 0; i < count; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
    double frequency = std::pow(theta, exponent);
    switch (rope.kind) {
      case RopeKind::kDefault:
      case RopeKind::kLongRope:
      case RopeKind::kDynamic: break;
      case RopeKind::kLinear: frequency /= rope.factor; break;
      case RopeKind::kLlama3: frequency = llama3_scaled(frequency, rope); break;
      case RopeKind::kYarn: {
        const double divided = yarn->divided(i);
        frequency = frequency / rope.factor * divided + frequency * (1.0 - divided);
        break;
      }
    }
    if (!divisors.empty()) frequency /= divisors[static_cast<std::size_t>(i)];
    result.push_back(static_cast<float>(frequency));
  }
  return result;
}

}  // namespace minisgl::models
