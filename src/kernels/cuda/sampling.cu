// Drawing tokens. Two kernels: the first reads all logits once, a block for each chunk of a row,
// and leaves each chunk's maximum and sum of weights; the second, a block for each row, draws from
// them and looks into one chunk only. Rows with filters are read some more times by the second.

#include <cuda_runtime.h>

#include <cfloat>

#include "kernels/cuda/best.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/sampling_filter.cuh"
#include "kernels/cuda/vec.cuh"

namespace minisgl::kernels::gpu {
namespace {

constexpr int kScanThreads = 256;
constexpr int kChunk = 4096;  // logits
constexpr int kPerThread = kChunk / kScanThreads;
constexpr int kMaxChunks = 512;

/// Of one chunk of a row.
struct ChunkScan {
  float max;  // -inf: nothing but -inf and NaN
  int argmax;
  float sum;  // of exp((x - max) / temperature), unless the row is greedy
  int has_nan;
};

__global__ void __launch_bounds__(kScanThreads)
    scan_kernel(const float* logits, std::int64_t stride, int vocab, const SamplingRow* rows,
                ChunkScan* scans) {
  let_next_start();
  await_inputs();
  __shared__ Best shared_best[32];
  __shared__ float shared_sum[32];
  const float* row = logits + blockIdx.y * stride;
  const int begin = static_cast<int>(blockIdx.x) * kChunk;
  float x[kPerThread];
  Best best{-INFINITY, vocab};
  int has_nan = 0;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int id = begin + i * kScanThreads + static_cast<int>(threadIdx.x);
    x[i] = id < vocab ? row[id] : -INFINITY;
    has_nan |= static_cast<int>(isnan(x[i]));
    best = better(best, {isnan(x[i]) ? -INFINITY : x[i], id});
  }
  has_nan = __syncthreads_or(has_nan);
  best = block_best(best, shared_best);
  const SamplingRow how = rows[blockIdx.y];
  float sum = 0;
  if (!is_greedy(how) && best.value > -INFINITY && best.value < INFINITY) {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) sum += expf((x[i] - best.value) / how.temperature);
    sum = block_sum(sum, shared_sum);
  }
  if (threadIdx.x == 0)
    scans[blockIdx.y * gridDim.x + blockIdx.x] = {best.value, best.id, sum, has_nan};
}

/// The token at `target` of the chunk's weights relative to `max`, in order of their ids; the last
/// one with any weight should rounding carry us past the end. All threads call it.
__device__ int locate(const float* row, int begin, int end, float max, float temperature,
                      double target) {
  constexpr int kEach = kChunk / kRowThreads;
  __shared__ double sums[kRowThreads];
  __shared__ int found;
  const int first = begin + static_cast<int>(threadIdx.x) * kEach;
  float weights[kEach];
  double sum = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    weights[i] = first + i < end ? expf((row[first + i] - max) / temperature) : 0.0F;
    sum += weights[i];
  }
  if (threadIdx.x == 0) found = -1;
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int d = 1; d < kRowThreads; d *= 2) {  // sums up to and with each thread
    const double before = static_cast<int>(threadIdx.x) >= d ? sums[threadIdx.x - d] : 0;
    __syncthreads();
    sums[threadIdx.x] += before;
    __syncthreads();
  }
  const double total = sums[kRowThreads - 1];
  const double before = threadIdx.x == 0 ? 0.0 : sums[threadIdx.x - 1];
  double left = target - before;
  int mine = -1;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (weights[i] == 0 || (mine >= 0 && left < 0)) continue;
    mine = first + i;
    left -= weights[i];
  }
  // Of the threads whose sum goes beyond the target, the first; else the last with any weight.
  const bool reaches = target >= total || (before <= target && target < sums[threadIdx.x]);
  if (reaches && mine >= 0) atomicMax(&found, mine);
  __syncthreads();
  return found;
}

__global__ void __launch_bounds__(kRowThreads)
    draw_kernel(const float* logits, std::int64_t stride, int vocab, const SamplingRow* rows,
                const ChunkScan* scans, int num_chunks, int* tokens) {
  let_next_start();
  await_inputs();
  __shared__ Best shared_best[32];
  __shared__ double weights[kMaxChunks];
  __shared__ int chosen;
  __shared__ double left;
  const float* row = logits + blockIdx.x * stride;
  const ChunkScan* chunks = scans + std::int64_t{blockIdx.x} * num_chunks;
  Best best{-INFINITY, vocab};
  int has_nan = 0;
  for (int c = static_cast<int>(threadIdx.x); c < num_chunks; c += kRowThreads) {
    best = better(best, {chunks[c].max, chunks[c].argmax});
    has_nan |= chunks[c].has_nan;
  }
  has_nan = __syncthreads_or(has_nan);
  best = block_best(best, shared_best);
  const SamplingRow how = rows[blockIdx.x];
  if (is_greedy(how) || has_nan != 0 || !isfinite(best.value)) {
    if (threadIdx.x == 0) tokens[blockIdx.x] = best.value == -INFINITY ? 0 : best.id;
    return;
  }
  const std::uint32_t bits = philox_bits(how.seed, how.position);
  int token = -1;
  if (has_filter(how, vocab)) {
    token = draw_filtered(row, vocab, how, best.value, bits);
  } else {
    for (int c = static_cast<int>(threadIdx.x); c < num_chunks; c += kRowThreads)
      weights[c] = chunks[c].max == -INFINITY
                       ? 0.0
                       : chunks[c].sum * static_cast<double>(
                                             expf((chunks[c].max - best.value) / how.temperature));
    __syncthreads();
    if (threadIdx.x == 0) {
      double total = 0;
      for (int c = 0; c < num_chunks; ++c) total += weights[c];
      double target = total * (bits * 0x1p-32);
      chosen = 0;
      for (int c = 0; c < num_chunks; ++c) {
        const double here = weights[c];
        if (here > 0) {
          chosen = c;
          left = target;
          if (target < here) break;
        }
        target -= here;
      }
    }
    __syncthreads();
    const int begin = chosen * kChunk;
    token = locate(row, begin, min(vocab, begin + kChunk), best.value, how.temperature, left);
  }
  if (threadIdx.x == 0) tokens[blockIdx.x] = token < 0 ? best.id : token;
}

std::int64_t num_chunks(std::int64_t vocab) { return ceil_div<std::int64_t>(vocab, kChunk); }

}  // namespace

std::int64_t sampling_workspace_bytes(std::int64_t num_rows, std::int64_t vocab_size) {
  return num_rows * num_chunks(vocab_size) * static_cast<std::int64_t>(sizeof(ChunkScan));
}

void sample(TensorView logits, const SamplingRow* rows, TensorView tokens, TensorView workspace,
            Stream& stream) {
  check_tensor(logits, {-1, -1}, DType::kF32, "logits");
  const std::int64_t num_rows = logits.dim(0);
  const std::int64_t vocab = logits.dim(1);
  check_tensor(tokens, {num_rows}, DType::kI32, "tokens");
  check_tensor(workspace, {-1}, DType::kU8, "workspace");
  check(vocab > 0 && logits.stride(1) == 1 && (num_rows <= 1 || tokens.stride(0) == 1),
        "logits and tokens must be contiguous in their last dimension, and logits not empty");
  check(workspace.numel() >= sampling_workspace_bytes(num_rows, vocab), "workspace has ",
        workspace.numel(), " bytes, needs ", sampling_workspace_bytes(num_rows, vocab));
  check(num_chunks(vocab) <= kMaxChunks, "a vocabulary of ", vocab, " tokens is larger than ",
        std::int64_t{kMaxChunks} * kChunk);
  if (stream.dry() || num_rows == 0) return;
  auto* scans = reinterpret_cast<ChunkScan*>(workspace.data);
  const auto chunks = static_cast<unsigned>(num_chunks(vocab));
  const cudaStream_t on = as_cuda(stream).handle();
  launch("sample (scan)", scan_kernel,
         {dim3(chunks, static_cast<unsigned>(num_rows)), kScanThreads}, on, logits.as<float>(),
         logits.stride(0), static_cast<int>(vocab), rows, scans);
  launch("sample (draw)", draw_kernel, {dim3(static_cast<unsigned>(num_rows)), kRowThreads}, on,
         logits.as<float>(), logits.stride(0), static_cast<int>(vocab), rows, scans,
         static_cast<int>(chunks), tokens.as<std::int32_t>());
}

}  // namespace minisgl::kernels::gpu
