// What all items of one attention call share, whichever arguments it came with: so that
// paged_attention() and ragged_attention() give the same bits.

#pragma once

#include <algorithm>

#include "base/math.h"
#include "kernels/attention_tiles.h"
#include "kernels/cpu/table.h"
#include "tensor/kv_view.h"
#include "tensor/tensor.h"

namespace minisgl::kernels {

/// The states of splits that threads share are kept only while they fit in this: they are worth it
/// for few tokens with long contexts, where there is little else to share out.
constexpr std::int64_t kMaxPartialBytes = 8 << 20;

/// Floats of the state of one (token, query head, split).
constexpr std::int64_t partial_floats(std::int64_t head_dim) {
  return round_up<std::int64_t>(head_dim, 16) + 16;
}

inline std::int64_t attention_scratch_bytes(std::int32_t head_dim) {
  return attention_scratch_floats(head_dim) * std::int64_t{sizeof(float)};
}

/// The first key that a query sees which sees keys up to `end`.
constexpr std::int32_t first_key_seen(std::int32_t end, std::int32_t window_tokens) {
  return window_tokens == 0 ? 0 : std::max(0, end - window_tokens);
}

/// The (token, query head) pairs of one KV head, number block * kAttentionRows on, of a sequence.
struct AttentionUnit {
  std::int32_t first_token = 0;  ///< of the sequence
  std::int32_t num_queries = 0;
  std::int32_t num_keys = 0;
  const std::int32_t* pages = nullptr;
  std::int32_t kv_head = 0;
  std::int32_t block = 0;
};

struct AttentionCall {
  TensorView q, out;
  KvView kv;
  float scale = 1;
  std::int32_t window_tokens = 0;
  float softcap = 0;

  std::int32_t group() const { return static_cast<std::int32_t>(q.dim(1)) / kv.num_heads; }
  std::int32_t num_blocks(std::int32_t num_queries) const {
    return ceil_div(num_queries * group(), kAttentionRows);
  }
  /// All splits of a unit; its output goes to `out`.
  AttentionItem item(const AttentionUnit& unit) const;
  /// Where the output of (token, head) goes.
  float* out_of(std::int64_t token, std::int64_t head) const {
    return out.as<float>() + token * out.stride(0) + head * out.stride(1);
  }
};

/// Checks of q, out, kv, the window and the cap, whatever the other arguments are.
void check_attention_call(const AttentionCall& call);

/// The splits [begin, end) that the unit's rows see some of.
struct SplitRange {
  std::int32_t begin, end;
};
SplitRange splits_of(const AttentionItem& item);

}  // namespace minisgl::kernels
