// What a token weighs in a draw: exp((x - max) / temperature), as a float and as an integer in
// units of 2^-40. Sums of integers do not depend on the order in which threads add them.

#pragma once

#include <cstdint>

#include "kernels/sampling.h"

namespace minisgl::kernels::gpu {

constexpr int kRowThreads = 512;  // of the block that draws for a row

__device__ inline unsigned long long to_units(float weight) {
  return static_cast<unsigned long long>(weight * 0x1p40F);
}

/// The weights of one row.
class RowWeights {
 public:
  /// Buckets by the distance from the maximum, in steps of 1/16 nat, so that the tokens spread over
  /// many of them; the last holds all that are farther.
  static constexpr int kBuckets = 256;

  __device__ RowWeights(const SamplingRow& how, float max)
      : max_(max),
        scale_(1.0F / how.temperature),
        buckets_per_unit_(kBucketsPerNat / how.temperature),
        least_(fminf(how.min_p, 1.0F)) {}

  __device__ float of(float x) const { return expf((x - max_) * scale_); }
  /// Whether min-p leaves a token of this weight.
  __device__ bool keeps(float weight) const { return weight > 0 && weight >= least_; }
  /// Does not fall as x falls.
  __device__ int bucket(float x) const {
    return static_cast<int>(
        fminf((max_ - x) * buckets_per_unit_, static_cast<float>(kBuckets - 1)));
  }

 private:
  static constexpr float kBucketsPerNat = 16.0F;

  float max_, scale_, buckets_per_unit_, least_;
};

}  // namespace minisgl::kernels::gpu
