// The inner loops that are one plain source compiled once per instruction set, and the table that
// picks a copy. They get raw pointers and run on one thread; checks and threads are the callers'.

#pragma once

#include <cstdint>

namespace minisgl::kernels {

/// Rows of rms_norm and fused_add_rms_norm. Strides in elements.
struct NormRows {
  const float* x = nullptr;
  float* residual = nullptr;  ///< null: plain rms_norm
  const float* weight = nullptr;
  float* y = nullptr;
  std::int64_t x_stride = 0;
  std::int64_t residual_stride = 0;
  std::int64_t y_stride = 0;
  std::int64_t num_rows = 0;
  std::int64_t hidden = 0;
  float eps = 0;
  float x_scale = 1;  ///< of what is added to the residual
};

/// Rows of silu_and_mul and gelu_tanh_and_mul. Strides in elements.
struct GatedRows {
  const float* gate_up = nullptr;
  float* y = nullptr;
  std::int64_t gate_up_stride = 0;
  std::int64_t y_stride = 0;
  std::int64_t num_rows = 0;
  std::int64_t width = 0;
};

/// Heads of one token: y[h] = rope(norm(x[h])), where norm is left out if `norm` is null.
/// Dimensions from rotated_dims on are not turned.
struct RopeHeads {
  const float* x = nullptr;
  float* y = nullptr;
  std::int64_t x_stride = 0;  ///< between heads, in elements
  std::int64_t y_stride = 0;
  std::int64_t num_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t rotated_dims = 0;
  const float* cos_sin = nullptr;  ///< the position's row of the rope table
  const float* norm = nullptr;
  float eps = 0;
};

/// Element type of keys and values.
enum class KvType : std::uint8_t { kF32, kBF16, kF16 };

/// Queries of one KV head against a range of splits: (token, head) pairs numbered
/// token * group + head, all of one sequence.
struct AttentionItem {
  const float* q = nullptr;  ///< token 0 of the sequence, first head of the group
  float* out = nullptr;
  std::int64_t q_token_stride = 0;
  std::int64_t q_head_stride = 0;
  std::int64_t out_token_stride = 0;
  std::int64_t out_head_stride = 0;
  std::int32_t group = 1;  ///< query heads of this KV head
  std::int32_t first_row = 0;
  std::int32_t num_rows = 0;       ///< at most kAttentionRows
  std::int32_t first_visible = 0;  ///< keys that token 0 sees; token i sees i more
  const void* k = nullptr;         ///< slot 0 of this KV head
  const void* v = nullptr;
  KvType kv_type = KvType::kF32;
  std::int64_t slot_stride = 0;
  std::int32_t head_dim = 0;
  std::int32_t page_size = 1;
  const std::int32_t* pages = nullptr;
  std::int32_t split_begin = 0;
  std::int32_t split_end = 0;
  float scale = 1;
  std::int32_t window = 0;  ///< keys that a query sees at most, the last ones; 0: all
  float softcap = 0;        ///< 0: off
  /// Null: `out` is written. Else the state of each split that (token, head) sees goes to
  /// partial + token * partial_token_stride + head * partial_head_stride + (split - split_begin) *
  /// partial_split_stride: head_dim values (rounded up to 16), maximum, sum.
  float* partial = nullptr;
  std::int64_t partial_token_stride = 0;
  std::int64_t partial_head_stride = 0;
  std::int64_t partial_split_stride = 0;
};

/// The states of a row's splits, one after the other, become its output.
struct AttentionMerge {
  const float* partial = nullptr;
  std::int64_t split_stride = 0;
  std::int32_t num_splits = 0;
  std::int32_t head_dim = 0;
  float* out = nullptr;
};

/// Rows that one AttentionItem takes at most: what shares one reading of keys and values.
constexpr std::int32_t kAttentionRows = 96;

/// Floats of scratch for one call of `attention`.
std::int64_t attention_scratch_floats(std::int32_t head_dim);

/// What a scan of a row of logits finds.
struct LogitScan {
  float max = 0;            ///< over what is not NaN; -inf if nothing is
  std::int32_t argmax = 0;  ///< lowest index of the maximum; 0 if nothing is greater than -inf
  bool has_nan = false;
};

/// One copy of all of them.
struct CpuKernels {
  void (*norm)(const NormRows&);
  void (*silu)(const GatedRows&);
  void (*gelu_tanh)(const GatedRows&);
  void (*rope)(const RopeHeads&);
  void (*attention)(const AttentionItem&, float* scratch);
  void (*attention_merge)(const AttentionMerge&);
  LogitScan (*scan_logits)(const float* logits, std::int64_t n);
  /// weights[i] = exp((logits[i] - max) / temperature), 0 where that is below min_weight. The same
  /// bits for every instruction set.
  void (*softmax_weights)(const float* logits, std::int64_t n, float max, float temperature,
                          float min_weight, float* weights);
  /// y[i] = exp(x[i]): what silu and attention use.
  void (*exp)(const float* x, std::int64_t n, float* y);
  /// scores[i] = cap * tanh(scores[i] / cap), as in attention.
  void (*softcap)(float* scores, std::int64_t n, float cap);
  int lanes = 1;       ///< floats in a vector: how many sums attention's softmax is kept in
  bool fused = false;  ///< whether a * b + c is rounded once in attention
};

/// The copy for active_simd().
const CpuKernels& cpu_kernels();

}  // namespace minisgl::kernels
