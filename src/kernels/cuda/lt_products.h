// Products by cuBLASLt. For files below cuda/.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/linear.h"
#include "tensor/buffer.h"

namespace minisgl::kernels::gpu {

/// What cuBLASLt is told of the matrices of a product.
struct LtShapes;

/// How cuBLASLt computes the products of one shape.
struct LtPlan {
  std::shared_ptr<const LtShapes> shapes;  ///< shared by the plans that were found together
  cublasLtMatmulAlgo_t algorithm{};
};

/// cuBLASLt on one stream. A product here is the bare one: no norm before it, no gate after it.
class LtProducts {
 public:
  /// Opens the library. Allocates.
  explicit LtProducts(cuda::CudaStream& stream);
  ~LtProducts();
  LtProducts(const LtProducts&) = delete;
  LtProducts& operator=(const LtProducts&) = delete;

  /// Whether there is the library. Without it nothing below may be called.
  bool found() const { return lt_ != nullptr; }

  /// Up to `most` ways to compute it, what cuBLASLt takes for the fastest one first.
  std::vector<LtPlan> plans(const Product& product, int most) const;

  /// `plan` for the shapes of `product`, if it can compute them.
  std::optional<LtPlan> adapted(const LtPlan& plan, const Product& product) const;

  void run(const LtPlan& plan, const Product& product) const;

 private:
  cuda::CudaStream& stream_;
  const CublasLt* lt_;
  cublasLtHandle_t handle_ = nullptr;
  Buffer workspace_;
};

}  // namespace minisgl::kernels::gpu
