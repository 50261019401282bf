// The ops of this layer on a GPU, which the functions of the same names in kernels/ call when their
// stream is one of a GPU. No CUDA header is needed to include this.
//
// In common: activations are bf16 or f16 (f32 where said), sums f32, weights of norms and biases
// f32. Vectors are read 16 bytes at a time, so widths are multiples of 8 and rows are aligned to 16
// bytes. All is enqueued; nothing allocates or synchronises but where said. Errors are found on the
// host: shapes, types, alignment, a launch that fails. Dry streams drop the work after the checks.

#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/attention.h"
#include "kernels/grouped_linear.h"
#include "kernels/linear.h"
#include "kernels/logits.h"
#include "kernels/moe.h"
#include "kernels/rope.h"
#include "kernels/sampling.h"
#include "tensor/cuda/build.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace minisgl::kernels::gpu {

/// See kernels/norm.h. x and y are f32, bf16 or f16 each.
void rms_norm(TensorView x, TensorView weight, float eps, TensorView y, Stream& stream);
/// x f32, bf16 or f16, residual f32: what was added in many layers is not rounded in each of them.
void fused_add_rms_norm(TensorView x, TensorView residual, TensorView weight, float eps,
                        Stream& stream);

/// See kernels/activation.h. Both of one type: bf16, f16 or f32.
void silu_and_mul(TensorView gate_up, TensorView y, Stream& stream);
void gelu_tanh_and_mul(TensorView gate_up, TensorView y, Stream& stream);

/// See kernels/gather.h. gather_rows: both of one type, bf16, f16 or f32.
void gather_rows(TensorView x, TensorView rows, TensorView y, Stream& stream);
void gather(TensorView values, TensorView index, TensorView out, Stream& stream);
void scatter(TensorView in, TensorView index, TensorView values, Stream& stream);
/// view[i] = first + i * step; i32.
void fill_ascending(TensorView view, std::int32_t first, std::int32_t step, Stream& stream);

/// See kernels/rope.h. qkv and q both bf16, both f16 or both f32; keys and values fp8 (e4m3,
/// rounded to nearest even, up to 448), or bf16 or f32, or f16 if q is.
void qk_norm_rope_store(const RopeStoreArgs& args, Stream& stream);

/// Fills `out` with elements of `choices` [2^16], both bf16 or f16 in one GPU's memory: each number
/// of split_mix(seed, ...) is the places of four of them, the lowest 16 bits first. Waits.
void fill_random_now(TensorView out, TensorView choices, std::uint64_t seed);

/// `weight` (host memory, any weight type) as [rows, cols] of `dtype`, bf16 or f16, in the memory
/// of `device`: Packing::kGpuRows. Waits for the copy. Throws Error, which begins with `what`,
/// when a number is beyond the range of f16. A weight of that type may also lie in the memory of
/// `device` already; its rows then keep their order.
PackedMatrix pack_matrix(TensorView weight, std::span<const std::int32_t> row_order,
                         ThreadPool& pool, Device device, DType dtype = DType::kBF16,
                         std::string_view what = "a weight");
/// Matrices of kGpuRows with equal cols, one after the other, as one. Waits.
PackedMatrix concatenate_rows(std::span<const PackedMatrix> parts);

/// See kernels/linear.h. x bf16, y bf16 or f32, matrices of kGpuRows. Up to 256 rows of x go to a
/// kernel of ours or to cuBLASLt, whichever is faster; more to cuBLASLt. Which is faster is
/// measured once for each shape, outside of a capture: that call synchronises.
void linear(TensorView x, std::span<const PackedMatrix* const> weights, TensorView bias,
            TensorView y, Stream& stream);
constexpr std::int64_t kSmallTokens = 16;

/// What becomes of a product.
enum class Into : std::uint8_t {
  kStore,  ///< y = it
  kAdd,    ///< y += it
  kSilu,   ///< it is a gate and, after it, as many columns `up`: y = silu(gate) * up
  kGelu,   ///< the same with gelu, in its approximation by tanh
};

/// A product with what lies before and after it.
struct FusedLinear {
  TensorView x;                          ///< [M, K] bf16; with a norm: f32, the residual stream
  TensorView norm = {};                  ///< [K] f32: weight of an RMS norm of x; or empty
  float eps = 0;                         ///< of the norm
  TensorView x_rows = {};                ///< with a norm: [M] i32, rows of x; empty: all of them
  const PackedMatrix* weight = nullptr;  ///< [N, K] of kGpuRows
  TensorView bias = {};                  ///< [N] f32, or empty; not with kAdd
  Into into = Into::kStore;
  TensorView y;  ///< [M, N] bf16 or f32; kAdd: f32; kSilu and kGelu: [M, N / 2] bf16
};

/// linear() of x under a norm, added to y or through an activation: for few rows one kernel, for
/// more of them up to three, as was measured to be faster. `workspace` [bytes] u8. Synchronises as
/// linear() does. Throws Error if shapes or types disagree.
void fused_linear(const FusedLinear& args, TensorView workspace, Stream& stream);
std::int64_t fused_linear_workspace_bytes(const FusedLinear& args);

/// See kernels/linear.h. y bf16, f16 or f32. An id outside of the table gives zeros.
void embedding(TensorView ids, const PackedMatrix& table, std::int64_t first_id, TensorView y,
               Stream& stream);

/// See kernels/moe.h. Logits and weights f32; x and y bf16, f16 or f32 each.
void route_tokens(TensorView logits, bool normalize, const Routing& routing, Stream& stream);
void combine_experts(TensorView x, const Routing& routing, TensorView y, Stream& stream);

/// See kernels/grouped_linear.h. x and matrices (kGpuRows) both bf16 or both f16, y like x or f32.
/// The order of a row's
/// sums depends on how many rows there are in all, unless the stream is deterministic.
void grouped_linear(const GroupedLinearArgs& args, Stream& stream);

/// See kernels/sampling.h. `rows` is memory of the device. One pass over the logits for rows
/// without filters. The draw is the CPU's unless the uniform number falls within rounding (some
/// 1e-6) of the border between two tokens: sums are made in another order. Filters are exact.
void sample(TensorView logits, const SamplingRow* rows, TensorView tokens, TensorView workspace,
            Stream& stream);
std::int64_t sampling_workspace_bytes(std::int64_t num_rows, std::int64_t vocab_size);

/// See kernels/logits.h, whose functions have checked the shapes. All pointers are memory of the
/// device. edit_logits() gives the CPU's bits; normalizers are sums in another order.
void edit_logits(TensorView logits, const LogitEdits& edits, Stream& stream);
void top_logprobs(TensorView logits, const LogprobRow* rows, std::int64_t n, RowLogprobs* out,
                  Stream& stream);
void chosen_logprobs(TensorView logits, const LogprobRow* rows, std::int64_t n, TensorView tokens,
                     const LogitEdits& edits, RowLogprobs* out, Stream& stream);

}  // namespace minisgl::kernels::gpu
