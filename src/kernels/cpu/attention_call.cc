#include "kernels/cpu/attention_call.h"

#include "base/check.h"

namespace minisgl::kernels {
namespace {

constexpr std::int64_t kMaxHeadDim = 256;

KvType kv_type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32: return KvType::kF32;
    case DType::kBF16: return KvType::kBF16;
    case DType::kF16: return KvType::kF16;
    default: break;
  }
  check(false, "keys and values must be f32, bf16 or f16, not ", name(dtype));
  __builtin_unreachable();
}

}  // namespace

void check_attention_call(const AttentionCall& call) {
  check_tensor(call.q, {-1, -1, -1}, DType::kF32, "q");
  check_tensor(call.out, call.q.shape, DType::kF32, "out");
  check(call.q.stride(2) == 1 && call.out.stride(2) == 1,
        "q and out must be contiguous in their last dimension");
  const std::int64_t head_dim = call.q.dim(2);
  check(head_dim % 8 == 0 && head_dim > 0 && head_dim <= kMaxHeadDim,
        "head_dim must be a multiple of 8, at most ", kMaxHeadDim, ", not ", head_dim);
  kv_type_of(call.kv.dtype);
  check(call.kv.head_dim == head_dim, "q has head_dim=", head_dim, " but the KV pool has ",
        call.kv.head_dim);
  check(call.kv.num_heads > 0 && call.q.dim(1) % call.kv.num_heads == 0, call.q.dim(1),
        " query heads are not a multiple of ", call.kv.num_heads, " KV heads");
  check(call.kv.page_size > 0, "page_size must be positive, not ", call.kv.page_size);
  check(call.window_tokens >= 0, "window_tokens must be at least 0, not ", call.window_tokens);
  check(call.softcap >= 0, "softcap must be at least 0, not ", call.softcap);
}

AttentionItem AttentionCall::item(const AttentionUnit& unit) const {
  const std::int64_t q_head = std::int64_t{unit.kv_head} * group();
  const std::int64_t token = unit.first_token;
  const std::int64_t head_bytes = bytes_of(kv.dtype, unit.kv_head * kv.head_stride);
  const std::int32_t first_row = unit.block * kAttentionRows;
  return {.q = q.as<float>() + token * q.stride(0) + q_head * q.stride(1),
          .out = out_of(token, q_head),
          .q_token_stride = q.stride(0),
          .q_head_stride = q.stride(1),
          .out_token_stride = out.stride(0),
          .out_head_stride = out.stride(1),
          .group = group(),
          .first_row = first_row,
          .num_rows = std::min(kAttentionRows, unit.num_queries * group() - first_row),
          .first_visible = unit.num_keys - unit.num_queries + 1,
          .k = kv.k + head_bytes,
          .v = kv.v + head_bytes,
          .kv_type = kv_type_of(kv.dtype),
          .slot_stride = kv.slot_stride,
          .head_dim = kv.head_dim,
          .page_size = kv.page_size,
          .pages = unit.pages,
          .split_begin = 0,
          .split_end = ceil_div(unit.num_keys, kAttentionSplit),
          .scale = scale,
          .window = window_tokens,
          .softcap = softcap};
}

SplitRange splits_of(const AttentionItem& item) {
  const std::int32_t first_end = item.first_visible + item.first_row / item.group;
  const std::int32_t last_end =
      item.first_visible + (item.first_row + item.num_rows - 1) / item.group;
  return {first_key_seen(first_end, item.window) / kAttentionSplit,
          ceil_div(last_end, kAttentionSplit)};
}

}  // namespace minisgl::kernels
