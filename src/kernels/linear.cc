#include "kernels/linear.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "kernels/cpu/linear_bf16.h"
#include "kernels/cpu/linear_kernels.h"
#include "kernels/cpu/pack.h"
#include "kernels/cuda/ops.h"
#include "tensor/half.h"

namespace minisgl::kernels {
namespace {

constexpr int kMaxSegments = 8;
constexpr std::int64_t kMinPartBytes = 8 << 10;
constexpr std::int64_t kMaxPartBytes = 256 << 10;
constexpr std::int64_t kPartsPerThread = 8;

/// One matrix of a product, cut into parts of whole tiles.
struct Segment {
  const PackedMatrix* matrix = nullptr;
  cpu::TileLayout layout;
  std::int64_t tile_bytes = 0;    // of 32 rows, for kRows too
  std::int64_t first_column = 0;  // of y
  std::int64_t part_rows = 0;
  std::int64_t first_part = 0;
};

/// A whole product: parts are numbered token chunk by token chunk, so that the threads share the
/// chunk's x in the cache.
struct Product {
  TensorView x;
  TensorView bias;
  TensorView y;
  std::array<Segment, kMaxSegments> segments;
  int num_segments = 0;
  std::int64_t total_bytes = 0;
  std::int64_t total_tiles = 0;
  bool tiles = false;  // some matrix is not kRows
  bool few = false;
  const cpu::Bf16Kernels* bf16 = nullptr;  // not null: x is bf16, and all matrices are
  std::int64_t parts_per_chunk = 0;
  std::int64_t chunk_tokens = 0;

  std::int64_t num_tokens() const { return x.dim(0); }
};

void add_segment(Product& product, const PackedMatrix& matrix, std::int64_t first_column) {
  Segment& segment = product.segments[product.num_segments++];
  segment.matrix = &matrix;
  segment.layout = cpu::tile_layout(matrix.dtype());
  segment.tile_bytes = matrix.packing() == Packing::kRows
                           ? cpu::kTileRows * bytes_of(matrix.dtype(), matrix.cols())
                           : cpu::tile_bytes(segment.layout, matrix.cols());
  segment.first_column = first_column;
  const std::int64_t tiles = ceil_div(matrix.rows(), std::int64_t{cpu::kTileRows});
  product.total_tiles += tiles;
  product.tiles |= matrix.packing() != Packing::kRows;
  product.total_bytes += tiles * segment.tile_bytes;
}

/// With few tokens a part is a stretch of memory, long enough to be worth a claim and short enough
/// to share the work evenly. With many it is a chunk of the tokens and some tiles, up to a number
/// that makes the work common to all tiles of a chunk of tokens cheap.
void partition(Product& product, int num_threads) {
  const std::int64_t tokens = product.num_tokens();
  product.few = product.tiles && tokens <= cpu::linear_kernels().few_tokens &&
                product.x.dim(1) <= cpu::kMaxFewCols;
  const std::int64_t chunks = product.few ? 1 : ceil_div(tokens, cpu::kMaxPartTokens);
  product.chunk_tokens = chunks == 1 ? tokens
                                     : std::min(round_up(ceil_div(tokens, chunks), std::int64_t{8}),
                                                cpu::kMaxPartTokens);
  const std::int64_t parts = num_threads == 1 ? 1 : num_threads * kPartsPerThread;
  const std::int64_t part_bytes =
      std::clamp(product.total_bytes / parts, kMinPartBytes, kMaxPartBytes);
  const std::int64_t many_tiles =
      std::clamp(product.total_tiles * chunks / parts, std::int64_t{1}, cpu::kMaxPartTiles);
  product.parts_per_chunk = 0;
  for (int i = 0; i < product.num_segments; ++i) {
    Segment& segment = product.segments[i];
    const std::int64_t few_tiles = std::max(part_bytes / segment.tile_bytes, std::int64_t{1});
    segment.part_rows = (product.few ? few_tiles : many_tiles) * cpu::kTileRows;
    segment.first_part = product.parts_per_chunk;
    product.parts_per_chunk += ceil_div(segment.matrix->rows(), segment.part_rows);
  }
}

/// Sums of x over groups of columns, which types with minima need.
struct GroupSums {
  alignas(64) float of32[cpu::kMaxFewTokens * cpu::kMaxFewCols / 32];
  alignas(64) float of16[cpu::kMaxFewTokens * cpu::kMaxFewCols / 16];

  float* of(int group) { return group == 16 ? of16 : of32; }
};

void run_bf16_part(const Product& product, const Segment& segment, std::int64_t row,
                   std::int64_t token) {
  const std::int64_t column = segment.first_column + row;
  cpu::Bf16Part args;
  args.weights = segment.matrix->data() + row / cpu::kTileRows * segment.tile_bytes;
  args.tile_bytes = segment.tile_bytes;
  args.num_rows = std::min(segment.part_rows, segment.matrix->rows() - row);
  args.cols = segment.matrix->cols();
  args.x_stride = product.x.stride(0);
  args.x = reinterpret_cast<const std::uint16_t*>(product.x.data) + token * args.x_stride;
  args.num_tokens = std::min(product.chunk_tokens, product.num_tokens() - token);
  args.y_stride = product.y.stride(0);
  args.y = reinterpret_cast<float*>(product.y.data) + token * args.y_stride + column;
  args.bias =
      product.bias.empty() ? nullptr : reinterpret_cast<const float*>(product.bias.data) + column;
  product.bf16->multiply(args);
}

void run_part(const Product& product, std::int64_t part, GroupSums& sums) {
  const std::int64_t chunk = part / product.parts_per_chunk;
  const std::int64_t index = part % product.parts_per_chunk;
  int s = product.num_segments - 1;
  while (product.segments[s].first_part > index) --s;
  const Segment& segment = product.segments[s];
  const PackedMatrix& matrix = *segment.matrix;
  const std::int64_t row = (index - segment.first_part) * segment.part_rows;
  const std::int64_t token = chunk * product.chunk_tokens;
  const std::int64_t column = segment.first_column + row;
  if (product.bf16 != nullptr) {
    run_bf16_part(product, segment, row, token);
    return;
  }

  cpu::LinearPart args;
  args.layout = &segment.layout;
  args.weights = matrix.data() + row / cpu::kTileRows * segment.tile_bytes;
  args.tile_bytes = segment.tile_bytes;
  args.num_rows = std::min(segment.part_rows, matrix.rows() - row);
  args.cols = matrix.cols();
  args.x_stride = product.x.stride(0);
  args.x = reinterpret_cast<const float*>(product.x.data) + token * args.x_stride;
  args.num_tokens = std::min(product.chunk_tokens, product.num_tokens() - token);
  args.few = product.few;
  args.sums = sums.of(segment.layout.group);
  args.y_stride = product.y.stride(0);
  args.y = reinterpret_cast<float*>(product.y.data) + token * args.y_stride + column;
  args.bias =
      product.bias.empty() ? nullptr : reinterpret_cast<const float*>(product.bias.data) + column;
  if (matrix.packing() == Packing::kRows) {
    cpu::multiply_rows(args);
  } else {
    cpu::linear_kernels().multiply_tiles(args);
  }
}

/// Few tokens: what all parts need of x. Costs about 1 % of the product.
void sum_groups(const Product& product, GroupSums& sums) {
  bool done[2] = {};
  for (int i = 0; i < product.num_segments; ++i) {
    const Segment& segment = product.segments[i];
    const int group = segment.layout.group;
    if (!segment.layout.has_min || segment.matrix->packing() == Packing::kRows) continue;
    if (std::exchange(done[group == 16], true)) continue;
    const std::int64_t cols = product.x.dim(1);
    for (std::int64_t t = 0; t < product.num_tokens(); ++t) {
      const float* x = reinterpret_cast<const float*>(product.x.data) + t * product.x.stride(0);
      cpu::linear_kernels().sum_groups(x, cols, group, sums.of(group) + t * (cols / group));
    }
  }
}

void run(Product& product, ThreadPool& pool) {
  partition(product, pool.num_threads());
  GroupSums sums;
  if (product.few && product.bf16 == nullptr) sum_groups(product, sums);
  const std::int64_t chunks = ceil_div(product.num_tokens(), product.chunk_tokens);
  pool.parallel_for(chunks * product.parts_per_chunk,
                    [&](std::int64_t part) { run_part(product, part, sums); });
}

}  // namespace

namespace {

/// Checks the arguments of linear() and puts them together; `x` and `y` are as the kernels see
/// them.
Product make_product(TensorView x, std::span<const PackedMatrix* const> weights, TensorView bias,
                     TensorView y) {
  check(!weights.empty() && weights.size() <= kMaxSegments, "linear takes 1 to ", kMaxSegments,
        " matrices, not ", weights.size());
  check_tensor(x, {-1, weights[0]->cols()}, DType::kF32, "x of linear");
  Product product{.x = x, .bias = bias, .y = y, .segments = {}};
  std::int64_t rows = 0;
  for (const PackedMatrix* matrix : weights) {
    check(!matrix->empty() && matrix->cols() == x.dim(1), "linear: x has ", x.dim(1),
          " columns but a weight is [", matrix->rows(), ", ", matrix->cols(), "]");
    if (matrix->packing() != Packing::kRows) cpu::linear_kernels();  // throws if there are none
    add_segment(product, *matrix, rows);
    rows += matrix->rows();
  }
  check_tensor(y, {x.dim(0), rows}, DType::kF32, "y of linear");
  if (!bias.empty()) check_tensor(bias, {rows}, DType::kF32, "bias of linear");
  check(x.stride(1) == 1 && y.stride(1) == 1, "linear: the columns of x and y must be contiguous");
  return product;
}

}  // namespace

void linear(TensorView x, std::span<const PackedMatrix* const> weights, TensorView bias,
            TensorView y, Stream& stream) {
  if constexpr (cuda::kBuilt)
    if (!stream.device().is_cpu()) return gpu::linear(x, weights, bias, y, stream);
  Product product = make_product(x, weights, bias, y);
  if (x.dim(0) == 0) return;
  as_cpu(stream).run([product](ThreadPool& pool) mutable { run(product, pool); });
}

void linear_bf16(TensorView x, std::span<const PackedMatrix* const> weights, TensorView bias,
                 TensorView y, TensorView workspace, Stream& stream) {
  Product product = make_product(x, weights, bias, y);
  check_tensor(workspace, x.shape, DType::kF32, "workspace of linear_bf16");
  check(workspace.is_contiguous(), "the workspace of linear_bf16 must be contiguous");
  if (x.dim(0) == 0) return;
  const cpu::Bf16Kernels* const kernels = cpu::bf16_kernels();
  const bool all_bf16 = std::all_of(weights.begin(), weights.end(), [](const PackedMatrix* w) {
    return w->packing() == Packing::kFloat && w->dtype() == DType::kBF16;
  });
  if (kernels == nullptr || !all_bf16) {
    round_to_bf16(x, workspace, stream);
    linear(workspace, weights, bias, y, stream);
    return;
  }
  const std::int64_t cols = x.dim(1);
  product.bf16 = kernels;
  product.x = TensorView(workspace.data, {x.dim(0), round_up(cols, std::int64_t{2})}, DType::kBF16);
  as_cpu(stream).run([product, x, cols](ThreadPool& pool) mutable {
    auto* narrow = reinterpret_cast<std::uint16_t*>(product.x.data);
    pool.parallel_for(x.dim(0), [&](std::int64_t t) {
      product.bf16->round_row(reinterpret_cast<const float*>(x.data) + t * x.stride(0), cols,
                              narrow + t * product.x.stride(0));
    });
    run(product, pool);
  });
}

void round_to_bf16(TensorView x, TensorView y, Stream& stream) {
  check_tensor(x, {-1, -1}, DType::kF32, "x of round_to_bf16");
  check_tensor(y, x.shape, DType::kF32, "y of round_to_bf16");
  check(x.stride(1) == 1 && y.stride(1) == 1,
        "round_to_bf16: the columns of x and y must be contiguous");
  if (x.numel() == 0) return;
  as_cpu(stream).run([x, y](ThreadPool& pool) {
    pool.parallel_for(x.dim(0), [&](std::int64_t t) {
      const float* from = reinterpret_cast<const float*>(x.data) + t * x.stride(0);
      float* to = reinterpret_cast<float*>(y.data) + t * y.stride(0);
      for (std::int64_t k = 0; k < x.dim(1); ++k) to[k] = to_f32(to_bf16(from[k]));
    });
  });
}

namespace {

void check_embedding(TensorView ids, const PackedMatrix& table, TensorView y) {
  check(ids.rank() == 1, "ids of embedding: expected one dimension, found ", ids.rank());
  check_tensor(ids, {-1}, DType::kI32, "ids of embedding");
  check_tensor(y, {ids.dim(0), table.cols()}, DType::kF32, "y of embedding");
  check(ids.stride(0) == 1 && y.stride(1) == 1,
        "embedding: ids and the columns of y must be contiguous");
}

}  // namespace

void embedding(TensorView ids, const PackedMatrix& table, TensorView y, Stream& stream) {
  if constexpr (cuda::kBuilt)
    if (!stream.device().is_cpu()) return gpu::embedding(ids, table, /*first_id=*/0, y, stream);
  check_embedding(ids, table, y);
  if (ids.dim(0) == 0) return;
  as_cpu(stream).run([ids, &table, y](ThreadPool& pool) {
    const auto* id = reinterpret_cast<const std::int32_t*>(ids.data);
    auto* out = reinterpret_cast<float*>(y.data);
    for (std::int64_t t = 0; t < ids.dim(0); ++t)
      check(id[t] >= 0 && id[t] < table.rows(), "token id ", id[t],
            " is outside of the embedding's ", table.rows(), " rows");
    pool.parallel_for(ids.dim(0),
                      [&](std::int64_t t) { cpu::read_row(table, id[t], out + t * y.stride(0)); });
  });
}

void embedding_part(TensorView ids, const PackedMatrix& table, std::int64_t first_id, TensorView y,
                    Stream& stream) {
  if constexpr (cuda::kBuilt)
    if (!stream.device().is_cpu()) return gpu::embedding(ids, table, first_id, y, stream);
  check_embedding(ids, table, y);
  if (ids.dim(0) == 0) return;
  as_cpu(stream).run([ids, &table, first_id, y](ThreadPool& pool) {
    const auto* id = reinterpret_cast<const std::int32_t*>(ids.data);
    auto* out = reinterpret_cast<float*>(y.data);
    pool.parallel_for(ids.dim(0), [&](std::int64_t t) {
      const std::int64_t row = id[t] - first_id;
      float* to = out + t * y.stride(0);
      if (row >= 0 && row < table.rows()) {
        cpu::read_row(table, row, to);
      } else {
        std::fill_n(to, table.cols(), 0.0F);
      }
    });
  });
}

}  // namespace minisgl::kernels
