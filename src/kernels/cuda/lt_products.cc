#include "kernels/cuda/lt_products.h"

#include <type_traits>

#include "base/check.h"
#include "tensor/dtype.h"

namespace minisgl::kernels::gpu {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

/// A cuBLASLt object with its destructor.
template <class T>
class Handle {
 public:
  using Destroy = cublasStatus_t (*)(T);
  Handle(T handle, Destroy destroy) : handle_(handle, Deleter{destroy}) {}
  T get() const { return handle_.get(); }

 private:
  struct Deleter {
    Destroy destroy;
    void operator()(T handle) const { destroy(handle); }
  };
  std::unique_ptr<std::remove_pointer_t<T>, Deleter> handle_;
};

using Layout = Handle<cublasLtMatrixLayout_t>;

Layout make_layout(const CublasLt& lt, cudaDataType type, std::int64_t rows, std::int64_t cols,
                   std::int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_cublas(lt.layout_create(&layout, type, static_cast<std::uint64_t>(rows),
                                static_cast<std::uint64_t>(cols), stride),
               "describing a matrix");
  return {layout, lt.layout_destroy};
}

Handle<cublasLtMatmulDesc_t> make_operation(const CublasLt& lt) {
  cublasLtMatmulDesc_t desc = nullptr;
  check_cublas(lt.desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
  Handle<cublasLtMatmulDesc_t> operation(desc, lt.desc_destroy);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  check_cublas(lt.desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)),
               "describing a product");
  return operation;
}

}  // namespace

/// cuBLASLt sees columns where we see rows: y^T = w x^T with w transposed.
struct LtShapes {
  LtShapes(const CublasLt& lt, const Product& p)
      : operation(make_operation(lt)),
        w(make_layout(lt, CUDA_R_16BF, p.cols, p.rows, p.cols)),
        x(make_layout(lt, CUDA_R_16BF, p.cols, p.tokens, p.x_stride)),
        y(make_layout(lt, p.y_type == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF, p.rows, p.tokens,
                      p.y_stride)) {}
  Handle<cublasLtMatmulDesc_t> operation;
  Layout w, x, y;
};

LtProducts::LtProducts(cuda::CudaStream& stream) : stream_(stream), lt_(cublas_lt()) {
  if (lt_ == nullptr) return;
  check_cublas(lt_->create(&handle_), "starting cuBLASLt");
  workspace_ = Buffer(kWorkspaceBytes, {.device = stream.device()});
}

LtProducts::~LtProducts() {
  if (handle_ != nullptr) lt_->destroy(handle_);
}

std::vector<LtPlan> LtProducts::plans(const Product& product, int most) const {
  auto shapes = std::make_shared<const LtShapes>(*lt_, product);
  cublasLtMatmulPreference_t made = nullptr;
  check_cublas(lt_->preference_create(&made), "asking for a product");
  const Handle<cublasLtMatmulPreference_t> preference(made, lt_->preference_destroy);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check_cublas(lt_->preference_set(made, attribute, &value, sizeof(value)),
                 "asking for a product");
  };
  const std::uint32_t alignment = 16;  // of scratch memory: 64, of a row: check_vectors()
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(most));
  int count = 0;
  check_cublas(lt_->heuristic(handle_, shapes->operation.get(), shapes->w.get(), shapes->x.get(),
                              shapes->y.get(), shapes->y.get(), preference.get(), most,
                              found.data(), &count),
               "looking for a way to compute a product");
  found.resize(static_cast<std::size_t>(count));
  std::vector<LtPlan> plans;
  for (const cublasLtMatmulHeuristicResult_t& result : found)
    if (result.state == CUBLAS_STATUS_SUCCESS) plans.push_back({shapes, result.algo});
  return plans;
}

std::optional<LtPlan> LtProducts::adapted(const LtPlan& plan, const Product& product) const {
  LtPlan fitting = plan;
  fitting.shapes = std::make_shared<const LtShapes>(*lt_, product);
  cublasLtMatmulHeuristicResult_t result{};
  const LtShapes& shapes = *fitting.shapes;
  if (lt_->check_algorithm(handle_, shapes.operation.get(), shapes.w.get(), shapes.x.get(),
                           shapes.y.get(), shapes.y.get(), &fitting.algorithm,
                           &result) != CUBLAS_STATUS_SUCCESS ||
      result.workspaceSize > workspace_.size())
    return std::nullopt;
  return fitting;
}

void LtProducts::run(const LtPlan& plan, const Product& product) const {
  const float one = 1;
  const float beta = product.into == Into::kAdd ? 1 : 0;
  const LtShapes& shapes = *plan.shapes;
  check_cublas(
      lt_->matmul(handle_, shapes.operation.get(), &one, product.w, shapes.w.get(), product.x,
                  shapes.x.get(), &beta, product.y, shapes.y.get(), product.y, shapes.y.get(),
                  &plan.algorithm, workspace_.data(), workspace_.size(), stream_.handle()),
      "a matrix product");
  if (product.bias != nullptr) add_bias(product, stream_.handle());
}

}  // namespace minisgl::kernels::gpu
