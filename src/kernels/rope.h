// Rotary position embedding, fused with the norms before it and the store after it.
// Implementations: kernels/ref/rope.cc, kernels/cpu/.

#pragma once

#include <span>
#include <vector>

#include "tensor/kv_view.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace minisgl::kernels {

/// [num_positions, 2 * inv_freq.size()] f32: row p holds cos(p * inv_freq) * scale in its first
/// half and sin in its second. Angles are rounded to f32 as transformers does.
Tensor make_rope_table(std::span<const float> inv_freq, std::int64_t num_positions,
                       float scale = 1.0F);

struct RopeStoreArgs {
  TensorView qkv;         ///< [T, (q_heads + 2 * kv_heads) * head_dim] f32: q, then k, then v
  TensorView positions;   ///< [T] i32
  TensorView out_locs;    ///< [T] i32: slots of the KV pool
  TensorView rope_table;  ///< from make_rope_table(): [num_positions, rotated_dims]; empty: no rope
  TensorView q_norm;      ///< [head_dim] f32, or empty: RMS norm over each query head before rope
  TensorView k_norm;      ///< the same for keys
  float norm_eps = 0;
  TensorView q;  ///< out: [T, q_heads, head_dim] f32
  KvView kv;     ///< out: rows out_locs of keys and values, f32, or rounded to bf16 or f16
};

/// q = rope(norm(q part)); kv.k[out_locs] = rope(norm(k part)); kv.v[out_locs] = v part. Rope
/// rotates the pairs (d, d + rotated_dims / 2) ("half-split", as Hugging Face orders rows) and
/// keeps the dimensions from rotated_dims on. Narrow keys
/// and values are rounded to nearest even after all other arithmetic, which is f32.
///
/// Two tokens of a step never have the same slot (but for padding rows, on the dummy page).
/// Timing   enqueued on `stream`; does not allocate and does not synchronise.
/// Errors   Error if shapes or types disagree. Positions and slots are not checked.
void qk_norm_rope_store(const RopeStoreArgs& args, Stream& stream);

}  // namespace minisgl::kernels
