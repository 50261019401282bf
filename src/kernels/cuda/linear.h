// The pieces of gpu::linear() and gpu::fused_linear(). For files below cuda/.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "kernels/cuda/ops.h"
#include "tensor/cuda/stream.h"
#include "tensor/dtype.h"

namespace minisgl::kernels::gpu {

/// y[m, n] = sum_k x[m, k] * w[n, k] (+ bias[n]), or what `into` makes of it. Strides in elements;
/// w is contiguous.
struct Product {
  const void* x = nullptr;      ///< [tokens, cols] bf16; with a norm: f32
  const float* norm = nullptr;  ///< [cols]: x is x / sqrt(mean(x^2) + eps) * norm; null: x itself
  const int* x_rows = nullptr;  ///< with a norm: the row of x of each token; null: in order
  const void* w = nullptr;      ///< [rows, cols] bf16
  const float* bias = nullptr;
  void* y =
      nullptr;  ///< [tokens, rows] of y_type: bf16 or f32; of a gate and up: [tokens, rows / 2]
  void* workspace = nullptr;  ///< of workspace_bytes(); may be null where those are 0
  std::int64_t tokens = 0, rows = 0, cols = 0;
  std::int64_t x_stride = 0, y_stride = 0;
  DType y_type = DType::kBF16;
  Into into = Into::kStore;
  float eps = 0;
};

__host__ __device__ constexpr bool is_gated(Into into) {
  return into == Into::kSilu || into == Into::kGelu;
}

/// How a block of small_product() is made: it computes eight rows of w `tiles` times; its warps
/// share the columns.
struct SmallShape {
  int tiles = 0;  ///< 1, 2 or 4; of a gate and up 2 or 4
  int warps = 8;  ///< 8 or 16
};

/// The most tokens that small_product() takes at a time: they lie in shared memory. 0: not even
/// one.
std::int64_t small_product_tokens(const Product& product, SmallShape shape,
                                  const cuda::CudaStream& stream);

/// Up to small_product_tokens(); streams the weights through shared memory, and does what comes
/// before and after the product on the way. The order of the sum over k does not depend on the
/// tokens.
void small_product(const Product& product, SmallShape shape, cuda::CudaStream& stream);

/// How cluster_product() is made: a cluster of blocks computes 16 * row_tiles rows of w.
struct ClusterShape {
  int row_tiles = 0;  ///< 2, 4 or 8
  int blocks = 4;     ///< of a cluster, 1 to 8
};

constexpr std::int64_t kClusterTokens = 32;

/// Whether cluster_product() can compute it: up to kClusterTokens tokens of a width whose part has
/// room in shared memory.
bool takes_product(const Product& product, ClusterShape shape);
/// How many blocks it would be.
std::int64_t blocks_of(const Product& product, ClusterShape shape);

/// Does what small_product() does, for more tokens. From Hopper on.
void cluster_product(const Product& product, ClusterShape shape, cuda::CudaStream& stream);

/// Lets so much time pass.
void pause(std::int64_t nanoseconds, cudaStream_t stream);

/// y[m, n] += bias[n].
void add_bias(const Product& product, cudaStream_t stream);

/// Norms of rows by index: y[m, :] = norm(x[rows[m], :]), y [tokens, cols] contiguous bf16.
void norm_rows(const Product& product, void* y, cudaStream_t stream);

/// y[m, n] = act(gate_up[m, n]) * gate_up[m, rows / 2 + n] for `product`'s y, by its `into`;
/// gate_up [tokens, rows] contiguous bf16.
void activate(const Product& product, const void* gate_up, cudaStream_t stream);

/// cuBLASLt on one stream, and what was measured there. The library is opened when the first of
/// these is made, so that programs start without it.
class Products {
 public:
  explicit Products(cuda::CudaStream& stream);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// Any number of tokens, by whatever was measured to be fastest for this shape.
  void run(const Product& product);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace minisgl::kernels::gpu
