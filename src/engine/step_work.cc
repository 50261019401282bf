#include "engine/step_work.h"

#include <algorithm>
#include <cmath>

namespace minisgl {
namespace {

double as_double(std::int64_t value) { return static_cast<double>(value); }

/// Sum over positions p in [begin, end) of the keys that the token at p sees: min(p + 1, window).
double keys_seen(std::int64_t begin, std::int64_t end, std::int64_t window) {
  const auto all_up_to = [](std::int64_t n) { return as_double(n) * as_double(n + 1) / 2; };
  if (window == 0) return all_up_to(end) - all_up_to(begin);
  const std::int64_t full = std::clamp(window, begin, end);  // tokens from here on see a window
  return all_up_to(full) - all_up_to(begin) + as_double(end - full) * as_double(window);
}

}  // namespace

StepWorkModel::StepWorkModel(const ModelConfig& m, DType weight_type, DType kv_type)
    : head_elements_(as_double(m.vocab_size * m.hidden_size)),
      expert_elements_(as_double(3 * m.hidden_size * m.moe.intermediate_size)),
      num_experts_(as_double(m.moe.num_experts)),
      experts_per_token_(as_double(m.moe.experts_per_token)),
      bytes_per_element_(as_double(info(weight_type).block_bytes) /
                         as_double(info(weight_type).block_elems)),
      key_flops_(4 * as_double(m.num_heads * m.head_dim)),  // score and weighted sum
      kv_bytes_(as_double(2 * m.num_kv_heads * m.head_dim) * as_double(info(kv_type).block_bytes)),
      num_layers_(as_double(m.num_layers)) {
  const std::int64_t attention =
      m.hidden_size * m.head_dim * (2 * m.num_heads + 2 * m.num_kv_heads);
  for (std::int64_t layer = 0; layer < m.num_layers; ++layer) {
    const bool sparse = m.is_sparse(layer);
    sparse_layers_ += sparse ? 1 : 0;
    dense_elements_ += as_double(attention + (sparse ? m.hidden_size * m.moe.num_experts
                                                     : 3 * m.hidden_size * m.intermediate_size));
    const std::int64_t window =
        m.layer_windows.empty() ? 0 : m.layer_windows[static_cast<std::size_t>(layer)];
    const auto same = std::find_if(windows_.begin(), windows_.end(),
                                   [&](const Layers& l) { return l.window == window; });
    if (same == windows_.end())
      windows_.push_back({window, 1});
    else
      ++same->count;
  }
}

StepWork StepWorkModel::estimate(const Batch& batch) const {
  StepWork work;
  double tokens = 0;
  for (std::int32_t i = 0; i < batch.num_rows; ++i) {
    const BatchRow& row = batch.rows[static_cast<std::size_t>(i)];
    tokens += row.extend_len();
    for (const Layers& layers : windows_) {
      const std::int64_t begin =
          layers.window == 0 ? 0 : std::max<std::int64_t>(0, row.cached_len + 1 - layers.window);
      work.read_bytes += layers.count * kv_bytes_ * as_double(row.device_len - begin);
      work.flops +=
          layers.count * key_flops_ * keys_seen(row.cached_len, row.device_len, layers.window);
    }
  }
  if (tokens == 0) return work;
  const auto samples = static_cast<double>(batch.samples.size());
  work.flops += 2 * (tokens * dense_elements_ + samples * head_elements_ +
                     tokens * sparse_layers_ * experts_per_token_ * expert_elements_);
  double elements = dense_elements_ + (samples > 0 ? head_elements_ : 0);
  if (sparse_layers_ > 0) {
    // Experts that at least one of the tokens is sent to, if each chose at random.
    const double unused = std::pow(1 - experts_per_token_ / num_experts_, tokens);
    elements += sparse_layers_ * num_experts_ * (1 - unused) * expert_elements_;
  }
  work.read_bytes += elements * bytes_per_element_;
  work.write_bytes = tokens * num_layers_ * kv_bytes_;
  return work;
}

}  // namespace minisgl
