#include "kernels/attention.h"

#include <algorithm>
#include <atomic>

#include "base/math.h"
#include "kernels/cpu/attention_call.h"
#include "kernels/cuda/attention.h"
#include "tensor/cuda/build.h"

namespace minisgl::kernels {
namespace {

std::int64_t partial_bytes(std::int64_t tokens, std::int64_t q_heads, std::int64_t head_dim,
                           std::int64_t max_seqlen_k) {
  const std::int64_t splits = ceil_div<std::int64_t>(max_seqlen_k, kAttentionSplit);
  return tokens * q_heads * splits * partial_floats(head_dim) * std::int64_t{sizeof(float)};
}

AttentionCall call_of(const PagedAttentionArgs& args) {
  return {args.q, args.out, args.kv, args.scale, args.window_tokens, args.softcap};
}

/// A call, cut into items: (sequence, block of rows, split, KV head), the last fastest.
class Work {
 public:
  Work(const PagedAttentionArgs& args, TensorView workspace, int num_threads)
      : args_(args),
        call_(call_of(args)),
        num_seqs_(args.cache_seqlens.dim(0)),
        group_(call_.group()),
        scratch_(reinterpret_cast<float*>(workspace.data)),
        scratch_floats_(attention_scratch_floats(args.kv.head_dim)) {
    const std::int64_t scratch = attention_scratch_bytes(args.kv.head_dim);
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
  std::int32_t num_blocks(std::int64_t seq) const { return call_.num_blocks(num_queries(seq)); }
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
    const auto kv_head = static_cast<std::int32_t>(cursor.item % args_.kv.num_heads);
    const std::int64_t rest = cursor.item / args_.kv.num_heads;
    const auto split = static_cast<std::int32_t>(rest % num_splits(seq));
    item = call_.item(
        {.first_token = first_token(seq),
         .num_queries = num_queries(seq),
         .num_keys = num_keys(seq),
         .pages = args_.page_table.as<std::int32_t>() + seq * args_.page_table.stride(0),
         .kv_head = kv_head,
         // The last block first: it sees most.
         .block = static_cast<std::int32_t>(num_blocks(seq) - 1 - rest / num_splits(seq))});
    if (partial_ == nullptr) return true;
    const SplitRange seen = splits_of(item);
    if (split < seen.begin || split >= seen.end) return false;
    item.split_begin = split;
    item.split_end = split + 1;
    // Rows of the sequence are numbered token * group + head; the partials of a token's heads lie
    // together, first by KV head.
    item.partial = partial_at(first_token(seq), kv_head, split);
    item.partial_split_stride = partial_floats(args_.kv.head_dim);
    item.partial_head_stride = max_splits_ * item.partial_split_stride;
    item.partial_token_stride = args_.kv.num_heads * group_ * item.partial_head_stride;
    return true;
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
        const std::int32_t first = first_key_seen(keys, args_.window_tokens) / kAttentionSplit;
        for (std::int64_t head = 0; head < args_.q.dim(1); ++head) {
          kernels.attention_merge(
              {.partial = partial_at(token, head / group_, first) +
                          (head % group_) * max_splits_ * partial_floats(args_.kv.head_dim),
               .split_stride = partial_floats(args_.kv.head_dim),
               .num_splits = ceil_div(keys, kAttentionSplit) - first,
               .head_dim = args_.kv.head_dim,
               .out = call_.out_of(token, head)});
        }
      }
    });
  }

  const PagedAttentionArgs& args_;
  AttentionCall call_;
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
  check_attention_call(call_of(args));
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
  return num_threads * attention_scratch_bytes(head_dim) + partials;
}

void paged_attention(const PagedAttentionArgs& args, TensorView workspace, Stream& stream) {
  if constexpr (cuda::kBuilt)
    if (!stream.device().is_cpu()) return gpu::paged_attention(args, workspace, stream);
  check_paged_attention(args);
  check_tensor(workspace, {-1}, DType::kU8, "workspace");
  const std::int64_t needed = attention_scratch_bytes(args.kv.head_dim);
  check(workspace.numel() >= needed, "workspace has ", workspace.numel(), " bytes, needs at least ",
        needed);
  if (args.q.dim(0) == 0) return;
  as_cpu(stream).run(
      [args, workspace](ThreadPool& pool) { Work(args, workspace, pool.num_threads()).run(pool); });
}

}  // namespace minisgl::kernels
