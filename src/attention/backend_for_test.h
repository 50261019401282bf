// For tests of attention backends: a pool, a page table with random pages, a batch.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attention/backend.h"
#include "base/math.h"
#include "tensor/half.h"
#include "testing/random.h"

namespace minisgl {

constexpr std::int32_t kMaxRows = 6;
constexpr std::int64_t kMaxTokens = 200;

inline AttentionShape shape_with(std::int32_t page_size) {
  return {.num_heads = 6,
          .num_kv_heads = 2,
          .head_dim = 16,
          .scale = 0.25F,
          .page_size = page_size,
          .max_seq_len_tokens = kMaxTokens,
          .max_rows = kMaxRows,
          .device = kCpu};
}

struct World {
  explicit World(std::int32_t page_size) : World(shape_with(page_size)) {}
  explicit World(const AttentionShape& of, DType dtype = DType::kF32)
      : shape(of),
        pages_per_row(
            static_cast<std::int32_t>(ceil_div<std::int64_t>(of.max_seq_len_tokens, of.page_size))),
        num_pages(pages_per_row * of.max_rows + 1),
        table(of.max_rows, of.max_seq_len_tokens, (num_pages - 1) * of.page_size),
        kv_dtype(dtype),
        values(testing_util::uniform(2 * kNumLayers * layer_elements(), 1)) {
    std::vector<std::int32_t> pages(num_pages - 1);
    for (std::int32_t i = 0; i < num_pages - 1; ++i) pages[i] = i;
    testing_util::Random random(of.page_size);
    for (std::size_t i = pages.size() - 1; i > 0; --i)
      std::swap(pages[i], pages[random.below(i + 1)]);
    for (std::int32_t row = 0; row < of.max_rows; ++row)
      for (std::int64_t i = 0; i < of.max_seq_len_tokens; ++i)
        table.row(RowId{row})[i] = static_cast<TokenLoc>(
            pages[row * pages_per_row + i / of.page_size] * of.page_size + i % of.page_size);
    if (dtype == DType::kBF16)
      for (const float value : values) narrow.push_back(to_bf16(value));
    if (dtype == DType::kF8E4M3)
      for (const float value : values) eights.push_back(to_fp8_e4m3(value));
    batch.page_table = &table;
  }

  /// Adds a padding row as the engine makes them.
  void pad() { batch.rows.push_back({table.dummy_row(), 0, 1}); }

  std::int64_t layer_elements() const {
    return std::int64_t{num_pages} * shape.page_size * shape.num_kv_heads * shape.head_dim;
  }

  /// The pool in its type, or, with `exact`, what it held before it was rounded.
  KvCacheView kv(bool exact = false) {
    const DType dtype = exact ? DType::kF32 : kv_dtype;
    auto* k = reinterpret_cast<std::byte*>(values.data());
    if (dtype == DType::kBF16) k = reinterpret_cast<std::byte*>(narrow.data());
    if (dtype == DType::kF8E4M3) k = reinterpret_cast<std::byte*>(eights.data());
    const std::int64_t layer_bytes = bytes_of(dtype, layer_elements());
    return {.first = {.k = k,
                      .v = k + kNumLayers * layer_bytes,
                      .dtype = dtype,
                      .num_heads = shape.num_kv_heads,
                      .head_dim = shape.head_dim,
                      .slot_stride = std::int64_t{shape.num_kv_heads} * shape.head_dim,
                      .head_stride = shape.head_dim,
                      .num_slots = std::int64_t{num_pages} * shape.page_size,
                      .page_size = shape.page_size},
            .layer_bytes = layer_bytes,
            .num_layers = kNumLayers};
  }

  static constexpr std::int32_t kNumLayers = 2;
  AttentionShape shape;
  std::int32_t pages_per_row, num_pages;
  PageTable table;
  DType kv_dtype;
  std::vector<float> values;  // keys of all layers, then values of all layers
  std::vector<BFloat16> narrow;
  std::vector<Float8E4M3> eights;
  Batch batch;
  std::int64_t skipped_queries = 0;  // the batch's first token has the query of this one
};

/// The step that docs/attention.md draws: pages of 4; lengths 6, 9 and 3, of which 4, 0 and 0 are
/// cached.
inline World drawn_example() {
  World world(4);
  const auto place = [&](std::int32_t row, std::vector<TokenLoc> pages, std::int32_t tokens) {
    for (std::int32_t i = 0; i < tokens; ++i)
      world.table.row(RowId{row})[i] = pages[i / 4] * 4 + i % 4;
  };
  place(0, {5, 2}, 6);
  place(1, {0, 7, 3}, 9);
  place(2, {4}, 3);
  world.batch.rows = {{RowId{0}, 4, 6}, {RowId{1}, 0, 9}, {RowId{2}, 0, 3}};
  world.batch.num_rows = 3;
  return world;
}

inline std::vector<std::int32_t> values_of(const TensorView& view) {
  const auto* from = view.as<std::int32_t>();
  return {from, from + view.numel()};
}

/// Queries of a batch: the same for every backend.
inline std::vector<float> queries_of(const World& world) {
  const std::int64_t width = std::int64_t{world.shape.num_heads} * world.shape.head_dim;
  std::vector<float> queries =
      testing_util::uniform((world.skipped_queries + world.batch.num_tokens()) * width, 5);
  queries.erase(queries.begin(), queries.begin() + world.skipped_queries * width);
  return queries;
}

/// Output of a backend for the batch and arguments that it made; the whole step is one task, as in
/// the engine, in scratch memory of just the size that a dry run asked for.
inline std::vector<float> attend_with(AttentionBackend& backend, const AttentionMetadata& metadata,
                                      World& world, std::int64_t layer, CpuStream& stream) {
  const Shape shape = {world.batch.num_tokens(), world.shape.num_heads, world.shape.head_dim};
  std::vector<float> q = queries_of(world);
  std::vector<float> out(q.size());
  const TensorView q_view(q.data(), shape, DType::kF32);
  const TensorView out_view(out.data(), shape, DType::kF32);
  const ForwardInputs inputs;

  ScratchArena plan;
  const auto dry = CpuStream::make_dry(stream.num_threads());
  ForwardContext planned{*dry, plan, &inputs, backend, &metadata, world.kv()};
  backend.forward(q_view, layer, out_view, planned);

  ScratchArena scratch(plan.peak_bytes());
  ForwardContext ctx{stream, scratch, &inputs, backend, &metadata, world.kv()};
  stream.submit([&] { backend.forward(q_view, layer, out_view, ctx); });
  stream.synchronize();
  return out;
}

inline std::vector<float> attend(AttentionBackend& backend, World& world, std::int64_t layer,
                                 CpuStream& stream) {
  const auto metadata = backend.prepare_metadata(world.batch, stream);
  return attend_with(backend, *metadata, world, layer, stream);
}

/// What `act` throws, or "no error".
template <class Act>
std::string error_of(const Act& act) {
  try {
    act();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace minisgl
