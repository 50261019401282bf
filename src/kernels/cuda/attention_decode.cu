// Attention of sequences with one query each. A block has the query heads of one KV head; each of
// its four warps has 16 of a tile's 64 keys.
//
// The tiles of all sequences, one after the other, are one line, of which every block of a KV head
// takes an equal piece, whatever the lengths: keys flow in without a pause from the first sequence
// of the piece to the last. All heads' blocks walk side by side, because what they read at the same
// time is neighbours in memory. A sequence that several blocks have a part of is put together by
// the last one to end.

#include <cuda_runtime.h>

#include <algorithm>
#include <type_traits>

#include "base/math.h"
#include "kernels/cuda/attention_args.cuh"
#include "kernels/cuda/attention_columns.cuh"
#include "kernels/cuda/attention_rope.cuh"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"

namespace minisgl::kernels::gpu {
namespace {

/// Blocks of a launch at most.
constexpr int kMaxBlocks = 792;

/// A part of one query head's output: weights relative to max, in base 2.
template <int kDim>
struct Partial {
  float values[kDim];  // not yet divided by sum
  float max, sum;
  float unused[2];  // values are aligned to 16 bytes
};

/// A sequence and where its tiles lie on the line.
struct Span {
  int seq;
  int first_key, end_key;
  int begin, end;  ///< places on the line

  __device__ int tile_at(int place) const { return first_key / kTile + place - begin; }
};

/// Sequence `seq`, whose tiles begin at place `begin`.
__device__ Span span_of(const AttentionArgs& args, int seq, int begin) {
  Span span;
  span.seq = seq;
  span.end_key = args.cache_seqlens[seq];
  span.first_key = args.window == 0 ? 0 : max(0, span.end_key - args.window);
  span.begin = begin;
  span.end = begin + (span.end_key + kTile - 1) / kTile - span.first_key / kTile;
  return span;
}

/// What a block takes of the line.
struct Piece {
  int begin, end;
  int share;  ///< length of a block's piece; the last one may be shorter
  Span first;
};

/// All threads call it; `whole` is the number of blocks among which the line is shared out. An
/// empty piece has no first sequence.
__device__ Piece piece_of_line(const AttentionArgs& args, int whole) {
  __shared__ int warp_sums[kWarps];
  __shared__ Span found;
  const auto thread = static_cast<int>(threadIdx.x);
  const int each = (args.num_seqs + kThreads - 1) / kThreads;
  const int first_seq = min(args.num_seqs, thread * each);
  const int end_seq = min(args.num_seqs, first_seq + each);
  int sum = 0;
#pragma unroll 1
  for (int seq = first_seq; seq < end_seq; ++seq) sum = span_of(args, seq, sum).end;
  int until = sum;  // of this warp's threads so far
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int other = __shfl_up_sync(~0U, until, d);
    if (thread % 32 >= d) until += other;
  }
  if (thread % 32 == 31) warp_sums[thread / 32] = until;
  __syncthreads();
  int total = 0;
  int at = until - sum;  // where the first of this thread's sequences begins
  for (int w = 0; w < kWarps; ++w) {
    if (w < thread / 32) at += warp_sums[w];
    total += warp_sums[w];
  }
  Piece piece;
  piece.share = (total + whole - 1) / whole;
  piece.begin = min(total, static_cast<int>(blockIdx.x) * piece.share);
  piece.end = min(total, piece.begin + piece.share);
  if (piece.begin >= at && piece.begin < at + sum) {
#pragma unroll 1
    for (int seq = first_seq; seq < end_seq; ++seq) {
      const Span span = span_of(args, seq, at);
      at = span.end;
      if (piece.begin >= at) continue;
      found = span;
      break;
    }
  }
  __syncthreads();
  piece.first = found;
  return piece;
}

/// Memory that blocks exchange partial results in: two of a block's sequences may be cut.
template <int kDim>
struct Exchange {
  Partial<kDim>* partials;  ///< [KV heads][blocks][2][group]
  int* tickets;             ///< [sequences * KV heads]; zero, and again when the kernel ends
  int group;

  /// Of block `block` of this KV head, for a sequence that begins before the block's piece, or else
  /// in it.
  __device__ Partial<kDim>* part(int block, bool begins_before) const {
    const auto all = static_cast<int>(blockIdx.y * gridDim.x) + block;
    return partials + (all * 2 + (begins_before ? 0 : 1)) * group;
  }
};

/// A weighted sum that grows by parts: four columns of one row.
struct Merged {
  float max = -INFINITY, sum = 0;
  float4 values = {0, 0, 0, 0};

  template <int kParts>
  __device__ void add(const Merged (&parts)[kParts]) {
    float top = max;
#pragma unroll
    for (const Merged& part : parts) top = fmaxf(top, part.max);
    const float base = top == -INFINITY ? 0.0F : top;
    const float mine = exp2_fast(max - base);
    sum *= mine;
    values = {values.x * mine, values.y * mine, values.z * mine, values.w * mine};
#pragma unroll
    for (const Merged& part : parts) {
      const float theirs = exp2_fast(part.max - base);
      sum += part.sum * theirs;
      values.x += part.values.x * theirs;
      values.y += part.values.y * theirs;
      values.z += part.values.z * theirs;
      values.w += part.values.w * theirs;
    }
    max = top;
  }
};

template <class T>
__device__ void store(const AttentionArgs& args, int seq, int row, int column,
                      const Merged& merged) {
  auto* out = static_cast<T*>(args.out) + seq * args.out_stride +
              (blockIdx.y * args.group + row) * args.out_head_stride + column;
  const float inverse = __fdividef(1.0F, merged.sum);
  *reinterpret_cast<uint2*>(out) =
      make_uint2(packed<T>(merged.values.x * inverse, merged.values.y * inverse),
                 packed<T>(merged.values.z * inverse, merged.values.w * inverse));
}

/// Adds up the parts of a sequence that blocks [first, last] left. `scratch` has a Merged for each
/// thread.
template <int kDim, class T>
__device__ void merge_parts(const AttentionArgs& args, const Exchange<kDim>& exchange, int seq,
                            int first, int last, Merged* scratch) {
  constexpr int kAtOnce = 8;
  const int columns = args.group * kDim / 4;
  const int slices = max(1, kThreads / columns);
  const int slice = static_cast<int>(threadIdx.x) / columns;
  for (int i = static_cast<int>(threadIdx.x) % columns; slice < slices && i < columns;
       i += kThreads) {
    const int row = i * 4 / kDim;
    const int column = i * 4 % kDim;
    Merged merged;
    for (int block = first + slice; block <= last; block += kAtOnce * slices) {
      Merged parts[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int from = block + j * slices;
        if (from > last) continue;
        const Partial<kDim>* part = exchange.part(from, from > first) + row;
        const float2 weight = __ldcg(reinterpret_cast<const float2*>(&part->max));
        parts[j] = {weight.x, weight.y,
                    __ldcg(reinterpret_cast<const float4*>(part->values + column))};
      }
      merged.add(parts);
    }
    if (slices == 1) {
      store<T>(args, seq, row, column, merged);
      continue;
    }
    scratch[threadIdx.x] = merged;
  }
  if (slices == 1) return;
  __syncthreads();
  if (static_cast<int>(threadIdx.x) >= columns) return;
  Merged merged = scratch[threadIdx.x];
#pragma unroll 1
  for (int s = 1; s < slices; ++s) {
    const Merged other[1] = {scratch[static_cast<int>(threadIdx.x) + s * columns]};
    merged.add(other);
  }
  store<T>(args, seq, static_cast<int>(threadIdx.x) * 4 / kDim,
           static_cast<int>(threadIdx.x) * 4 % kDim, merged);
}

/// What the four warps of a block have of a sequence, in shared memory.
template <int kDim>
struct WarpParts {
  float* values;  ///< [kWarps][group][kDim]
  float (*maxima)[16];
  float (*sums)[16];
};

/// Puts the warps' parts together, and the blocks' if this one is the last of them. All threads
/// call it.
template <int kDim, class T>
__device__ void finish_sequence(const AttentionArgs& args, const Exchange<kDim>& exchange,
                                const Piece& piece, const Span& span,
                                const WarpParts<kDim>& parts) {
  __shared__ int is_last;
  const int seq = span.seq;
  const bool whole = span.begin >= piece.begin && span.end <= piece.end;
  Partial<kDim>* const mine = exchange.part(static_cast<int>(blockIdx.x), span.begin < piece.begin);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < args.group * kDim / 4; i += kThreads) {
    const int row = i * 4 / kDim;
    const int column = i * 4 % kDim;
    Merged of_warps[kWarps];
#pragma unroll
    for (int w = 0; w < kWarps; ++w)
      of_warps[w] = {
          parts.maxima[w][row], parts.sums[w][row],
          *reinterpret_cast<const float4*>(parts.values + (w * args.group + row) * kDim + column)};
    Merged merged;
    merged.add(of_warps);
    if (whole) {
      store<T>(args, seq, row, column, merged);
      continue;
    }
    *reinterpret_cast<float4*>(mine[row].values + column) = merged.values;
    if (column == 0) {
      mine[row].max = merged.max;
      mine[row].sum = merged.sum;
    }
  }
  if (whole) return;
  const int first = span.begin / piece.share;
  const int last = (span.end - 1) / piece.share;
  int* const ticket = exchange.tickets + seq * args.kv_heads + blockIdx.y;
  __syncthreads();  // also: all that the block wrote comes before the ticket
  if (threadIdx.x == 0) {
    int before;
    asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(ticket)
                 : "memory");
    is_last = static_cast<int>(before == last - first);
    if (is_last != 0) *ticket = 0;
  }
  __syncthreads();
  if (is_last == 0) return;
  merge_parts<kDim, T>(args, exchange, seq, first, last, reinterpret_cast<Merged*>(parts.values));
}

/// Shared memory: kStages tiles, then the warps' parts.
template <int kDim, class T, class KV>
__host__ __device__ constexpr int parts_end(int group) {
  // merge_parts() uses the parts' memory as well.
  constexpr int kMerged = kThreads * static_cast<int>(sizeof(Merged));
  const int parts = kWarps * group * kDim * 4;
  return shared_bytes<kDim, T, KV>() + (parts > kMerged ? parts : kMerged);
}

template <int kDim, bool kRope, class T, class KV>
constexpr int decode_shared_bytes(int group) {
  return parts_end<kDim, T, KV>(group) + (kRope ? static_cast<int>(sizeof(NewRows<kDim>)) : 0);
}

/// Grid: (at least as many blocks as have a piece of the line, KV heads). `early`: keys other than
/// the last were there before the kernels that run now began. `kFew`: WarpColumns suffice.
template <int kDim, bool kRope, bool kFew, class T, class KV>
__global__ void __launch_bounds__(kThreads, kFew || !kRope ? 3 : 2)  // as registers allow
    decode_kernel(const __grid_constant__ AttentionArgs args, Exchange<kDim> exchange, int whole,
                  bool early, const __grid_constant__ RopeInputs rope) {
  using Rows = std::conditional_t<kFew, WarpColumns<kDim, T>, WarpRows<kDim, 16, T>>;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ float maxima[kWarps][16], sums[kWarps][16];
  // Behind the warps' parts.
  auto& new_rows = *reinterpret_cast<NewRows<kDim>*>(shared + parts_end<kDim, T, KV>(args.group));
  let_next_start();
  if (!early) await_inputs();
  const Piece piece = piece_of_line(args, whole);
  if (piece.begin >= piece.end) return;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const WarpParts<kDim> parts{reinterpret_cast<float*>(shared + shared_bytes<kDim, T, KV>()),
                              maxima, sums};
  using Loader = TileLoader<kDim, T, KV>;
  const Loader loader(args, shared);
  const auto kv_head = static_cast<int>(blockIdx.y);
  // The last key may not be in the pool yet; zeros are loaded in its place.
  const auto source = [kv_head](const Span& span) {
    return KeySource{span.seq, kv_head, kRope ? span.end_key - 1 : span.end_key};
  };

  // As a graph's other inputs these are there before its first kernel begins.
  RopeInputs::Place place{};
  if constexpr (kRope) place = rope.place_of(piece.first.seq);
  Span coming = piece.first;  // of the tile that is loaded next
  const auto load_place = [&](int next) {
    if (next >= piece.end) return;
    if (next == coming.end) coming = span_of(args, coming.seq + 1, coming.end);
    loader.load(source(coming), coming.tile_at(next), next - piece.begin);
    Loader::commit();
  };
  bool waits = early;  // a tile with a last key is not there yet, unless that is left out
#pragma unroll 1
  for (int next = piece.begin; next < piece.begin + kStages; ++next) {
    if (!kRope && waits && next >= coming.end - 1) {
      await_inputs();
      waits = false;
    }
    load_place(next);
  }
  Rotation<kDim> rotation;
  if constexpr (kRope) rotation.load(rope, place.position, lane);
  if (waits) await_inputs();

  Span span = piece.first;
  int at = piece.begin;
  while (at < piece.end) {
    const int end = min(span.end, piece.end);
    const bool has_last = kRope && end == span.end;
    if constexpr (kRope) {
      prepare_rows<kDim>(args, rope, rotation, place.slot, span.seq, has_last, new_rows);
      __syncthreads();
    }
    const auto* q = static_cast<const T*>(args.q) + span.seq * args.q_stride;
    const auto row_of = [&](int row) {
      if (row >= args.group) return static_cast<const T*>(nullptr);
      return kRope ? reinterpret_cast<const T*>(new_rows.queries[row])
                   : q + (kv_head * args.group + row) * args.q_head_stride;
    };
    Rows rows;
    rows.load_queries(row_of, lane);
    const Visible visible{span.first_key, span.end_key};
    for (; at < end; ++at) {
      if (at + 1 < piece.end) {
        Loader::template await<1>();
      } else {
        Loader::template await<0>();
      }
      __syncthreads();
      const TileMemory<kDim> tile = loader.ready(at - piece.begin);
      if (has_last && at + 1 == end) {
        constexpr int kUnits = kDim / 8;
        const auto i = static_cast<int>(threadIdx.x);
        const int last = (span.end_key - 1) % kTile;
        if (i < kUnits) tile.k[swizzled<kDim>(last, i)] = new_rows.key[i];
        if (i >= kUnits && i < 2 * kUnits)
          tile.v[swizzled<kDim>(last, i - kUnits)] = new_rows.value[i - kUnits];
        __syncthreads();
      }
      rows.add(tile, 16 * warp, span.tile_at(at) * kTile + 16 * warp, visible, args, lane);
      __syncthreads();
      load_place(at + 2);
    }
    const bool goes_on = at < piece.end;
    if constexpr (kRope)
      if (goes_on) place = rope.place_of(span.seq + 1);
    rows.write(parts.values + warp * args.group * kDim, maxima[warp], sums[warp], args.group, lane);
    __syncthreads();
    finish_sequence<kDim, T>(args, exchange, piece, span, parts);
    if (goes_on) {
      if constexpr (kRope) rotation.load(rope, place.position, lane);
      span = span_of(args, span.seq + 1, span.end);
      __syncthreads();  // the parts have been read
    }
  }
}

/// Zeros that every launch on a stream leaves as it found them, and what a launch depends on.
class DecodeState {
 public:
  explicit DecodeState(cuda::CudaStream& stream)
      : tickets_(kCount * sizeof(int), {.device = stream.device()}) {}
  static constexpr std::int64_t kCount = 1 << 18;
  int* tickets() const { return reinterpret_cast<int*>(tickets_.data()); }

  /// Blocks of this kernel that run at once.
  template <int kDim, bool kRope, bool kFew, class T, class KV>
  int blocks(int group, const cuda::CudaStream& stream) {
    constexpr int kKind = (kDim == 64 ? 0 : 1) + (std::is_same_v<T, Bf16> ? 0 : 2) +
                          (std::is_same_v<T, KV> ? 0 : 4) + (kRope ? 8 : 0);
    int& known = blocks_[kKind][group];
    if (known == 0) {
      const auto kernel = decode_kernel<kDim, kRope, kFew, T, KV>;
      const int shared = decode_shared_bytes<kDim, kRope, T, KV>(group);
      constexpr std::int64_t kStatic = 1024;  // more than there is of it
      const auto most = std::min<std::int64_t>(stream.max_shared_bytes() - kStatic,
                                               decode_shared_bytes<kDim, kRope, T, KV>(16));
      cuda::check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            static_cast<int>(most)),
                       "asking for ", most, " bytes of shared memory");
      int each = 0;
      cuda::check_cuda(
          cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, kThreads, shared),
          "asking how many blocks run at once");
      known = std::clamp(each * stream.num_multiprocessors(), 1, kMaxBlocks);
    }
    return known;
  }

 private:
  Buffer tickets_;
  int blocks_[16][17] = {};
};

template <int kDim, bool kRope, bool kFew, class T, class KV>
void run_kernel(const AttentionArgs& job, const RopeInputs& rope, std::int64_t max_keys,
                TensorView workspace, cuda::CudaStream& stream) {
  const std::int64_t pairs = std::int64_t{job.num_seqs} * job.kv_heads;
  check(pairs <= DecodeState::kCount, "attention to ", job.num_seqs,
        " sequences is too much at once");
  auto& state = stream.state<DecodeState>();
  const int whole =
      std::max(1, state.blocks<kDim, kRope, kFew, T, KV>(job.group, stream) / job.kv_heads);
  // How the line is cut does not depend on the number of blocks that are launched, so a graph,
  // whose max_keys is the largest there may be, gives the bits of an eager step.
  const std::int64_t tiles = job.num_seqs * (ceil_div<std::int64_t>(max_keys, kTile) + 1);
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(whole, tiles));
  const Exchange<kDim> exchange{reinterpret_cast<Partial<kDim>*>(workspace.data), state.tickets(),
                                job.group};
  launch("paged_attention (decode)", decode_kernel<kDim, kRope, kFew, T, KV>,
         {dim3(blocks, static_cast<unsigned>(job.kv_heads)), kThreads,
          static_cast<std::size_t>(decode_shared_bytes<kDim, kRope, T, KV>(job.group))},
         stream.handle(), job, exchange, whole, stream.capturing(), rope);
}

template <int kDim, bool kRope, class T, class KV>
void run(const AttentionArgs& job, const RopeInputs& rope, std::int64_t max_keys,
         TensorView workspace, cuda::CudaStream& stream) {
  if (job.group <= WarpColumns<kDim, T>::kQueries) {
    run_kernel<kDim, kRope, true, T, KV>(job, rope, max_keys, workspace, stream);
  } else {
    run_kernel<kDim, kRope, false, T, KV>(job, rope, max_keys, workspace, stream);
  }
}

}  // namespace

std::int64_t decode_workspace_bytes(std::int32_t kv_heads, std::int32_t group,
                                    std::int32_t head_dim) {
  return std::int64_t{std::max(kMaxBlocks, kv_heads)} * 2 * group * (head_dim + 4) * 4;
}

void run_decode(const AttentionArgs& job, AttentionTypes types, std::int64_t max_keys,
                TensorView workspace, cuda::CudaStream& stream) {
  visit_fast_types(types, [&]<class T, class KV>() {
    if (job.head_dim == 64) {
      run<64, false, T, KV>(job, {}, max_keys, workspace, stream);
    } else {
      run<128, false, T, KV>(job, {}, max_keys, workspace, stream);
    }
  });
}

void run_decode_with_rope(const AttentionArgs& job, const RopeStoreArgs& rope,
                          std::int64_t max_keys, TensorView workspace, cuda::CudaStream& stream) {
  const std::int64_t head_dim = job.head_dim;
  auto* const keys = reinterpret_cast<const Bf16*>(rope.qkv.data) +
                     std::int64_t{job.kv_heads} * job.group * head_dim;
  const auto norm = [](const TensorView& weight) {
    return weight.empty() ? nullptr : weight.as<float>();
  };
  const RopeInputs inputs{.keys = keys,
                          .values = keys + job.kv_heads * head_dim,
                          .table = rope.rope_table.as<float>(),
                          .q_norm = norm(rope.q_norm),
                          .k_norm = norm(rope.k_norm),
                          .positions = rope.positions.as<std::int32_t>(),
                          .out_locs = rope.out_locs.as<std::int32_t>(),
                          .pool_keys = reinterpret_cast<Bf16*>(rope.kv.k),
                          .pool_values = reinterpret_cast<Bf16*>(rope.kv.v),
                          .table_stride = rope.rope_table.stride(0),
                          .eps = rope.norm_eps};
  if (head_dim == 64) {
    run<64, true, Bf16, Bf16>(job, inputs, max_keys, workspace, stream);
  } else {
    run<128, true, Bf16, Bf16>(job, inputs, max_keys, workspace, stream);
  }
}

}  // namespace minisgl::kernels::gpu
