#include "kernels/cpu/per_isa/functions.h"
#include "kernels/cpu/per_isa/vec.h"

namespace minisgl::kernels::MINISGL_ISA {

LogitScan scan_logits(const float* logits, std::int64_t n) {
  const float lowest = -__builtin_inff();
  Vec best = set1(lowest);
  VecI nan{};
  std::int64_t i = 0;
  for (; i < n; i += kW) {
    const Vec v = n - i >= kW ? load(logits + i)
                              : keep_first(load_part(logits + i, n - i),
                                           static_cast<std::int32_t>(n - i), lowest);
    best = max(v, best);  // keeps `best` where v is NaN
    nan |= v != v;
  }
  LogitScan scan;
  scan.max = max_lane(best);
  for (int j = 0; j < kW; ++j) scan.has_nan |= nan[j] != 0;
  if (scan.max == lowest) return scan;
  std::int64_t at = 0;
  const Vec wanted = set1(scan.max);
  for (; at + kW <= n; at += kW) {
    const VecI equal = load(logits + at) == wanted;
    std::int32_t any = 0;
    for (int j = 0; j < kW; ++j) any |= equal[j];
    if (any != 0) break;
  }
  while (logits[at] != scan.max) ++at;
  scan.argmax = static_cast<std::int32_t>(at);
  return scan;
}

void softmax_weights(const float* logits, std::int64_t n, float max, float temperature,
                     float min_weight, float* weights) {
  const auto weigh = [=](Vec v) {
    const Vec w = exp</*kFused=*/false>((v - set1(max)) / set1(temperature));
    return w >= set1(min_weight) ? w : Vec{};
  };
  std::int64_t i = 0;
  for (; i + kW <= n; i += kW) store(weights + i, weigh(load(logits + i)));
  if (i < n) store_part(weights + i, weigh(load_part(logits + i, n - i)), n - i);
}

}  // namespace minisgl::kernels::MINISGL_ISA
