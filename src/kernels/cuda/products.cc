// Which code computes a product: cuBLASLt's candidates and ours, measured once for each shape.

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "base/log.h"
#include "base/math.h"
#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/ops.h"

namespace minisgl::kernels::gpu {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
constexpr int kCandidates = 8;              // of cuBLASLt
constexpr std::int64_t kTunedTokens = 512;  // above: cuBLASLt's first candidate is good enough

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

/// cuBLASLt sees columns where we see rows: y^T = w x^T with w transposed.
struct Shapes {
  Shapes(const CublasLt& lt, const Product& p)
      : operation(make_operation(lt)),
        w(make_layout(lt, CUDA_R_16BF, p.cols, p.rows, p.cols)),
        x(make_layout(lt, CUDA_R_16BF, p.cols, p.tokens, p.x_stride)),
        y(make_layout(lt, p.y_type == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF, p.rows, p.tokens,
                      p.y_stride)) {}
  Handle<cublasLtMatmulDesc_t> operation;
  Layout w, x, y;
};

/// How a shape is computed.
struct Plan {
  int tiles = 0;  // of small_product(); 0: cuBLASLt's `algorithm`
  std::shared_ptr<const Shapes> shapes;
  std::optional<cublasLtMatmulAlgo_t> algorithm;
};

class TimingEvent {
 public:
  TimingEvent() { cuda::check_cuda(cudaEventCreate(&event_), "creating an event"); }
  ~TimingEvent() { cudaEventDestroy(event_); }
  TimingEvent(const TimingEvent&) = delete;
  TimingEvent& operator=(const TimingEvent&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

struct Products::Impl {
  explicit Impl(cuda::CudaStream& on) : stream(on), lt(cublas_lt()) {
    if (lt == nullptr) return;
    check_cublas(lt->create(&handle), "starting cuBLASLt");
    workspace = Buffer(kWorkspaceBytes, {.device = stream.device()});
  }
  ~Impl() {
    if (handle != nullptr) lt->destroy(handle);
  }

  void run(const Plan& plan, const Product& p) const {
    if (plan.tiles > 0) {
      small_product(p, plan.tiles, stream.handle());
      return;
    }
    const float one = 1;
    const float zero = 0;
    check_cublas(lt->matmul(handle, plan.shapes->operation.get(), &one, p.w, plan.shapes->w.get(),
                            p.x, plan.shapes->x.get(), &zero, p.y, plan.shapes->y.get(), p.y,
                            plan.shapes->y.get(), &*plan.algorithm, workspace.data(),
                            workspace.size(), stream.handle()),
                 "a matrix product");
    if (p.bias != nullptr) add_bias(p, stream.handle());
  }

  std::vector<Plan> candidates(const Product& p) const {
    std::vector<Plan> plans;
    if (p.tokens <= kSmallTokens)
      for (const int tiles : {1, 2, 4}) plans.push_back({tiles, nullptr, std::nullopt});
    if (lt == nullptr) return plans;
    auto shapes = std::make_shared<const Shapes>(*lt, p);
    cublasLtMatmulPreference_t made = nullptr;
    check_cublas(lt->preference_create(&made), "asking for a product");
    const Handle<cublasLtMatmulPreference_t> preference(made, lt->preference_destroy);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check_cublas(lt->preference_set(made, attribute, &value, sizeof(value)),
                   "asking for a product");
    };
    const std::uint32_t alignment = 16;  // of scratch memory: 64, of a row: check_vectors()
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
    cublasLtMatmulHeuristicResult_t found[kCandidates] = {};
    int count = 0;
    check_cublas(lt->heuristic(handle, shapes->operation.get(), shapes->w.get(), shapes->x.get(),
                               shapes->y.get(), shapes->y.get(), preference.get(), kCandidates,
                               found, &count),
                 "looking for a way to compute a product");
    for (int i = 0; i < count; ++i)
      if (found[i].state == CUBLAS_STATUS_SUCCESS) plans.push_back({0, shapes, found[i].algo});
    check(!plans.empty(), "cuBLASLt cannot compute a product of ", p.tokens, " tokens with [",
          p.rows, ", ", p.cols, "]");
    return plans;
  }

  /// The fastest of `plans`; computes the product some times over.
  Plan measured(std::vector<Plan> plans, const Product& p) const {
    constexpr int kRuns = 4;
    const TimingEvent begin;
    const TimingEvent end;
    float best = 0;
    std::size_t fastest = plans.size();
    for (std::size_t i = 0; i < plans.size(); ++i) {
      run(plans[i], p);
      cuda::check_cuda(cudaEventRecord(begin.get(), stream.handle()), "timing a product");
      for (int j = 0; j < kRuns; ++j) run(plans[i], p);
      cuda::check_cuda(cudaEventRecord(end.get(), stream.handle()), "timing a product");
      cuda::check_cuda(cudaEventSynchronize(end.get()), "timing a product");
      float milliseconds = 0;
      cuda::check_cuda(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()),
                       "timing a product");
      if (fastest < plans.size() && milliseconds >= best) continue;
      best = milliseconds;
      fastest = i;
    }
    return std::move(plans[fastest]);
  }

  const Plan& plan_for(const Product& p) {
    const Key key{p.rows, p.cols, p.tokens, p.x_stride, p.y_stride, p.y_type};
    if (const auto found = plans.find(key); found != plans.end()) return found->second;
    std::vector<Plan> possible = candidates(p);
    const bool tune = p.tokens <= kTunedTokens && !stream.capturing();
    return plans.emplace(key, tune ? measured(std::move(possible), p) : possible.front())
        .first->second;
  }

  using Key =
      std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, DType>;
  cuda::CudaStream& stream;
  const CublasLt* lt;
  cublasLtHandle_t handle = nullptr;
  Buffer workspace;
  std::map<Key, Plan> plans;
};

Products::Products(cuda::CudaStream& stream) : impl_(std::make_unique<Impl>(stream)) {}
Products::~Products() = default;

void Products::run(const Product& product) {
  const bool deterministic = impl_->stream.deterministic();
  if (!deterministic && (impl_->lt != nullptr || product.tokens <= kSmallTokens)) {
    impl_->run(impl_->plan_for(product), product);
    return;
  }
  // A few tokens at a time, by the kernel whose sums do not depend on how many there are; or
  // without cuBLASLt, by what is fastest.
  const Plan always{.tiles = 2, .shapes = nullptr, .algorithm = std::nullopt};
  for (std::int64_t first = 0; first < product.tokens; first += kSmallTokens) {
    Product part = product;
    part.tokens = std::min(kSmallTokens, product.tokens - first);
    part.x =
        static_cast<const std::byte*>(product.x) + bytes_of(DType::kBF16, first * product.x_stride);
    part.y =
        static_cast<std::byte*>(product.y) + bytes_of(product.y_type, first * product.y_stride);
    impl_->run(deterministic ? always : impl_->plan_for(part), part);
  }
}

void linear(TensorView x, std::span<const PackedMatrix* const> weights, TensorView bias,
            TensorView y, Stream& stream) {
  check(!weights.empty(), "linear needs a matrix");
  check_tensor(x, {-1, weights[0]->cols()}, DType::kBF16, "x of linear");
  check_float(y, "y of linear");
  std::int64_t rows = 0;
  for (const PackedMatrix* matrix : weights) {
    check(matrix->packing() == Packing::kGpuRows && matrix->cols() == x.dim(1), "linear: x has ",
          x.dim(1), " columns but a weight is [", matrix->rows(), ", ", matrix->cols(),
          "], or not in the GPU's memory");
    rows += matrix->rows();
  }
  check_tensor(y, {x.dim(0), rows}, y.dtype, "y of linear");
  if (!bias.empty()) check_tensor(bias, {rows}, DType::kF32, "bias of linear");
  check_vectors(x, "x of linear");
  check(y.stride(1) == 1, "linear: the columns of y must be contiguous");
  if (stream.dry() || x.dim(0) == 0) return;
  auto& products = as_cuda(stream).state<Products>();
  std::int64_t first = 0;
  for (const PackedMatrix* matrix : weights) {
    products.run({.x = x.data,
                  .w = matrix->data(),
                  .bias = bias.empty() ? nullptr : bias.as<float>() + first,
                  .y = y.data + bytes_of(y.dtype, first),
                  .tokens = x.dim(0),
                  .rows = matrix->rows(),
                  .cols = matrix->cols(),
                  .x_stride = x.stride(0),
                  .y_stride = y.stride(0),
                  .y_type = y.dtype});
    first += matrix->rows();
  }
}

}  // namespace minisgl::kernels::gpu
