// Which kernel computes what, and the one for several queries of a sequence on any GPU: blocks of
// four warps, tiles of 64 keys in two stages of shared memory. Rows are (token, query head) pairs
// of one KV head; each warp has 16 rows of its own and all keys of a tile.

#include <cuda_runtime.h>

#include "base/math.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_args.cuh"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/flashinfer/hopper_prefill.h"
#include "kernels/cuda/flashinfer/ragged.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"

namespace minisgl::kernels::gpu {
namespace {

/// Grid: (blocks of 64 rows, KV heads, sequences); the blocks that see most come first.
template <int kDim, class T, class KV>
__global__ void __launch_bounds__(kThreads) extend_kernel(AttentionArgs args) {
  extern __shared__ __align__(128) unsigned char shared[];
  let_next_start();
  await_inputs();
  const int seq = static_cast<int>(blockIdx.z);
  const int kv_head = static_cast<int>(blockIdx.y);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_token = args.cu_seqlens_q[seq];
  const int num_queries = args.cu_seqlens_q[seq + 1] - first_token;
  const int num_rows = num_queries * args.group;
  const int blocks = (num_rows + 63) / 64;
  const int first_row = (blocks - 1 - static_cast<int>(blockIdx.x)) * 64;
  if (first_row < 0) return;
  const int before = args.cache_seqlens[seq] - num_queries;  // keys that the first query has more

  const int row = first_row + 16 * warp + lane / 4;  // and row + 8
  const auto place = [&](int r, const void* base, std::int64_t stride, std::int64_t head_stride) {
    const auto* at = static_cast<const T*>(base);
    return r < num_rows ? at + (first_token + r / args.group) * stride +
                              (kv_head * args.group + r % args.group) * head_stride
                        : nullptr;
  };
  const auto visible = [&](int r) {
    const int end = before + min(r, num_rows - 1) / args.group + 1;
    return Visible{args.window == 0 ? 0 : max(0, end - args.window), end};
  };
  WarpRows<kDim, kTile, T> rows;
  rows.load_queries(place(row, args.q, args.q_stride, args.q_head_stride),
                    place(row + 8, args.q, args.q_stride, args.q_head_stride), lane);
  const int end_key = visible(first_row + 63).end;
  const int begin_key = visible(first_row).begin;
  const Visible low = visible(row);
  const Visible high = visible(row + 8);
  TileLoader<kDim, T, KV>(args, shared)
      .run({seq, kv_head, end_key}, begin_key / kTile, (end_key + kTile - 1) / kTile,
           [&](const TileMemory<kDim>& tile, int first) {
             rows.add(tile, 0, first, low, high, args, lane);
           });
  const auto output = [&](int r) {
    return const_cast<T*>(place(r, args.out, args.out_stride, args.out_head_stride));
  };
  rows.write_output(output(row), output(row + 8), lane);
}

template <int kDim, class T, class KV>
void run_extend(const AttentionArgs& job, std::int64_t max_queries, cuda::CudaStream& stream) {
  constexpr int kShared = shared_bytes<kDim, T, KV>();
  static const cudaError_t allowed = cudaFuncSetAttribute(
      extend_kernel<kDim, T, KV>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  cuda::check_cuda(allowed, "asking for ", kShared, " bytes of shared memory");
  const dim3 grid(blocks_for(max_queries * job.group, 64), static_cast<unsigned>(job.kv_heads),
                  static_cast<unsigned>(job.num_seqs));
  launch("paged_attention (extend)", extend_kernel<kDim, T, KV>, {grid, kThreads, kShared},
         stream.handle(), job);
}

/// The counter of hopper_prefill_*(), which every launch leaves as it found it.
class PrefillCounter {
 public:
  explicit PrefillCounter(cuda::CudaStream& stream) : memory_(4, {.device = stream.device()}) {}
  std::uint32_t* data() const { return reinterpret_cast<std::uint32_t*>(memory_.data()); }

 private:
  Buffer memory_;
};

void run_prefill(const AttentionArgs& job, const int* page_offsets, const TensorView& tiles,
                 const TensorView& q, const KvView& kv, cuda::CudaStream& stream) {
  const HopperPrefill prefill{.args = job,
                              .page_offsets = page_offsets,
                              .tiles = reinterpret_cast<const PrefillTile*>(tiles.data),
                              .num_tiles = static_cast<std::int32_t>(tiles.dim(0)),
                              .num_tokens = static_cast<std::int32_t>(q.dim(0)),
                              .num_slots = static_cast<std::int32_t>(kv.num_slots),
                              .num_multiprocessors = stream.num_multiprocessors(),
                              .counter = stream.state<PrefillCounter>().data()};
  if (job.head_dim == 64) {
    hopper_prefill_64(prefill, stream.handle());
  } else {
    hopper_prefill_128(prefill, stream.handle());
  }
}

/// The sequences from `first` on; tokens are counted as before.
AttentionArgs without_first(AttentionArgs job, int first) {
  job.cu_seqlens_q += first;
  job.cache_seqlens += first;
  job.page_table += first * job.page_table_stride;
  job.num_seqs -= first;
  return job;
}

bool is_fast(const PagedAttentionArgs& args) {
  const std::int64_t group = args.q.dim(1) / args.kv.num_heads;
  return has_fast_types({args.q.dtype, args.kv.dtype}) &&
         (args.kv.head_dim == 64 || args.kv.head_dim == 128) && group <= 16;
}

}  // namespace

namespace {

/// AttentionArgs::page_inverse, by which keys of up to `pages` pages are divided rightly.
std::uint32_t page_inverse(std::int64_t page_size, std::int64_t pages) {
  if (page_size == 1) return 0;
  constexpr std::int64_t kWhole = std::int64_t{1} << 32;
  const std::int64_t inverse = ceil_div(kWhole, page_size);
  check(page_size * pages * (inverse * page_size - kWhole) < kWhole, "attention to ", pages,
        " pages of ", page_size, " tokens: take a page size that is a power of two");
  return static_cast<std::uint32_t>(inverse);
}

}  // namespace

AttentionArgs attention_args(const PagedAttentionArgs& args) {
  check_attention_types(args.q.dtype, args.kv.dtype);
  check_tensor(args.q, {-1, -1, args.kv.head_dim}, args.q.dtype, "q");
  check_tensor(args.out, args.q.shape, args.q.dtype, "out");
  check(args.kv.num_heads > 0 && args.q.dim(1) % args.kv.num_heads == 0, "q has ", args.q.dim(1),
        " heads, which is no multiple of the ", args.kv.num_heads, " KV heads");
  check(args.scale > 0, "attention needs a positive scale, not ", args.scale);
  check(args.kv.head_dim % 8 == 0 && args.kv.head_dim <= 256,
        "head_dim must be a multiple of 8 up to 256, not ", args.kv.head_dim);
  check_tensor(args.cache_seqlens, {-1}, DType::kI32, "cache_seqlens");
  const std::int64_t seqs = args.cache_seqlens.dim(0);
  check_tensor(args.cu_seqlens_q, {seqs + 1}, DType::kI32, "cu_seqlens_q");
  check_tensor(args.page_table, {seqs, -1}, DType::kI32, "page_table");
  check(args.page_table.dim(1) * args.kv.page_size >= args.max_seqlen_k, "page_table has ",
        args.page_table.dim(1), " pages of ", args.kv.page_size, ", too few for ",
        args.max_seqlen_k, " keys");
  check(args.q.stride(2) == 1 && args.out.stride(2) == 1 && args.page_table.stride(1) == 1,
        "q, out and page_table must be contiguous in their last dimension");
  return {.q = args.q.data,
          .k = args.kv.k,
          .v = args.kv.v,
          .out = args.out.data,
          .cu_seqlens_q = args.cu_seqlens_q.as<std::int32_t>(),
          .cache_seqlens = args.cache_seqlens.as<std::int32_t>(),
          .page_table = args.page_table.as<std::int32_t>(),
          .q_stride = args.q.stride(0),
          .q_head_stride = args.q.stride(1),
          .out_stride = args.out.stride(0),
          .out_head_stride = args.out.stride(1),
          .page_table_stride = args.page_table.stride(0),
          .slot_stride = static_cast<int>(args.kv.slot_stride),
          .kv_head_stride = static_cast<int>(args.kv.head_stride),
          .num_seqs = static_cast<int>(seqs),
          .kv_heads = args.kv.num_heads,
          .group = static_cast<int>(args.q.dim(1) / args.kv.num_heads),
          .head_dim = args.kv.head_dim,
          .page_size = args.kv.page_size,
          .window = args.window_tokens,
          .page_inverse = page_inverse(args.kv.page_size, args.page_table.dim(1)),
          .scale = args.scale,
          .softcap = args.softcap};
}

std::int64_t paged_attention_workspace_bytes(std::int32_t q_heads, std::int32_t kv_heads,
                                             std::int32_t head_dim) {
  return decode_workspace_bytes(kv_heads, ceil_div(q_heads, kv_heads), head_dim);
}

void paged_attention(const PagedAttentionArgs& args, TensorView workspace, Stream& stream) {
  if (!is_fast(args)) {
    paged_attention_plain(args, stream);
    return;
  }
  const AttentionArgs job = attention_args(args);
  check_tensor(workspace, {-1}, DType::kU8, "workspace");
  const std::int64_t needed = paged_attention_workspace_bytes(
      static_cast<std::int32_t>(args.q.dim(1)), job.kv_heads, job.head_dim);
  check(workspace.numel() >= needed, "workspace has ", workspace.numel(), " bytes, needs ", needed);
  const bool in_tiles = args.prefill_tiles.data != nullptr && args.prefill_tiles.numel() > 0;
  if (in_tiles) {
    check_tensor(args.prefill_tiles, {-1, 2}, DType::kI32, "prefill_tiles");
    check(args.window_tokens == 0 && args.softcap == 0,
          "prefill_tiles are for attention without a window and without a cap");
    check(args.q.dtype == DType::kBF16 && args.kv.dtype == DType::kBF16,
          "prefill_tiles are for bf16");
  }
  if (stream.dry() || args.q.dim(0) == 0) return;
  cuda::CudaStream& gpu = as_cuda(stream);
  const AttentionTypes types{args.q.dtype, args.kv.dtype};
  const int num_decode = args.max_seqlen_q == 1 ? job.num_seqs : args.num_decode;
  if (num_decode > 0) {
    AttentionArgs decode = job;
    decode.num_seqs = num_decode;
    run_decode(decode, types, args.max_seqlen_k, workspace, gpu);
  }
  if (num_decode == job.num_seqs) return;
  if (in_tiles) {
    run_prefill(job, /*page_offsets=*/nullptr, args.prefill_tiles, args.q, args.kv, gpu);
    return;
  }
  const AttentionArgs extend = without_first(job, num_decode);
  visit_fast_types(types, [&]<class T, class KV>() {
    if (job.head_dim == 64) {
      run_extend<64, T, KV>(extend, args.max_seqlen_q, gpu);
    } else {
      run_extend<128, T, KV>(extend, args.max_seqlen_q, gpu);
    }
  });
}

bool takes_rope(const PagedAttentionArgs& args, const RopeStoreArgs& rope) {
  // For more, each head is rotated once and not in every block that reads it.
  constexpr std::int64_t kMostRows = 64;
  const std::int64_t group = args.out.dim(1) / args.kv.num_heads;
  return args.max_seqlen_q == 1 && args.out.dim(0) <= kMostRows && group <= 16 &&
         args.out.dtype == DType::kBF16 && args.kv.dtype == DType::kBF16 &&
         (args.kv.head_dim == 64 || args.kv.head_dim == 128) && !rope.rope_table.empty() &&
         rope.rope_table.dim(1) == args.kv.head_dim;
}

void paged_attention_with_rope(const PagedAttentionArgs& args, const RopeStoreArgs& rope,
                               TensorView workspace, Stream& stream) {
  check(takes_rope(args, rope), "attention of such a step does not rotate its queries itself");
  const std::int64_t heads = args.out.dim(1);
  const std::int64_t head_dim = args.kv.head_dim;
  check_tensor(rope.qkv, {args.out.dim(0), (heads + 2 * args.kv.num_heads) * head_dim},
               DType::kBF16, "qkv");
  check_vectors(rope.qkv, "qkv");
  check_tensor(rope.rope_table, {-1, head_dim}, DType::kF32, "rope_table");
  check_tensor(rope.positions, {args.out.dim(0)}, DType::kI32, "positions");
  check_tensor(rope.out_locs, {args.out.dim(0)}, DType::kI32, "out_locs");
  for (const TensorView& norm : {rope.q_norm, rope.k_norm})
    if (!norm.empty()) check_tensor(norm, {head_dim}, DType::kF32, "q_norm or k_norm");
  PagedAttentionArgs with_q = args;
  with_q.q = TensorView(rope.qkv.data, args.out.shape, DType::kBF16, args.out.device);
  with_q.q.strides[0] = rope.qkv.stride(0);
  const AttentionArgs job = attention_args(with_q);
  const std::int64_t needed =
      paged_attention_workspace_bytes(static_cast<std::int32_t>(heads), job.kv_heads, job.head_dim);
  check(workspace.numel() >= needed, "workspace has ", workspace.numel(), " bytes, needs ", needed);
  if (stream.dry() || args.out.dim(0) == 0) return;
  run_decode_with_rope(job, rope, args.max_seqlen_k, workspace, as_cuda(stream));
}

void ragged_prefill(const RaggedArgs& args, TensorView tiles, TensorView cache_seqlens,
                    Stream& stream) {
  const std::int64_t seqs = cache_seqlens.dim(0);
  check_tensor(tiles, {-1, 2}, DType::kI32, "tiles");
  check_tensor(args.kv_indptr, {seqs + 1}, DType::kI32, "kv_indptr");
  // The checks of a page table, of which kv_indices is one that has no rows.
  const AttentionArgs job = attention_args(
      {.q = args.q,
       .kv = args.kv,
       .cu_seqlens_q = args.qo_indptr,
       .cache_seqlens = cache_seqlens,
       .page_table = TensorView(args.kv_indices.data, {seqs, 0}, DType::kI32, args.q.device),
       .scale = args.scale,
       .out = args.out});
  check(args.q.dtype == DType::kBF16 && args.kv.dtype == DType::kBF16,
        "tiles of queries are for bf16");
  if (stream.dry() || tiles.dim(0) == 0) return;
  run_prefill(job, args.kv_indptr.as<std::int32_t>(), tiles, args.q, args.kv, as_cuda(stream));
}

}  // namespace minisgl::kernels::gpu
