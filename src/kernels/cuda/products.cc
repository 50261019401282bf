// Which code computes a product: cuBLASLt's candidates and ours, measured once for each shape.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/log.h"
#include "base/math.h"
#include "kernels/cuda/flashinfer/hopper_product.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/lt_products.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/product_timing.h"

namespace minisgl::kernels::gpu {
namespace {

// Of 64 ways that cuBLASLt was asked for, none was faster than the best of these.
constexpr int kMaxCandidates = 6;
constexpr std::int64_t kTunedTokens = 256;  // above: cuBLASLt's first candidate is good enough

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

/// Whether a plan is looked for among few for this very number of tokens, one that graphs have: a
/// large product whose time grows with the tokens, so that it matters where tiles end. Not of
/// logits, of which a step has one.
bool has_own_plan(const Product& p) {
  constexpr std::int64_t kLargeBytes = 40 << 20;
  const bool is_logits = p.y_type == DType::kF32 && p.into == Into::kStore;
  return !is_logits && p.tokens > 128 && p.tokens <= kTunedTokens && p.tokens % 8 == 0 &&
         bytes_of(DType::kBF16, p.rows * p.cols) >= kLargeBytes;
}

/// The product whose x is that of `p` under the norm, in the workspace.
Product without_norm(const Product& p) {
  Product product = p;
  if (p.norm != nullptr) {
    product.x = p.workspace;
    product.x_stride = p.cols;
    product.norm = nullptr;
    product.x_rows = nullptr;
  }
  return product;
}

/// The product alone, when what lies before and after it has kernels of its own.
Product bare(const Product& p) {
  Product product = without_norm(p);
  if (is_gated(p.into)) {
    product.y = static_cast<std::byte*>(p.workspace) + normed_bytes(p);
    product.y_stride = p.rows;
    product.y_type = DType::kBF16;
    product.into = Into::kStore;
  }
  return product;
}

/// How a shape is computed.
struct Plan {
  SmallShape small = {};             // of small_product(), if it has tiles
  ClusterShape cluster = {};         // of cluster_product(), if it has tiles
  const HopperTile* tile = nullptr;  // of hopper_product(), if there is one
  std::optional<LtPlan> lt = {};     // else cuBLASLt
  bool fused = false;                // ours do what lies before and after as well
};

std::string name_of(const Plan& plan) {
  if (plan.small.tiles > 0)
    return fmt::format("a kernel of {} times 8 rows for {} warps", plan.small.tiles,
                       plan.small.warps);
  if (plan.cluster.row_tiles > 0)
    return fmt::format("{} blocks for {} rows", plan.cluster.blocks, 16 * plan.cluster.row_tiles);
  if (plan.tile == nullptr) return "cuBLASLt";
  return fmt::format("a tile of {} tokens and {} rows (split {}, share {}, resident {})",
                     plan.tile->tokens, plan.tile->rows, plan.tile->split, plan.tile->share,
                     plan.tile->resident);
}

}  // namespace

struct Products::Impl {
  /// What a plan depends on; the last one: whether x and y are aligned as cuBLASLt was told.
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         DType, Into, bool, bool>;

  explicit Impl(cuda::CudaStream& on) : stream(on), lt(on), timer(on) {}

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
    if (plan.tile != nullptr) {
      plan.tile->run(p, stream.handle());
      return;
    }
    lt.run(*plan.lt, p);
  }

  void run(const Plan& plan, const Product& p) const {
    if (plan.fused) {
      multiply(plan, p);
      return;
    }
    const Product product = plan.tile != nullptr ? without_norm(p) : bare(p);
    if (p.norm != nullptr) norm_rows(p, p.workspace, stream.handle());
    multiply(plan, product);
    if (is_gated(p.into) && plan.tile == nullptr) activate(p, product.y, stream.handle());
  }

  /// With our own kernels.
  std::vector<Plan> fused_plans(const Product& p) const {
    constexpr SmallShape kSmall[] = {{1, 8}, {1, 16}, {2, 8}, {2, 16}, {4, 8}};
    constexpr ClusterShape kClusters[] = {{2, 4}, {4, 8}, {8, 4}};
    std::vector<Plan> plans;
    for (const SmallShape& shape : kSmall)
      if ((!is_gated(p.into) || shape.tiles > 1) &&
          p.tokens <= small_product_tokens(p, shape, stream)) {
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

  /// For a number of tokens near those that `like` was measured to be fastest for.
  std::vector<Plan> few_candidates(const Product& p, Plan like) const {
    constexpr int kFew = 2;
    std::vector<Plan> plans{std::move(like)};
    for (LtPlan& plan : lt.plans(bare(p), kFew)) plans.emplace_back().lt = std::move(plan);
    const auto tiles = likely_tiles(without_norm(p), stream);
    if (!tiles.empty()) plans.emplace_back().tile = tiles.front();
    return plans;
  }

  std::vector<Plan> candidates(const Product& whole) const {
    std::vector<Plan> plans = fused_plans(whole);
    if (!lt.found()) return plans;
    const bool tuned = whole.tokens <= kTunedTokens;
    for (LtPlan& plan : lt.plans(bare(whole), tuned ? kMaxCandidates : 1))
      plans.emplace_back().lt = std::move(plan);
    if (tuned)
      for (const HopperTile* tile : likely_tiles(without_norm(whole), stream))
        plans.emplace_back().tile = tile;
    check(!plans.empty(), "cuBLASLt cannot compute a product of ", whole.tokens, " tokens with [",
          whole.rows, ", ", whole.cols, "]");
    return plans;
  }

  /// The fastest of `plans`.
  Plan measured(std::vector<Plan> plans, const Product& p) {
    const std::size_t fastest = timer.fastest(
        plans.size(), p, [&](std::size_t i, const Product& product) { run(plans[i], product); });
    log::debug("{} tokens times [{}, {}]: {} is the fastest of {} ways", p.tokens, p.rows, p.cols,
               name_of(plans[fastest]), plans.size());
    return std::move(plans[fastest]);
  }

  static Key key_of(const Product& p, std::int64_t tokens) {
    const bool aligned =
        (reinterpret_cast<std::uintptr_t>(p.x) | reinterpret_cast<std::uintptr_t>(p.y)) % 16 == 0;
    return {p.rows, p.cols, tokens, p.x_stride, p.y_stride, p.y_type, p.into, p.norm != nullptr,
            aligned};
  }

  /// What was found for one number of tokens serves those near it too, so that a server whose steps
  /// are of all sizes does not stop to measure for each of them.
  const Plan& plan_for(const Product& p) {
    const Key key = key_of(p, p.tokens);
    if (const auto found = plans.find(key); found != plans.end()) return found->second;
    const Key near = key_of(p, tokens_like(p.tokens));
    std::optional<Plan> like;
    if (const auto known = measured_plans.find(near); known != measured_plans.end())
      like = adapted(known->second, p);
    const bool tune = p.tokens <= kTunedTokens && !stream.capturing();
    if (like && !(tune && has_own_plan(p)))
      return plans.emplace(key, std::move(*like)).first->second;
    std::vector<Plan> possible = like ? few_candidates(p, std::move(*like)) : candidates(p);
    const Plan& plan =
        plans.emplace(key, tune ? measured(std::move(possible), p) : possible.front())
            .first->second;
    if (!stream.capturing()) measured_plans.emplace(near, plan);
    return plan;
  }

  /// `plan` for the shapes of `p`, if it can compute them.
  std::optional<Plan> adapted(Plan plan, const Product& p) const {
    if (!plan.lt) return plan;
    plan.lt = lt.adapted(*plan.lt, bare(p));
    return plan.lt ? std::optional(std::move(plan)) : std::nullopt;
  }

  cuda::CudaStream& stream;
  LtProducts lt;
  ProductTimer timer;
  std::map<Key, Plan> plans;           // by the exact number of tokens
  std::map<Key, Plan> measured_plans;  // by tokens_like()
};

Products::Products(cuda::CudaStream& stream) : impl_(std::make_unique<Impl>(stream)) {}
Products::~Products() = default;

void Products::run(const Product& product) {
  const bool deterministic = impl_->stream.deterministic();
  if (!deterministic && impl_->lt.found()) {
    impl_->run(impl_->plan_for(product), product);
    return;
  }
  // A few tokens at a time, by the kernel whose sums do not depend on how many there are; or
  // without cuBLASLt, by what is fastest.
  Plan always;
  always.small = {.tiles = 2};
  const DType x_type = product.norm == nullptr ? DType::kBF16 : DType::kF32;
  const std::int64_t step = small_product_tokens(product, always.small, impl_->stream);
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
