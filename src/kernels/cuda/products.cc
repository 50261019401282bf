// Which code computes a product: cuBLASLt's candidates and ours, measured once for each shape.

#include <algorithm>
#include <bit>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <span>
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
constexpr int kMaxCandidates = 8;           // of cuBLASLt
constexpr std::int64_t kTunedTokens = 256;  // above: cuBLASLt's first candidate is good enough

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

bool is_gated(Into into) { return into == Into::kSilu || into == Into::kGelu; }

std::int64_t normed_bytes(const Product& p) {
  return p.norm == nullptr ? 0
                           : round_up<std::int64_t>(bytes_of(DType::kBF16, p.tokens * p.cols), 64);
}

std::int64_t gate_up_bytes(const Product& p) {
  return is_gated(p.into) ? bytes_of(DType::kBF16, p.tokens * p.rows) : 0;
}

/// The number of tokens whose plan is used for `tokens`: the more there are, the fewer differ.
/// Engine::warm_up() meets those that small prompts have.
std::int64_t tokens_like(std::int64_t tokens) {
  const auto power = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(tokens)));
  if (tokens <= kSmallTokens) return power;
  if (tokens <= kTunedTokens) return round_up<std::int64_t>(tokens, tokens <= 64 ? 8 : 32);
  return tokens <= power / 4 * 3 ? power / 4 * 3 : power;
}

/// The product alone, when what lies before and after it has kernels of its own.
Product bare(const Product& p) {
  Product product = p;
  auto* workspace = static_cast<std::byte*>(p.workspace);
  if (p.norm != nullptr) {
    product.x = workspace;
    product.x_stride = p.cols;
    product.norm = nullptr;
    product.x_rows = nullptr;
  }
  if (is_gated(p.into)) {
    product.y = workspace + normed_bytes(p);
    product.y_stride = p.rows;
    product.y_type = DType::kBF16;
    product.into = Into::kStore;
  }
  return product;
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
  SmallShape small = {};      // of small_product(), if it has tiles
  ClusterShape cluster = {};  // of cluster_product(), if it has tiles; else cuBLASLt's `algorithm`
  bool fused = false;         // ours do what lies before and after as well
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
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         DType, Into, bool>;

  explicit Impl(cuda::CudaStream& on) : stream(on), lt(cublas_lt()) {
    if (lt == nullptr) return;
    check_cublas(lt->create(&handle), "starting cuBLASLt");
    workspace = Buffer(kWorkspaceBytes, {.device = stream.device()});
  }
  ~Impl() {
    if (handle != nullptr) lt->destroy(handle);
  }

  /// The product alone.
  void multiply(const Plan& plan, const Product& p) const {
    if (plan.small.tiles > 0) {
      small_product(p, plan.small, stream);
      return;
    }
    if (plan.cluster.row_tiles > 0) {
      cluster_product(p, plan.cluster, stream);
      return;
    }
    const float one = 1;
    const float beta = p.into == Into::kAdd ? 1 : 0;
    check_cublas(lt->matmul(handle, plan.shapes->operation.get(), &one, p.w, plan.shapes->w.get(),
                            p.x, plan.shapes->x.get(), &beta, p.y, plan.shapes->y.get(), p.y,
                            plan.shapes->y.get(), &*plan.algorithm, workspace.data(),
                            workspace.size(), stream.handle()),
                 "a matrix product");
    if (p.bias != nullptr) add_bias(p, stream.handle());
  }

  void run(const Plan& plan, const Product& p) const {
    if (plan.fused) {
      multiply(plan, p);
      return;
    }
    const Product product = bare(p);
    if (p.norm != nullptr) norm_rows(p, p.workspace, stream.handle());
    multiply(plan, product);
    if (is_gated(p.into)) activate(p, product.y, stream.handle());
  }

  /// With our own kernels.
  std::vector<Plan> fused_plans(const Product& p) const {
    constexpr SmallShape kSmall[] = {{1, 8}, {1, 16}, {2, 8}, {2, 16}, {4, 8}};
    constexpr ClusterShape kClusters[] = {{2, 4}, {4, 8}, {8, 4}};
    std::vector<Plan> plans;
    for (const SmallShape& shape : kSmall)
      if ((!is_gated(p.into) || shape.tiles > 1) && p.tokens <= small_product_tokens(p, shape)) {
        plans.emplace_back().small = shape;
        plans.back().fused = true;
      }
    // Clusters have been faster where each multiprocessor has about one block, and not for fewer
    // tokens.
    const std::int64_t places = stream.num_multiprocessors();
    for (const ClusterShape& shape : kClusters) {
      const std::int64_t blocks = blocks_of(p, shape);
      if (p.tokens <= 8 || !takes_product(p, shape) || 4 * blocks < 3 * places ||
          blocks > 2 * places)
        continue;
      plans.emplace_back().cluster = shape;
      plans.back().fused = true;
    }
    return plans;
  }

  std::vector<Plan> candidates(const Product& whole) const {
    std::vector<Plan> plans;
    plans = fused_plans(whole);
    const Product p = bare(whole);
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
    const int wanted = whole.tokens <= kTunedTokens ? kMaxCandidates : 1;
    cublasLtMatmulHeuristicResult_t found[kMaxCandidates] = {};
    int count = 0;
    check_cublas(
        lt->heuristic(handle, shapes->operation.get(), shapes->w.get(), shapes->x.get(),
                      shapes->y.get(), shapes->y.get(), preference.get(), wanted, found, &count),
        "looking for a way to compute a product");
    for (int i = 0; i < count; ++i)
      if (found[i].state == CUBLAS_STATUS_SUCCESS)
        plans.emplace_back() = {.small = {},
                                .cluster = {},
                                .fused = false,
                                .shapes = shapes,
                                .algorithm = found[i].algo};
    check(!plans.empty(), "cuBLASLt cannot compute a product of ", p.tokens, " tokens with [",
          p.rows, ", ", p.cols, "]");
    return plans;
  }

  /// The fastest of `plans`. Each is tried as it will run: some products one after the other in a
  /// graph, so that a kernel may begin while the one before it ends, with weights that lie in no
  /// cache. Memory of our own stands in for them, and for a y that would be added to.
  Plan measured(std::vector<Plan> plans, Product p) {
    if (plans.size() == 1) return std::move(plans.front());
    const std::int64_t l2 = l2_bytes();
    const std::int64_t weight_bytes = bytes_of(DType::kBF16, p.rows * p.cols);
    if (cold.size() == 0)
      cold = Buffer(static_cast<std::size_t>(2 * l2), {.device = stream.device()});
    if (p.into == Into::kAdd) {
      const auto y_bytes = static_cast<std::size_t>(bytes_of(p.y_type, p.tokens * p.y_stride));
      if (sums.size() < y_bytes) sums = Buffer(y_bytes, {.device = stream.device()});
      p.y = sums.data();
    }
    const std::int64_t places = static_cast<std::int64_t>(cold.size()) / weight_bytes;
    std::vector<Product> chain;
    for (std::int64_t bytes = 0; chain.size() < 3 || (bytes < l2 && chain.size() < 16);
         bytes += weight_bytes) {
      Product next = p;
      const auto i = static_cast<std::int64_t>(chain.size());
      if (places > 1) next.w = cold.data() + i % places * weight_bytes;
      chain.push_back(next);
    }
    float best = 0;
    std::size_t fastest = plans.size();
    for (std::size_t i = 0; i < plans.size(); ++i) {
      const float milliseconds = time_of(plans[i], chain);
      if (fastest < plans.size() && milliseconds >= best) continue;
      best = milliseconds;
      fastest = i;
    }
    return std::move(plans[fastest]);
  }

  /// Milliseconds of the products in a graph.
  float time_of(const Plan& plan, std::span<const Product> chain) {
    constexpr int kRuns = 3;
    // As long as the kernels between the products of a layer are: time to bring weights.
    constexpr std::int64_t kPauseNanoseconds = 3000;
    constexpr const char* kWhat = "timing a product";
    const cudaStream_t on = stream.handle();
    run(plan, chain.front());  // what is done only once is not recorded
    cuda::check_cuda(cudaStreamBeginCapture(on, cudaStreamCaptureModeThreadLocal), kWhat);
    std::exception_ptr fault;
    try {
      for (const Product& product : chain) {
        pause(kPauseNanoseconds, on);
        run(plan, product);
      }
    } catch (...) {
      fault = std::current_exception();
    }
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(on, &graph);
    if (fault != nullptr) std::rethrow_exception(fault);
    cuda::check_cuda(ended, kWhat);
    cudaGraphExec_t executable = nullptr;
    const cudaError_t made = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    cuda::check_cuda(made, kWhat);
    float fewest = 0;
    for (int i = 0; i <= kRuns; ++i) {
      cuda::check_cuda(cudaEventRecord(begin.get(), on), kWhat);
      cuda::check_cuda(cudaGraphLaunch(executable, on), kWhat);
      cuda::check_cuda(cudaEventRecord(end.get(), on), kWhat);
      cuda::check_cuda(cudaEventSynchronize(end.get()), kWhat);
      float milliseconds = 0;
      cuda::check_cuda(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), kWhat);
      if (i == 1 || (i > 1 && milliseconds < fewest)) fewest = milliseconds;
    }
    cudaGraphExecDestroy(executable);
    return fewest;
  }

  std::int64_t l2_bytes() const {
    int bytes = 0;
    cuda::check_cuda(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, stream.device().index),
                     "asking for the size of the cache");
    return bytes;
  }

  static Key key_of(const Product& p, std::int64_t tokens) {
    return {p.rows, p.cols, tokens, p.x_stride, p.y_stride, p.y_type, p.into, p.norm != nullptr};
  }

  /// What was found for one number of tokens serves those near it too, so that a server whose steps
  /// are of all sizes does not stop to measure for each of them.
  const Plan& plan_for(const Product& p) {
    const Key key = key_of(p, p.tokens);
    if (const auto found = plans.find(key); found != plans.end()) return found->second;
    const Key near = key_of(p, tokens_like(p.tokens));
    if (const auto known = measured_plans.find(near); known != measured_plans.end())
      if (std::optional<Plan> fitting = adapted(known->second, p))
        return plans.emplace(key, std::move(*fitting)).first->second;
    std::vector<Plan> possible = candidates(p);
    const bool tune = p.tokens <= kTunedTokens && !stream.capturing();
    const Plan& plan =
        plans.emplace(key, tune ? measured(std::move(possible), p) : possible.front())
            .first->second;
    if (!stream.capturing()) measured_plans.emplace(near, plan);
    return plan;
  }

  /// `plan` for the shapes of `p`, if it can compute them.
  std::optional<Plan> adapted(Plan plan, const Product& p) const {
    if (!plan.algorithm) return plan;
    plan.shapes = std::make_shared<const Shapes>(*lt, bare(p));
    cublasLtMatmulHeuristicResult_t result{};
    const Shapes& shapes = *plan.shapes;
    if (lt->check_algorithm(handle, shapes.operation.get(), shapes.w.get(), shapes.x.get(),
                            shapes.y.get(), shapes.y.get(), &*plan.algorithm,
                            &result) != CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > workspace.size())
      return std::nullopt;
    return plan;
  }

  cuda::CudaStream& stream;
  const CublasLt* lt;
  cublasLtHandle_t handle = nullptr;
  Buffer workspace;
  Buffer cold;  // twice what the cache holds; made when something is measured
  Buffer sums;
  TimingEvent begin, end;
  std::map<Key, Plan> plans;           // by the exact number of tokens
  std::map<Key, Plan> measured_plans;  // by tokens_like()
};

Products::Products(cuda::CudaStream& stream) : impl_(std::make_unique<Impl>(stream)) {}
Products::~Products() = default;

void Products::run(const Product& product) {
  const bool deterministic = impl_->stream.deterministic();
  if (!deterministic && impl_->lt != nullptr) {
    impl_->run(impl_->plan_for(product), product);
    return;
  }
  // A few tokens at a time, by the kernel whose sums do not depend on how many there are; or
  // without cuBLASLt, by what is fastest.
  Plan always;
  always.small = {.tiles = 2};
  const DType x_type = product.norm == nullptr ? DType::kBF16 : DType::kF32;
  const std::int64_t step = small_product_tokens(product, always.small);
  check(step > 0, "a product with rows of ", product.cols, " numbers needs cuBLASLt");
  for (std::int64_t first = 0; first < product.tokens; first += step) {
    Product part = product;
    part.tokens = std::min(step, product.tokens - first);
    if (product.x_rows != nullptr) {
      part.x_rows = product.x_rows + first;
    } else {
      part.x =
          static_cast<const std::byte*>(product.x) + bytes_of(x_type, first * product.x_stride);
    }
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

namespace {

/// Throws Error unless the arguments fit each other.
Product checked(const FusedLinear& args) {
  const PackedMatrix& weight = *args.weight;
  const bool normed = !args.norm.empty();
  const bool gated = is_gated(args.into);
  const std::int64_t rows = weight.rows();
  const std::int64_t tokens = args.y.dim(0);
  check(weight.packing() == Packing::kGpuRows,
        "fused_linear: the weight is not in the GPU's memory");
  check_tensor(args.x, {args.x_rows.empty() ? tokens : -1, weight.cols()},
               normed ? DType::kF32 : DType::kBF16, "x of fused_linear");
  check_vectors(args.x, "x of fused_linear");
  if (normed) {
    check_tensor(args.norm, {weight.cols()}, DType::kF32, "norm of fused_linear");
    check_vectors(args.norm, "norm of fused_linear");
  }
  if (!args.x_rows.empty()) {
    check(normed, "fused_linear takes rows of x only under a norm");
    check_tensor(args.x_rows, {tokens}, DType::kI32, "x_rows of fused_linear");
  }
  if (!args.bias.empty()) check_tensor(args.bias, {rows}, DType::kF32, "bias of fused_linear");
  check(args.bias.empty() || args.into != Into::kAdd, "fused_linear adds a product without a bias");
  check(args.y.dtype == DType::kF32 || (args.y.dtype == DType::kBF16 && args.into != Into::kAdd),
        "y of fused_linear is ", name(args.y.dtype));
  check_tensor(args.y, {tokens, gated ? rows / 2 : rows}, gated ? DType::kBF16 : args.y.dtype,
               "y of fused_linear");
  check(args.y.stride(1) == 1, "fused_linear: the columns of y must be contiguous");
  if (gated) check_vectors(args.y, "y of fused_linear");
  return {.x = args.x.data,
          .norm = normed ? args.norm.as<float>() : nullptr,
          .x_rows = args.x_rows.empty() ? nullptr : args.x_rows.as<std::int32_t>(),
          .w = weight.data(),
          .bias = args.bias.empty() ? nullptr : args.bias.as<float>(),
          .y = args.y.data,
          .tokens = tokens,
          .rows = rows,
          .cols = weight.cols(),
          .x_stride = args.x.stride(0),
          .y_stride = args.y.stride(0),
          .y_type = args.y.dtype,
          .into = args.into,
          .eps = args.eps};
}

}  // namespace

std::int64_t fused_linear_workspace_bytes(const FusedLinear& args) {
  const Product product = checked(args);
  return normed_bytes(product) + gate_up_bytes(product);
}

void fused_linear(const FusedLinear& args, TensorView workspace, Stream& stream) {
  Product product = checked(args);
  const std::int64_t bytes = normed_bytes(product) + gate_up_bytes(product);
  check(workspace.numel() >= bytes, "fused_linear needs ", bytes, " bytes of workspace, not ",
        workspace.numel());
  if (stream.dry() || product.tokens == 0) return;
  product.workspace = workspace.data;
  as_cuda(stream).state<Products>().run(product);
}

}  // namespace minisgl::kernels::gpu
