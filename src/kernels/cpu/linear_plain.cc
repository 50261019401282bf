#include <algorithm>

#include "kernels/cpu/linear_kernels.h"
#include "kernels/ref/dequantize.h"

namespace minisgl::kernels::cpu {
namespace {

constexpr int kLanes = 16;
constexpr std::int64_t kChunk = 2048;  // whole blocks of every type; 8 KB of f32
constexpr std::int64_t kTokens = 32;

/// lanes[l] += sum of x[k] * w[k] over k = l, l + 16, ... in ascending order
void accumulate(const float* x, const float* w, std::int64_t n, float* lanes) {
  std::int64_t k = 0;
  for (; k + kLanes <= n; k += kLanes) {
    for (int l = 0; l < kLanes; ++l) lanes[l] += x[k + l] * w[k + l];
  }
  for (int l = 0; k < n; ++k, ++l) lanes[l] += x[k] * w[k];
}

float sum(const float* lanes) {
  float s[kLanes];
  std::copy_n(lanes, kLanes, s);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) s[l] += s[l + half];
  }
  return s[0];
}

}  // namespace

void multiply_rows(const LinearPart& part) {
  const DType dtype = part.layout->dtype;
  const std::int64_t row_bytes = bytes_of(dtype, part.cols);
  float w[kChunk];
  float lanes[kTokens][kLanes];
  for (std::int64_t n = 0; n < part.num_rows; ++n) {
    const std::byte* row = part.weights + n * row_bytes;
    for (std::int64_t t0 = 0; t0 < part.num_tokens; t0 += kTokens) {
      const std::int64_t tokens = std::min(part.num_tokens - t0, kTokens);
      std::fill_n(&lanes[0][0], tokens * kLanes, 0.0F);
      for (std::int64_t k = 0; k < part.cols; k += kChunk) {
        const std::int64_t width = std::min(part.cols - k, kChunk);
        dequantize_row(dtype, row + bytes_of(dtype, k), width, w);
        for (std::int64_t t = 0; t < tokens; ++t)
          accumulate(part.x + (t0 + t) * part.x_stride + k, w, width, lanes[t]);
      }
      for (std::int64_t t = 0; t < tokens; ++t) {
        const float total = sum(lanes[t]);
        part.y[(t0 + t) * part.y_stride + n] = part.bias == nullptr ? total : total + part.bias[n];
      }
    }
  }
}

}  // namespace minisgl::kernels::cpu
