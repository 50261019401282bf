#include "kernels/grouped_linear.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/math.h"
#include "kernels/cpu/linear_kernels.h"
#include "kernels/cpu/pack.h"
#include "kernels/cuda/ops.h"
#include "tensor/cuda/device.h"

namespace minisgl::kernels {
namespace {

constexpr int kMaxProjections = 2;
constexpr std::int64_t kMinPartBytes = 8 << 10;
constexpr std::int64_t kMaxPartBytes = 256 << 10;
constexpr std::int64_t kPartsPerThread = 8;
constexpr std::int64_t kAlignment = 64;

/// A projection and how an expert's matrix is cut into parts of whole tiles.
struct Segment {
  const PackedExperts* experts = nullptr;
  cpu::TileLayout layout;
  std::int64_t tile_bytes = 0;    // of 32 rows, for kRows too
  std::int64_t first_column = 0;  // of y
  std::int64_t few_rows = 0;      // of a part, for experts with few tokens
  std::int64_t many_rows = 0;     // and with many

  bool needs_sums() const { return layout.has_min && experts->packing() != Packing::kRows; }
  std::int64_t parts(bool few) const {
    return ceil_div(experts->rows(), few ? few_rows : many_rows);
  }
};

/// Sums of x over groups of 32 and of 16 columns, which types with minima need.
struct GroupSums {
  float* of32 = nullptr;  // [N, K / 32]
  float* of16 = nullptr;  // [N, K / 16]
};

struct Product {
  TensorView x;
  TensorView y;
  const std::int32_t* offsets = nullptr;
  std::array<Segment, kMaxProjections> segments;
  int num_segments = 0;
  std::int64_t num_experts = 0;
  std::int64_t few_tokens = 0;
  GroupSums sums;
  std::int64_t* first_part = nullptr;  // [num_experts + 1]

  std::int64_t tokens_of(std::int64_t expert) const {
    return offsets[expert + 1] - offsets[expert];
  }
  /// Tiles are decoded in registers, and a part is a long stretch of memory.
  bool few(std::int64_t expert) const { return tokens_of(expert) <= few_tokens; }
  std::int64_t chunks_of(std::int64_t expert) const {
    return few(expert) ? 1 : ceil_div(tokens_of(expert), cpu::kMaxPartTokens);
  }
  std::int64_t parts_per_chunk(std::int64_t expert) const {
    std::int64_t parts = 0;
    for (int s = 0; s < num_segments; ++s) parts += segments[s].parts(few(expert));
    return parts;
  }
};

/// The same sizes as in linear(): with few tokens a part is a stretch of memory, with many some
/// tiles for a chunk of tokens. The work of all experts is shared out as one.
void partition(Product& product, int num_threads) {
  const std::int64_t parts = num_threads == 1 ? 1 : num_threads * kPartsPerThread;
  std::int64_t active = 0;
  std::int64_t chunks = 0;
  for (std::int64_t e = 0; e < product.num_experts; ++e) {
    if (product.tokens_of(e) == 0) continue;
    ++active;
    chunks += product.chunks_of(e);
  }
  std::int64_t bytes = 0;  // of an expert
  std::int64_t tiles = 0;
  for (int s = 0; s < product.num_segments; ++s) {
    const Segment& segment = product.segments[s];
    const std::int64_t own = ceil_div(segment.experts->rows(), std::int64_t{cpu::kTileRows});
    tiles += own;
    bytes += own * segment.tile_bytes;
  }
  const std::int64_t part_bytes = std::clamp(active * bytes / parts, kMinPartBytes, kMaxPartBytes);
  const std::int64_t many_tiles =
      std::clamp(chunks * tiles / parts, std::int64_t{1}, cpu::kMaxPartTiles);
  for (int s = 0; s < product.num_segments; ++s) {
    Segment& segment = product.segments[s];
    segment.few_rows = std::max(part_bytes / segment.tile_bytes, std::int64_t{1}) * cpu::kTileRows;
    segment.many_rows = many_tiles * cpu::kTileRows;
  }
  product.first_part[0] = 0;
  for (std::int64_t e = 0; e < product.num_experts; ++e) {
    const std::int64_t own =
        product.tokens_of(e) == 0 ? 0 : product.chunks_of(e) * product.parts_per_chunk(e);
    product.first_part[e + 1] = product.first_part[e] + own;
  }
}

void sum_groups_of_row(const Product& product, std::int64_t row) {
  const std::int64_t cols = product.x.dim(1);
  const float* x = product.x.as<float>() + row * product.x.stride(0);
  bool done[2] = {};
  for (int s = 0; s < product.num_segments; ++s) {
    const Segment& segment = product.segments[s];
    const int group = segment.layout.group;
    if (!segment.needs_sums() || done[group == 16]) continue;
    done[group == 16] = true;
    float* sums = group == 16 ? product.sums.of16 : product.sums.of32;
    cpu::linear_kernels().sum_groups(x, cols, group, sums + row * (cols / group));
  }
}

void run_part(const Product& product, std::int64_t part) {
  const std::int64_t* begin = product.first_part;
  const std::int64_t expert =
      std::upper_bound(begin, begin + product.num_experts + 1, part) - begin - 1;
  const bool few = product.few(expert);
  const std::int64_t per_chunk = product.parts_per_chunk(expert);
  const std::int64_t chunk = (part - begin[expert]) / per_chunk;
  std::int64_t index = (part - begin[expert]) % per_chunk;
  int s = 0;
  while (index >= product.segments[s].parts(few)) index -= product.segments[s++].parts(few);
  const Segment& segment = product.segments[s];
  const PackedExperts& experts = *segment.experts;
  const std::int64_t part_rows = few ? segment.few_rows : segment.many_rows;
  const std::int64_t row = index * part_rows;
  const std::int64_t tokens = product.tokens_of(expert);
  const std::int64_t chunks = product.chunks_of(expert);
  const std::int64_t first = product.offsets[expert] + chunk * tokens / chunks;
  const std::int64_t end = product.offsets[expert] + (chunk + 1) * tokens / chunks;
  const std::int64_t cols = experts.cols();

  cpu::LinearPart args;
  args.layout = &segment.layout;
  args.weights = experts.expert(expert) + row / cpu::kTileRows * segment.tile_bytes;
  args.tile_bytes = segment.tile_bytes;
  args.num_rows = std::min(part_rows, experts.rows() - row);
  args.cols = cols;
  args.x_stride = product.x.stride(0);
  args.x = product.x.as<float>() + first * args.x_stride;
  args.num_tokens = end - first;
  args.few = few && experts.packing() != Packing::kRows;
  const int group = segment.layout.group;
  args.sums = segment.needs_sums()
                  ? (group == 16 ? product.sums.of16 : product.sums.of32) + first * (cols / group)
                  : nullptr;
  args.y_stride = product.y.stride(0);
  args.y = product.y.as<float>() + first * args.y_stride + segment.first_column + row;
  if (experts.packing() == Packing::kRows) {
    cpu::multiply_rows(args);
  } else {
    cpu::linear_kernels().multiply_tiles(args);
  }
}

void run(Product& product, ThreadPool& pool) {
  partition(product, pool.num_threads());
  if (product.sums.of32 != nullptr)
    pool.parallel_for(product.x.dim(0), [&](std::int64_t row) { sum_groups_of_row(product, row); });
  pool.parallel_for(product.first_part[product.num_experts],
                    [&](std::int64_t part) { run_part(product, part); });
}

bool any_sums(std::span<const PackedExperts* const> weights) {
  return std::any_of(weights.begin(), weights.end(), [](const PackedExperts* w) {
    return w->packing() != Packing::kRows && cpu::tile_layout(w->dtype()).has_min;
  });
}

std::int64_t table_bytes(std::int64_t num_experts) {
  return round_up((num_experts + 1) * std::int64_t{sizeof(std::int64_t)}, kAlignment);
}

Product make_product(const GroupedLinearArgs& args) {
  check(!args.weights.empty() && args.weights.size() <= kMaxProjections,
        "grouped_linear takes 1 or ", kMaxProjections, " projections, not ", args.weights.size());
  const PackedExperts& first = *args.weights[0];
  check_tensor(args.x, {-1, first.cols()}, DType::kF32, "x of grouped_linear");
  check_tensor(args.offsets, {first.num_experts() + 1}, DType::kI32, "offsets of grouped_linear");
  Product product{.x = args.x, .y = args.y, .segments = {}, .sums = {}};
  product.offsets = args.offsets.as<std::int32_t>();
  product.num_experts = first.num_experts();
  std::int64_t columns = 0;
  bool tiles = false;
  for (const PackedExperts* experts : args.weights) {
    check(experts->complete() && experts->num_experts() == first.num_experts() &&
              experts->cols() == first.cols(),
          "grouped_linear: the projections must be of all of the same experts");
    tiles |= experts->packing() != Packing::kRows;
    Segment& segment = product.segments[product.num_segments++];
    segment.experts = experts;
    segment.layout = cpu::tile_layout(experts->dtype());
    segment.tile_bytes = experts->packing() == Packing::kRows
                             ? cpu::kTileRows * bytes_of(experts->dtype(), experts->cols())
                             : cpu::tile_bytes(segment.layout, experts->cols());
    segment.first_column = columns;
    columns += experts->rows();
  }
  product.few_tokens = tiles ? cpu::linear_kernels().few_tokens : cpu::kMaxPartTokens;
  check_tensor(args.y, {args.x.dim(0), columns}, DType::kF32, "y of grouped_linear");
  check(args.x.stride(1) == 1 && args.y.stride(1) == 1,
        "grouped_linear: the columns of x and y must be contiguous");
  return product;
}

}  // namespace

namespace {

void copy_matrix(const PackedMatrix& matrix, std::byte* to) {
  if constexpr (cuda::kBuilt)
    if (!matrix.device().is_cpu()) return cuda::copy_now(to, matrix.data(), matrix.bytes());
  std::memcpy(to, matrix.data(), matrix.bytes());
}

}  // namespace

void PackedExperts::add(const PackedMatrix& matrix) {
  check(added_ < num_experts_, "there are ", num_experts_, " experts, and all were added");
  if (added_ == 0) {
    rows_ = matrix.rows();
    cols_ = matrix.cols();
    dtype_ = matrix.dtype();
    packing_ = matrix.packing();
    bytes_ = static_cast<std::int64_t>(matrix.bytes());
    stride_bytes_ = round_up(bytes_, kAlignment);
    data_ =
        Buffer(static_cast<std::size_t>(num_experts_ * stride_bytes_), {.device = matrix.device()});
  }
  check(matrix.rows() == rows_ && matrix.cols() == cols_ && matrix.dtype() == dtype_ &&
            matrix.packing() == packing_,
        "expert ", added_, " is a ", name(matrix.dtype()), " matrix [", matrix.rows(), ", ",
        matrix.cols(), "], but expert 0 is a ", name(dtype_), " matrix [", rows_, ", ", cols_, "]");
  if (bytes_ > 0) copy_matrix(matrix, data_.data() + added_ * stride_bytes_);
  ++added_;
}

void grouped_linear(const GroupedLinearArgs& args, TensorView workspace, Stream& stream) {
  if constexpr (cuda::kBuilt)
    if (!stream.device().is_cpu()) return gpu::grouped_linear(args, stream);
  Product product = make_product(args);
  const std::int64_t rows = args.x.dim(0);
  const std::int64_t cols = args.x.dim(1);
  check_tensor(workspace, {-1}, DType::kU8, "workspace of grouped_linear");
  const std::int64_t needed = grouped_linear_workspace_bytes(args.weights, rows);
  check(workspace.numel() >= needed, "workspace of grouped_linear has ", workspace.numel(),
        " bytes, needs ", needed);
  if (rows == 0) return;
  const bool sums = any_sums(args.weights);
  as_cpu(stream).run([product, workspace, sums, rows, cols](ThreadPool& pool) mutable {
    product.first_part = reinterpret_cast<std::int64_t*>(workspace.data);
    if (sums) {
      product.sums.of32 =
          reinterpret_cast<float*>(workspace.data + table_bytes(product.num_experts));
      product.sums.of16 = product.sums.of32 + rows * (cols / 32);
    }
    run(product, pool);
  });
}

std::int64_t grouped_linear_workspace_bytes(std::span<const PackedExperts* const> weights,
                                            std::int64_t num_rows) {
  std::int64_t bytes = table_bytes(weights[0]->num_experts());
  const std::int64_t cols = weights[0]->cols();
  if (any_sums(weights)) bytes += num_rows * (cols / 32 + cols / 16) * std::int64_t{sizeof(float)};
  return bytes;
}

}  // namespace minisgl::kernels
