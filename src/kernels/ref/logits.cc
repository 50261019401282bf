#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/ref/reference.h"

namespace minisgl::kernels::ref {

void edit_logits(TensorView logits, const LogitEdits& edits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (std::int64_t r = 0; r < edits.num_rows; ++r) {
    const LogitEditRow& row = edits.rows[r];
    for (std::int64_t token = 0; token < logits.dim(1); ++token) {
      float& x = logits.as<float>()[row.row * logits.stride(0) + token];
      for (std::int32_t e = row.begin; e < row.end; ++e) {
        LogitEdit& edit = edits.edits[e];
        if (edit.token != token) continue;
        edit.original = x;
        x = x + edit.bias;
        if (edit.is_seen != 0 && x > 0) {
          x = x / row.repetition_penalty;
        } else if (edit.is_seen != 0) {
          x = x * row.repetition_penalty;
        }
        x = x - row.frequency_penalty * static_cast<float>(edit.count);
        x = x - row.presence_penalty * (edit.count > 0 ? 1.0F : 0.0F);
      }
      if (row.mask < 0) continue;
      const std::int32_t* words = edits.masks.as<std::int32_t>() + row.mask * edits.masks.dim(1);
      if ((static_cast<std::uint32_t>(words[token / 32]) & (1U << (token % 32))) == 0)
        x = -kInfinity;
    }
  }
}

std::vector<double> log_softmax(TensorView logits) {
  const std::int64_t vocab = logits.dim(0);
  const float* x = logits.as<float>();
  double max = x[0];
  for (std::int64_t i = 0; i < vocab; ++i) max = std::max<double>(max, x[i]);
  double sum = 0;
  for (std::int64_t i = 0; i < vocab; ++i) sum += std::exp(x[i] - max);
  std::vector<double> result;
  for (std::int64_t i = 0; i < vocab; ++i) result.push_back(x[i] - max - std::log(sum));
  return result;
}

}  // namespace minisgl::kernels::ref
