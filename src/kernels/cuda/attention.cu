// Attention on tensor cores: blocks of four warps, tiles of 64 keys in two stages of shared memory.
//
// Rows are (token, query head) pairs of one KV head. With many queries (kExtend) each warp has 16
// rows of its own and all 64 keys of a tile. With one query for each sequence (kDecode) the rows
// are the query heads of one KV head, and each warp has 16 of the 64 keys; long contexts are shared
// out over blocks, of which the last one to end puts the parts together.

#include <cuda_runtime.h>

#include "base/math.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_args.cuh"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"

namespace minisgl::kernels::gpu {
namespace {

constexpr int kMaxSplits = 32;
/// Blocks that fill a GPU of 132 multiprocessors three times, with three at once on each.
constexpr std::int64_t kWantedBlocks = 1188;

/// A part of one query head's output: weights relative to max, in base 2.
template <int kDim>
struct Partial {
  float max, sum;
  float values[kDim];  // not yet divided by sum
};

/// Which keys a block computes: the tiles [begin, end) of the split, one of `splits` that are used.
struct SplitTiles {
  int begin, end, splits;
};

__device__ SplitTiles split_tiles(int first_key, int end_key, int split, int max_splits) {
  const int first = first_key / kTile;
  const int tiles = (end_key + kTile - 1) / kTile - first;
  const int each = (tiles + max_splits - 1) / max_splits;
  const int begin = min(tiles, split * each);
  return {first + begin, first + min(tiles, begin + each), (tiles + each - 1) / each};
}

/// The last block of a (sequence, KV head) to end sums up what all of them left.
template <int kDim>
__device__ void merge_splits(const AttentionArgs& args, const Partial<kDim>* partials, int splits,
                             int seq, int kv_head) {
  for (int i = static_cast<int>(threadIdx.x); i < args.group * kDim; i += kThreads) {
    const int row = i / kDim;
    const int d = i % kDim;
    const Partial<kDim>* parts = partials + row * kMaxSplits;
    float top = -INFINITY;
    for (int s = 0; s < splits; ++s) top = fmaxf(top, __ldcg(&parts[s].max));
    float sum = 0;
    float value = 0;
    for (int s = 0; s < splits; ++s) {
      const float weight = exp2f(__ldcg(&parts[s].max) - top);
      sum += weight * __ldcg(&parts[s].sum);
      value += weight * __ldcg(&parts[s].values[d]);
    }
    auto* out = static_cast<Bf16*>(args.out) + seq * args.out_stride +
                (kv_head * args.group + row) * args.out_head_stride;
    out[d] = __float2bfloat16_rn(value / sum);
  }
}

/// Grid: (splits, KV heads, sequences). `tickets` [sequences * KV heads] is zero, and is again when
/// the kernel ends.
template <int kDim>
__global__ void __launch_bounds__(kThreads)
    decode_kernel(AttentionArgs args, Partial<kDim>* partials, int* tickets) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ float maxima[kWarps][16], sums[kWarps][16];
  __shared__ int is_last;
  let_next_start();
  await_inputs();
  const int seq = static_cast<int>(blockIdx.z);
  const int kv_head = static_cast<int>(blockIdx.y);
  const int split = static_cast<int>(blockIdx.x);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int end_key = args.cache_seqlens[seq];
  const int first_key = args.window == 0 ? 0 : max(0, end_key - args.window);
  const SplitTiles tiles = split_tiles(first_key, end_key, split, static_cast<int>(gridDim.x));
  if (tiles.begin >= tiles.end) return;

  const int g = lane / 4;
  const auto* q = static_cast<const Bf16*>(args.q) + seq * args.q_stride;
  const auto row_of = [&](int row) {
    return row < args.group ? q + (kv_head * args.group + row) * args.q_head_stride : nullptr;
  };
  WarpRows<kDim, 16> rows;
  rows.load_queries(row_of(g), row_of(g + 8), lane);
  TileLoader<kDim> loader(args, seq, kv_head, end_key, shared);
  loader.run(tiles.begin, tiles.end, [&](const TileMemory<kDim>& tile, int first) {
    const int key = first + 16 * warp;
    const Visible visible{first_key, end_key};
    rows.add(tile, 16 * warp, key, visible, visible, args, lane);
  });

  // The four warps' parts meet in shared memory, which the tiles do not need any more.
  auto* values = reinterpret_cast<float*>(shared);  // [kWarps][16][kDim]
  rows.write(values + warp * 16 * kDim, maxima[warp], sums[warp], lane);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < args.group * kDim; i += kThreads) {
    const int row = i / kDim;
    const int d = i % kDim;
    float top = maxima[0][row];
    for (int w = 1; w < kWarps; ++w) top = fmaxf(top, maxima[w][row]);
    float sum = 0;
    float value = 0;
    for (int w = 0; w < kWarps; ++w) {
      const float weight = exp2f(maxima[w][row] - top);
      sum += weight * sums[w][row];
      value += weight * values[(w * 16 + row) * kDim + d];
    }
    const int head = kv_head * args.group + row;
    if (tiles.splits == 1) {
      auto* out =
          static_cast<Bf16*>(args.out) + seq * args.out_stride + head * args.out_head_stride;
      out[d] = __float2bfloat16_rn(value / sum);
      continue;
    }
    Partial<kDim>& part =
        partials[(std::int64_t{seq} * args.kv_heads * args.group + head) * kMaxSplits + split];
    part.values[d] = value;
    if (d == 0) {
      part.max = top;
      part.sum = sum;
    }
  }
  if (tiles.splits == 1) return;
  __threadfence();
  __syncthreads();
  int* ticket = tickets + seq * args.kv_heads + kv_head;
  if (threadIdx.x == 0) is_last = static_cast<int>(atomicAdd(ticket, 1) == tiles.splits - 1);
  __syncthreads();
  if (is_last == 0) return;
  __threadfence();
  if (threadIdx.x == 0) *ticket = 0;
  merge_splits<kDim>(
      args, partials + (std::int64_t{seq} * args.kv_heads + kv_head) * args.group * kMaxSplits,
      tiles.splits, seq, kv_head);
}

/// Grid: (blocks of 64 rows, KV heads, sequences); the blocks that see most come first.
template <int kDim>
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
    const auto* at = static_cast<const Bf16*>(base);
    return r < num_rows ? at + (first_token + r / args.group) * stride +
                              (kv_head * args.group + r % args.group) * head_stride
                        : nullptr;
  };
  const auto visible = [&](int r) {
    const int end = before + min(r, num_rows - 1) / args.group + 1;
    return Visible{args.window == 0 ? 0 : max(0, end - args.window), end};
  };
  WarpRows<kDim, kTile> rows;
  rows.load_queries(place(row, args.q, args.q_stride, args.q_head_stride),
                    place(row + 8, args.q, args.q_stride, args.q_head_stride), lane);
  const int end_key = visible(first_row + 63).end;
  const int begin_key = visible(first_row).begin;
  const Visible low = visible(row);
  const Visible high = visible(row + 8);
  TileLoader<kDim> loader(args, seq, kv_head, end_key, shared);
  loader.run(begin_key / kTile, (end_key + kTile - 1) / kTile,
             [&](const TileMemory<kDim>& tile, int first) {
               rows.add(tile, 0, first, low, high, args, lane);
             });
  const auto output = [&](int r) {
    return const_cast<Bf16*>(place(r, args.out, args.out_stride, args.out_head_stride));
  };
  rows.write_output(output(row), output(row + 8), lane);
}

/// Zeros that every launch on a stream leaves as it found them.
class Tickets {
 public:
  explicit Tickets(cuda::CudaStream& stream)
      : memory_(kCount * sizeof(int), {.device = stream.device()}) {}
  static constexpr std::int64_t kCount = 1 << 18;
  int* data() const { return reinterpret_cast<int*>(memory_.data()); }

 private:
  Buffer memory_;
};

template <int kDim>
void run(const PagedAttentionArgs& args, const AttentionArgs& job, TensorView workspace,
         cuda::CudaStream& stream) {
  constexpr int kShared = shared_bytes<kDim>();
  const auto seqs = static_cast<unsigned>(job.num_seqs);
  const auto heads = static_cast<unsigned>(job.kv_heads);
  if (args.max_seqlen_q > 1) {
    static const cudaError_t allowed = cudaFuncSetAttribute(
        extend_kernel<kDim>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
    cuda::check_cuda(allowed, "asking for ", kShared, " bytes of shared memory");
    const dim3 grid(blocks_for(std::int64_t{args.max_seqlen_q} * job.group, 64), heads, seqs);
    launch("paged_attention (extend)", extend_kernel<kDim>, {grid, kThreads, kShared},
           stream.handle(), job);
    return;
  }
  static const cudaError_t allowed = cudaFuncSetAttribute(
      decode_kernel<kDim>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  cuda::check_cuda(allowed, "asking for ", kShared, " bytes of shared memory");
  const std::int64_t pairs = std::int64_t{job.num_seqs} * job.kv_heads;
  check(pairs <= Tickets::kCount, "attention to ", job.num_seqs, " sequences is too much at once");
  const std::int64_t tiles = ceil_div<std::int64_t>(args.max_seqlen_k, kTile);
  const auto splits = static_cast<unsigned>(std::clamp<std::int64_t>(
      ceil_div(kWantedBlocks, pairs), 1, std::min<std::int64_t>(kMaxSplits, tiles)));
  launch("paged_attention (decode)", decode_kernel<kDim>,
         {dim3(splits, heads, seqs), kThreads, kShared}, stream.handle(), job,
         reinterpret_cast<Partial<kDim>*>(workspace.data), stream.state<Tickets>().data());
}

bool is_fast(const PagedAttentionArgs& args) {
  const std::int64_t group = args.q.dim(1) / args.kv.num_heads;
  return args.q.dtype == DType::kBF16 && args.kv.dtype == DType::kBF16 &&
         (args.kv.head_dim == 64 || args.kv.head_dim == 128) && group <= 16;
}

}  // namespace

AttentionArgs attention_args(const PagedAttentionArgs& args) {
  check_float(args.q, "q");
  check_tensor(args.q, {-1, -1, args.kv.head_dim}, args.q.dtype, "q");
  check_tensor(args.out, args.q.shape, args.q.dtype, "out");
  check(args.kv.num_heads > 0 && args.q.dim(1) % args.kv.num_heads == 0, "q has ", args.q.dim(1),
        " heads, which is no multiple of the ", args.kv.num_heads, " KV heads");
  check(args.kv.dtype == DType::kBF16 || args.kv.dtype == DType::kF32,
        "keys and values on a GPU must be bf16 or f32, not ", name(args.kv.dtype));
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
          .slot_stride = args.kv.slot_stride,
          .kv_head_stride = args.kv.head_stride,
          .page_table_stride = args.page_table.stride(0),
          .num_seqs = static_cast<int>(seqs),
          .kv_heads = args.kv.num_heads,
          .group = static_cast<int>(args.q.dim(1) / args.kv.num_heads),
          .head_dim = args.kv.head_dim,
          .page_size = args.kv.page_size,
          .window = args.window_tokens,
          .scale = args.scale,
          .softcap = args.softcap};
}

std::int64_t paged_attention_workspace_bytes(std::int64_t max_rows, std::int32_t q_heads,
                                             std::int32_t kv_heads, std::int32_t head_dim) {
  // Of the splits that a step may use, whatever its number of rows: they are laid out for
  // kMaxSplits a head, and with many rows there is one.
  const std::int64_t split_rows =
      std::min(max_rows, ceil_div(kWantedBlocks, std::int64_t{kv_heads}));
  return split_rows * q_heads * kMaxSplits * (head_dim + 2) * 4;
}

void paged_attention(const PagedAttentionArgs& args, TensorView workspace, Stream& stream) {
  if (!is_fast(args)) {
    paged_attention_plain(args, stream);
    return;
  }
  const AttentionArgs job = attention_args(args);
  check_tensor(workspace, {-1}, DType::kU8, "workspace");
  const std::int64_t needed = paged_attention_workspace_bytes(
      job.num_seqs, static_cast<std::int32_t>(args.q.dim(1)), job.kv_heads, job.head_dim);
  check(workspace.numel() >= needed, "workspace has ", workspace.numel(), " bytes, needs ", needed);
  if (stream.dry() || args.q.dim(0) == 0) return;
  if (job.head_dim == 64) {
    run<64>(args, job, workspace, as_cuda(stream));
  } else {
    run<128>(args, job, workspace, as_cuda(stream));
  }
}

}  // namespace minisgl::kernels::gpu
