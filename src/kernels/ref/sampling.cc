#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/ref/reference.h"

namespace minisgl::kernels::ref {
namespace {

void renormalise(std::vector<double>& p) {
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= sum;
}

void keep_top_k(std::vector<double>& p, const float* logits, std::int64_t k) {
  const auto vocab = static_cast<std::int64_t>(p.size());
  if (k <= 0 || k >= vocab) return;
  std::vector<float> sorted;
  for (std::int64_t i = 0; i < vocab; ++i) sorted.push_back(p[i] > 0 ? logits[i] : -INFINITY);
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  for (std::int64_t i = 0; i < vocab; ++i)
    if (logits[i] < sorted[k - 1]) p[i] = 0;
  renormalise(p);
}

void keep_top_p(std::vector<double>& p, const float* logits, double top_p) {
  if (top_p >= 1) return;
  std::vector<std::int64_t> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return logits[a] > logits[b]; });
  double sum = 0;
  bool enough = false;
  for (const std::int64_t id : order) {
    if (enough) p[id] = 0;
    sum += p[id];
    enough = enough || sum >= top_p;
  }
  renormalise(p);
}

}  // namespace

std::vector<double> filtered_probabilities(TensorView logits, const SamplingRow& row) {
  const std::int64_t vocab = logits.dim(0);
  const float* x = logits.as<float>();
  float max = -std::numeric_limits<float>::infinity();
  std::int64_t argmax = 0;
  bool nan = false;
  for (std::int64_t i = 0; i < vocab; ++i) {
    nan |= std::isnan(x[i]);
    if (x[i] > max) {
      max = x[i];
      argmax = i;
    }
  }
  std::vector<double> p(vocab, 0.0);
  if (row.temperature < kGreedyTemperature || row.top_k == 1 || row.top_p <= 0 || nan ||
      std::isinf(max)) {
    p[argmax] = 1;
    return p;
  }
  for (std::int64_t i = 0; i < vocab; ++i) p[i] = std::exp((double{x[i]} - max) / row.temperature);
  for (double& value : p)
    if (row.min_p > 0 && value < row.min_p) value = 0;
  renormalise(p);
  keep_top_k(p, x, row.top_k);
  keep_top_p(p, x, row.top_p);
  return p;
}

}  // namespace minisgl::kernels::ref
