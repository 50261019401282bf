// Attention of new tokens to a paged KV cache, in flash-attention's arguments.
// Implementations: kernels/cpu/; kernels/ref/attention_in_order.cc (plain, the same bits);
// kernels/ref/attention.cc (double).

#pragma once

#include "kernels/attention_tiles.h"
#include "tensor/kv_view.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace minisgl::kernels {

struct PagedAttentionArgs {
  TensorView q;                    ///< [T, q_heads, head_dim] f32
  KvView kv;                       ///< page_size tells how page_table entries map to slots
  TensorView cu_seqlens_q;         ///< [B + 1] i32: row b's queries are tokens cu[b] .. cu[b + 1]
  TensorView cache_seqlens;        ///< [B] i32: keys of row b, its new tokens included
  TensorView page_table;           ///< [B, max_pages] i32, in PAGES: key p of row b is in slot
                                   ///< page_table[b, p / page_size] * page_size + p % page_size
  float scale = 0;                 ///< usually head_dim^-0.5
  std::int32_t window_tokens = 0;  ///< a query sees so many keys at most, itself included; 0: all
  float softcap = 0;               ///< score = softcap * tanh(score / softcap); 0: off
  std::int32_t max_seqlen_q = 0;
  std::int32_t max_seqlen_k = 0;
  TensorView out;  ///< [T, q_heads, head_dim] f32

  // For GPUs alone; results are the same without them, up to rounding.
  std::int32_t num_decode = 0;  ///< the first rows, which have one query each
  /// [tiles, 2] i32: the queries of the other rows, as gpu::prefill_tiles() cuts them; or no memory
  TensorView prefill_tiles = {};
};

/// out[t, h] = softmax(scale * q[t, h] . K) V over the keys that t may see: query i of row b (of n)
/// sees keys 0 .. cache_seqlens[b] - n + i, or the last window_tokens of them; keys that it does
/// not see are not added, whatever they hold. Query head h reads KV head h / (q_heads / kv_heads).
/// head_dim is any multiple of 8 up to 256. Keys and values are f32, bf16 or f16, widened when they
/// are read; all arithmetic is f32, in the order that kernels/attention_tiles.h tells.
///
/// Timing   enqueued on `stream`; temporary memory from `workspace`
///          (paged_attention_workspace_bytes); does not allocate and does not synchronise.
/// Errors   Error if shapes or types disagree, or q_heads is not a multiple of kv_heads.
/// Source   the arguments of flash_attn_with_kvcache (FlashAttention); window and cap as there.
void paged_attention(const PagedAttentionArgs& args, TensorView workspace, Stream& stream);

/// The checks of paged_attention() alone.
void check_paged_attention(const PagedAttentionArgs& args);

/// Bytes of workspace for a step of `num_tokens` tokens whose longest row has `max_seqlen_k` keys.
/// Grows with each argument. With less, down to what one thread needs, paged_attention() uses fewer
/// threads; its results are the same.
std::int64_t paged_attention_workspace_bytes(std::int64_t num_tokens, std::int32_t q_heads,
                                             std::int32_t head_dim, std::int64_t max_seqlen_k,
                                             int num_threads);

}  // namespace minisgl::kernels
