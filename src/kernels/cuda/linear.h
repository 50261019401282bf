// The pieces of gpu::linear(). For files below cuda/.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "tensor/cuda/stream.h"
#include "tensor/dtype.h"

namespace minisgl::kernels::gpu {

/// y[m, n] = sum_k x[m, k] * w[n, k] (+ bias[n]). Strides in elements; w is contiguous.
struct Product {
  const void* x = nullptr;  ///< [tokens, cols] bf16
  const void* w = nullptr;  ///< [rows, cols] bf16
  const float* bias = nullptr;
  void* y = nullptr;  ///< [tokens, rows] of y_type: bf16 or f32
  std::int64_t tokens = 0, rows = 0, cols = 0;
  std::int64_t x_stride = 0, y_stride = 0;
  DType y_type = DType::kBF16;
};

/// Up to kSmallTokens tokens; streams the weights through registers. `tiles`: how many times eight
/// rows of w a block computes, 1, 2 or 4. The order of the sum over k does not depend on the
/// tokens.
void small_product(const Product& product, int tiles, cudaStream_t stream);

/// y[m, n] += bias[n].
void add_bias(const Product& product, cudaStream_t stream);

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
