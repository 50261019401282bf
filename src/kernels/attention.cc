#include "kernels/attention.h"

#include <algorithm>
#include <atomic>

#include "base/math.h"
#include "kernels/cpu/table.h"

namespace minisgl::kernels {
namespace {

constexpr std::int64_t kMaxHeadDim = 256;
/// The states of splits that threads share are kept only while they fit in this: they are worth it
/// for few tokens with long contexts, where there is little else to share out.
constexpr std::int64_t kMaxPartialBytes = 8 << 20;

std::int64_t partial_floats(std::int64_t head_dim) {
  return round_up<std::int64_t>(head_dim, 16) + 16;
}

std::int64_t partial_bytes(std::int64_t tokens, std::int64_t q_heads, std::int64_t head_dim,
                           std::int64_t max_seqlen_k) {
  const std::int64_t splits = ceil_div<std::int64_t>(max_seqlen_k, kAttentionSplit);
  return tokens * q_heads * splits * partial_floats(head_dim) * std::int64_t{sizeof(float)};
}

std::int64_t scratch_bytes(std::int32_t head_dim) {
  return attention_scratch_floats(head_dim) * std::int64_t{sizeof(float)};
}

/// A call, cut into items: (sequence, block of rows, split, KV head), the last fastest.
class Work {
 public:
  Work(const PagedAttentionArgs& args, TensorView workspace, int num_threads)
      : args_(args),
        num_seqs_(args.cache_seqlens.dim(0)),
        group_(static_cast<std::int32_t>(args.q.dim(1)) / args.kv.num_heads),
        scratch_(reinterpret_cast<float*>(workspace.data)),
        scratch_floats_(attention_scratch_floats(args.kv.head_dim)) {
    const std::int64_t scratch = scratch_bytes(args.kv.head_dim);
    num_workers_ = std::min<std::int64_t>(num_threads, workspace.numel() / scratch);
    const std::int64_t left = workspace.numel() - num_workers_ * scratch;
    if (num_workers_ > 1 && args.max_seqlen_k > kAttentionSplit &&
        partial_bytes(args.q.dim(0), args.q.dim(1), args.kv.head_dim, args.max_seqlen_k) <= left) {
      partial_ = scratch_ + num_workers_ * scratch_floats_;
      max_splits_ = ceil_div(args.max_seqlen_k, kAttentionSplit);
    }
  }

  void run(ThreadPool& pool) {
    const CpuKernels& kernels = cpu_kernels();
    std::atomic<std::int64_t> next{0};
    pool.parallel_for(num_workers_, [&](std::int64_t worker) {
      float* scratch = scratch_ + worker * scratch_floats_;
      Cursor cursor;
      AttentionItem item;
      while (seek(next.fetch_add(1, std::memory_order_relaxed), cursor)) {
        if (make_item(cursor, item)) kernels.attention(item, scratch);
      }
    });
    if (partial_ != nullptr) merge(pool, kernels);
  }

 private:
  /// A sequence and the number of its first item. Items are claimed in ascending order, so each
  /// worker walks the sequences once.
  struct Cursor {
    std::int64_t seq = 0;
    std::int64_t base = 0;
    std::int64_t item = 0;  // within the sequence
  };

  std::int32_t first_token(std::int64_t seq) const {
    return args_.cu_seqlens_q.as<std::int32_t>()[seq];
  }
  std::int32_t num_queries(std::int64_t seq) const {
    return first_token(seq + 1) - first_token(seq);
  }
  std::int32_t num_keys(std::int64_t seq) const {
    return args_.cache_seqlens.as<std::int32_t>()[seq];
  }
  std::int32_t num_blocks(std::int64_t seq) const {
    return ceil_div(num_queries(seq) * group_, kAttentionRows);
  }
  std::int32_t num_splits(std::int64_t seq) const {
    return partial_ == nullptr ? 1 : ceil_div(num_keys(seq), kAttentionSplit);
  }

  bool seek(std::int64_t index, Cursor& cursor) const {
    for (; cursor.seq < num_seqs_; ++cursor.seq) {
      const std::int64_t items =
          std::int64_t{num_blocks(cursor.seq)} * num_splits(cursor.seq) * args_.kv.num_heads;
      if (index < cursor.base + items) {
        cursor.item = index - cursor.base;
        return true;
      }
      cursor.base += items;
    }
    return false;
  }

  /// False if the item's rows see nothing of its split.
  bool make_item(const Cursor& cursor, AttentionItem& item) const {
    const std::int64_t seq = cursor.seq;
    const std::int64_t kv_head = cursor.item % args_.kv.num_heads;
    const std::int64_t rest = cursor.item / args_.kv.num_heads;
    const auto split = static_cast<std::int32_t>(rest % num_splits(seq));
    // The last block first: it sees most.
    const auto block = static_cast<std::int32_t>(num_blocks(seq) - 1 - rest / num_splits(seq));
    const std::int64_t token = first_token(seq);
    const std::int64_t q_head = kv_head * group_;
    const std::int32_t rows = num_queries(seq) * group_;
    item = {
        .q = args_.q.as<float>() + token * args_.q.stride(0) + q_head * args_.q.stride(1),
        .out = args_.out.as<float>() + token * args_.out.stride(0) + q_head * args_.out.stride(1),
        .q_token_stride = args_.q.stride(0),
        .q_head_stride = args_.q.stride(1),
        .out_token_stride = args_.out.stride(0),
        .out_head_stride = args_.out.stride(1),
        .group = group_,
        .first_row = block * kAttentionRows,
        .num_rows = std::min(kAttentionRows, rows - block * kAttentionRows),
        .first_visible = num_keys(seq) - num_queries(seq) + 1,
        .k = reinterpret_cast<const float*>(args_.kv.k) + kv_head * args_.kv.head_stride,
        .v = reinterpret_cast<const float*>(args_.kv.v) + kv_head * args_.kv.head_stride,
        .slot_stride = args_.kv.slot_stride,
        .head_dim = args_.kv.head_dim,
        .page_size = args_.kv.page_size,
        .pages = args_.page_table.as<std::int32_t>() + seq * args_.page_table.stride(0),
        .split_begin = split,
        .split_end = partial_ == nullptr ? ceil_div(num_keys(seq), kAttentionSplit) : split + 1,
        .scale = args_.scale};
    if (partial_ == nullptr) return true;
    // Rows of the sequence are numbered token * group + head; the partials of a token's heads lie
    // together, first by KV head.
    item.partial = partial_at(token, kv_head, split);
    item.partial_stride = max_splits_ * partial_floats(args_.kv.head_dim);
    item.partial_token_stride = args_.kv.num_heads * group_ * item.partial_stride;
    const std::int32_t last_row = item.first_row + item.num_rows - 1;
    return item.first_visible + last_row / group_ > split * kAttentionSplit;
  }

  float* partial_at(std::int64_t token, std::int64_t kv_head, std::int64_t split) const {
    const std::int64_t row = (token * args_.kv.num_heads + kv_head) * group_;
    return partial_ + (row * max_splits_ + split) * partial_floats(args_.kv.head_dim);
  }

  void merge(ThreadPool& pool, const CpuKernels& kernels) const {
    pool.parallel_for(num_seqs_, [&](std::int64_t seq) {
      const std::int32_t queries = num_queries(seq);
      for (std::int32_t i = 0; i < queries; ++i) {
        const std::int64_t token = first_token(seq) + i;
        const std::int32_t keys = num_keys(seq) - queries + 1 + i;
        for (std::int64_t head = 0; head < args_.q.dim(1); ++head) {
          kernels.attention_merge(
              {.partial = partial_at(token, head / group_, 0) +
                          (head % group_) * max_splits_ * partial_floats(args_.kv.head_dim),
               .split_stride = partial_floats(args_.kv.head_dim),
               .num_splits = ceil_div(keys, kAttentionSplit),
               .head_dim = args_.kv.head_dim,
               .out = args_.out.as<float>() + token * args_.out.stride(0) +
                      head * args_.out.stride(1)});
        }
      }
    });
  }

  const PagedAttentionArgs& args_;
  std::int64_t num_seqs_;
  std::int32_t group_;
  float* scratch_;
  std::int64_t scratch_floats_;
  std::int64_t num_workers_ = 1;
  float* partial_ = nullptr;  // [tokens][q_heads][max_splits][partial_floats]
  std::int64_t max_splits_ = 1;
};

}  // namespace

void check_paged_attention(const PagedAttentionArgs& args) {
  check_tensor(args.q, {-1, -1, -1}, DType::kF32, "q");
  check_tensor(args.out, args.q.shape, DType::kF32, "out");
  check(args.q.stride(2) == 1 && args.out.stride(2) == 1,
        "q and out must be contiguous in their last dimension");
  const std::int64_t head_dim = args.q.dim(2);
  check(head_dim % 8 == 0 && head_dim > 0 && head_dim <= kMaxHeadDim,
        "head_dim must be a multiple of 8, at most ", kMaxHeadDim, ", not ", head_dim);
  check(args.kv.dtype == DType::kF32, "keys and values must be f32, not ", name(args.kv.dtype));
  check(args.kv.head_dim == head_dim, "q has head_dim=", head_dim, " but the KV pool has ",
        args.kv.head_dim);
  check(args.kv.num_heads > 0 && args.q.dim(1) % args.kv.num_heads == 0, args.q.dim(1),
        " query heads are not a multiple of ", args.kv.num_heads, " KV heads");
  check(args.kv.page_size > 0, "page_size must be positive, not ", args.kv.page_size);
  check_tensor(args.cache_seqlens, {-1}, DType::kI32, "cache_seqlens");
  const std::int64_t seqs = args.cache_seqlens.dim(0);
  check_tensor(args.cu_seqlens_q, {seqs + 1}, DType::kI32, "cu_seqlens_q");
  check_tensor(args.page_table, {seqs, -1}, DType::kI32, "page_table");
  check(args.page_table.dim(1) * args.kv.page_size >= args.max_seqlen_k, "page_table has ",
        args.page_table.dim(1), " pages of ", args.kv.page_size, ", too few for ",
        args.max_seqlen_k, " keys");
}

std::int64_t paged_attention_workspace_bytes(std::int64_t num_tokens, std::int32_t q_heads,
                                             std::int32_t head_dim, std::int64_t max_seqlen_k,
                                             int num_threads) {
  const std::int64_t partials =
      num_threads == 1
          ? 0
          : std::min(kMaxPartialBytes, partial_bytes(num_tokens, q_heads, head_dim, max_seqlen_k));
  return num_threads * scratch_bytes(head_dim) + partials;
}

void paged_attention(const PagedAttentionArgs& args, TensorView workspace, Stream& stream) {
  check_paged_attention(args);
  check_tensor(workspace, {-1}, DType::kU8, "workspace");
  const std::int64_t needed = scratch_bytes(args.kv.head_dim);
  check(workspace.numel() >= needed, "workspace has ", workspace.numel(), " bytes, needs at least ",
        needed);
  if (args.q.dim(0) == 0) return;
  as_cpu(stream).run(
      [args, workspace](ThreadPool& pool) { Work(args, workspace, pool.num_threads()).run(pool); });
}

}  // namespace minisgl::kernels
