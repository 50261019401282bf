// Edits of logits and log-probabilities. A block for each row that asks for something: rows are
// few, and a row of 150,000 logits stays in the L2 cache while it is read again and again.

#include <cuda_runtime.h>

#include "kernels/cuda/best.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"

namespace minisgl::kernels::gpu {
namespace {

constexpr int kThreads = 1024;

/// Rounded after each operation, as on a CPU: no fused multiply-add.
__global__ void __launch_bounds__(kThreads)
    edit_kernel(float* logits, std::int64_t stride, int vocab, const LogitEditRow* rows,
                LogitEdit* edits, const int* masks, int mask_words) {
  const LogitEditRow row = rows[blockIdx.x];
  float* x = logits + row.row * stride;
  for (int e = row.begin + static_cast<int>(threadIdx.x); e < row.end; e += kThreads) {
    LogitEdit& edit = edits[e];
    float value = x[edit.token];
    edit.original = value;
    value = __fadd_rn(value, edit.bias);
    if (edit.is_seen != 0)
      value = value > 0 ? __fdiv_rn(value, row.repetition_penalty)
                        : __fmul_rn(value, row.repetition_penalty);
    value = __fsub_rn(value, __fmul_rn(row.frequency_penalty, static_cast<float>(edit.count)));
    if (edit.count > 0) value = __fsub_rn(value, row.presence_penalty);
    x[edit.token] = value;
  }
  if (row.mask < 0) return;
  __syncthreads();
  const int* mask = masks + static_cast<std::int64_t>(row.mask) * mask_words;
  for (int id = static_cast<int>(threadIdx.x); id < vocab; id += kThreads)
    if ((static_cast<unsigned>(mask[id / 32]) >> (id % 32) & 1U) == 0) x[id] = -INFINITY;
}

__device__ float log_probability(float logit, double normalizer) {
  const auto value = static_cast<float>(logit - normalizer);
  return isnan(value) ? -INFINITY : value;
}

/// The sum of a block's, in every thread.
__device__ double block_sum_of(double mine, double* shared) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) mine += __shfl_xor_sync(~0U, mine, d);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane == 0) shared[threadIdx.x / 32] = mine;
  __syncthreads();
  mine = shared[lane];
#pragma unroll
  for (int d = 16; d > 0; d /= 2) mine += __shfl_xor_sync(~0U, mine, d);
  return mine;
}

/// The most likely tokens one after the other: each time the best of those that come after the
/// last.
__global__ void __launch_bounds__(kThreads)
    top_kernel(const float* logits, std::int64_t stride, int vocab, const LogprobRow* rows,
               RowLogprobs* out) {
  __shared__ Best shared_best[32];
  __shared__ double shared_sum[32];
  const LogprobRow row = rows[blockIdx.x];
  const float* x = logits + row.row * stride;
  const int wanted = min(row.top, kMaxTopLogprobs);
  RowLogprobs& result = out[blockIdx.x];
  double normalizer = 0;
  Best last{INFINITY, -1};
  int found = 0;
  for (int k = 0; k <= wanted; ++k) {
    // Round 0 looks for the maximum alone, which the sum needs; it is found again in round 1.
    Best best{-INFINITY, vocab};
    for (int id = static_cast<int>(threadIdx.x); id < vocab; id += kThreads) {
      const float value = x[id];
      const bool comes_after = value < last.value || (value == last.value && id > last.id);
      if (comes_after && value > -INFINITY) best = better(best, {value, id});
    }
    best = block_best(best, shared_best);
    if (k == 0) {
      double sum = 0;
      for (int id = static_cast<int>(threadIdx.x); id < vocab; id += kThreads) {
        const float value = x[id];
        if (!isnan(value)) sum += exp(static_cast<double>(value) - best.value);
      }
      sum = block_sum_of(sum, shared_sum);
      normalizer = isfinite(best.value) ? best.value + log(sum) : INFINITY;
    } else {
      if (best.value == -INFINITY) break;
      if (threadIdx.x == 0) {
        result.tokens[k - 1] = best.id;
        result.logprobs[k - 1] = log_probability(best.value, normalizer);
      }
      found = k;
      last = best;
    }
    __syncthreads();  // before shared_best is written again
  }
  if (threadIdx.x == 0) {
    result.normalizer = normalizer;
    result.num_top = found;
  }
}

constexpr int kChosenThreads = 128;

__global__ void __launch_bounds__(kChosenThreads)
    chosen_kernel(const float* logits, std::int64_t stride, const LogprobRow* rows,
                  const int* tokens, const LogitEditRow* edit_rows, const LogitEdit* edits,
                  RowLogprobs* out) {
  __shared__ float logit;
  const LogprobRow row = rows[blockIdx.x];
  const int token = tokens[row.row];
  if (threadIdx.x == 0) logit = logits[row.row * stride + token];
  __syncthreads();
  if (row.edit_row >= 0) {
    const LogitEditRow edited = edit_rows[row.edit_row];
    for (int e = edited.begin + static_cast<int>(threadIdx.x); e < edited.end; e += kChosenThreads)
      if (edits[e].token == token) logit = edits[e].original;  // one edit at most is of this token
  }
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x].chosen = log_probability(logit, out[blockIdx.x].normalizer);
}

}  // namespace

void edit_logits(TensorView logits, const LogitEdits& edits, Stream& stream) {
  if (stream.dry()) return;
  const bool has_masks = edits.masks.data != nullptr;
  edit_kernel<<<static_cast<unsigned>(edits.num_rows), kThreads, 0, as_cuda(stream).handle()>>>(
      logits.as<float>(), logits.stride(0), static_cast<int>(logits.dim(1)), edits.rows,
      edits.edits, has_masks ? edits.masks.as<std::int32_t>() : nullptr,
      has_masks ? static_cast<int>(edits.masks.dim(1)) : 0);
  check_launch("edit_logits");
}

void top_logprobs(TensorView logits, const LogprobRow* rows, std::int64_t n, RowLogprobs* out,
                  Stream& stream) {
  if (stream.dry()) return;
  top_kernel<<<static_cast<unsigned>(n), kThreads, 0, as_cuda(stream).handle()>>>(
      logits.as<float>(), logits.stride(0), static_cast<int>(logits.dim(1)), rows, out);
  check_launch("top_logprobs");
}

void chosen_logprobs(TensorView logits, const LogprobRow* rows, std::int64_t n, TensorView tokens,
                     const LogitEdits& edits, RowLogprobs* out, Stream& stream) {
  if (stream.dry()) return;
  chosen_kernel<<<static_cast<unsigned>(n), kChosenThreads, 0, as_cuda(stream).handle()>>>(
      logits.as<float>(), logits.stride(0), rows, tokens.as<std::int32_t>(), edits.rows,
      edits.edits, out);
  check_launch("chosen_logprobs");
}

}  // namespace minisgl::kernels::gpu
