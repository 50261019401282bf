#include "attention/fa_backend.h"

#include <numeric>

#include "attention/arguments.h"
#include "attention/cuda/tiles.h"
#include "attention/lengths.h"
#include "base/math.h"
#include "kernels/attention.h"
#include "kernels/cuda/attention.h"
#include "tensor/cuda/build.h"

namespace minisgl {
namespace {

std::int64_t block_capacity(const AttentionShape& shape) {
  const std::int64_t pages = ceil_div<std::int64_t>(shape.max_seq_len_tokens, shape.page_size);
  std::int64_t tiles = 0;
  if constexpr (cuda::kBuilt)
    if (!shape.device.is_cpu()) tiles = prefill_tiles_capacity(shape);
  // Five arrays, each of which may lose up to 16 entries to alignment.
  return shape.max_rows * (3 + pages) + 2 + tiles + 5 * 16;
}

}  // namespace

FaBackend::FaBackend(const AttentionShape& shape)
    : shape_(shape), pool_(std::make_shared<ArgumentPool>(block_capacity(shape), shape.device)) {}

std::unique_ptr<AttentionMetadata> FaBackend::prepare_metadata(const Batch& batch, Stream& copy) {
  const BatchLengths lengths = measure(batch, shape_);
  const std::span<const BatchRow> rows = batch.rows;
  const auto num_rows = static_cast<std::int64_t>(rows.size());
  auto metadata = std::make_unique<FaMetadata>(pool_->lend());
  ArgumentPool::Lease& block = metadata->block;
  metadata->max_seqlen_q = lengths.max_seqlen_q;
  metadata->max_seqlen_k = lengths.max_seqlen_k;

  const auto cache_seqlens = block->add({num_rows});
  for (std::int64_t i = 0; i < num_rows; ++i) cache_seqlens.host[i] = rows[i].device_len;
  metadata->cache_seqlens = cache_seqlens.device;

  const auto cu_seqlens_k = block->add({num_rows + 1});
  prefix_sums(rows, cu_seqlens_k.host, [](const BatchRow& row) { return row.device_len; });
  metadata->cu_seqlens_k = cu_seqlens_k.device;

  const std::int64_t width = ceil_div(lengths.max_seqlen_k, shape_.page_size);
  const auto page_table = block->add({num_rows, width});
  for (std::int64_t i = 0; i < num_rows; ++i) {
    const std::int32_t pages = ceil_div(rows[i].device_len, shape_.page_size);
    fill_pages(batch.page_table->row(rows[i].row), shape_.page_size,
               page_table.host.subspan(i * width, pages));
  }
  metadata->page_table = page_table.device;

  if constexpr (cuda::kBuilt)
    if (!shape_.device.is_cpu() && lengths.max_seqlen_q > 1 && !copy.dry()) {
      // Decode rows have a kernel of their own.
      metadata->num_decode = batch.num_decode;
      if (!has_tiles_) has_tiles_ = has_prefill_tiles(shape_);
      if (*has_tiles_)
        metadata->prefill_tiles = add_prefill_tiles(rows.subspan(batch.num_decode),
                                                    batch.num_decode, shape_.head_dim, block);
    }

  if (lengths.max_seqlen_q == 1) {
    metadata->queries = FaMetadata::Queries::kOneEach;
    const auto cu_seqlens_q = block->add({num_rows + 1});
    std::iota(cu_seqlens_q.host.begin(), cu_seqlens_q.host.end(), 0);
    metadata->cu_seqlens_q = cu_seqlens_q.device;
  } else if (!lengths.any_cached) {
    metadata->queries = FaMetadata::Queries::kNoPrefix;
    metadata->cu_seqlens_q = metadata->cu_seqlens_k;
  } else {
    metadata->queries = FaMetadata::Queries::kExtend;
    const auto cu_seqlens_q = block->add({num_rows + 1});
    prefix_sums(rows, cu_seqlens_q.host, [](const BatchRow& row) { return row.extend_len(); });
    metadata->cu_seqlens_q = cu_seqlens_q.device;
  }
  block->upload(copy);
  return metadata;
}

std::int64_t FaBackend::workspace_bytes(std::int64_t num_tokens, Stream& stream) const {
  if constexpr (cuda::kBuilt)
    if (!stream.device().is_cpu())
      return kernels::gpu::paged_attention_workspace_bytes(shape_.num_heads, shape_.num_kv_heads,
                                                           shape_.head_dim);
  return kernels::paged_attention_workspace_bytes(num_tokens, shape_.num_heads, shape_.head_dim,
                                                  shape_.max_seq_len_tokens,
                                                  as_cpu(stream).num_threads());
}

kernels::PagedAttentionArgs FaBackend::arguments(TensorView q, std::int64_t layer, TensorView out,
                                                 const ForwardContext& ctx) const {
  const auto& metadata = metadata_of<FaMetadata>(ctx.metadata, name());
  const KvView kv = ctx.kv.layer(layer);
  check(kv.page_size == shape_.page_size, "the KV pool has pages of ", kv.page_size,
        ", the backend of ", shape_.page_size);
  return {.q = q,
          .kv = kv,
          .cu_seqlens_q = metadata.cu_seqlens_q,
          .cache_seqlens = metadata.cache_seqlens,
          .page_table = metadata.page_table,
          .scale = shape_.scale,
          .window_tokens = shape_.window_of(layer),
          .softcap = shape_.softcap,
          .max_seqlen_q = metadata.max_seqlen_q,
          .max_seqlen_k = metadata.max_seqlen_k,
          .out = out,
          .num_decode = metadata.num_decode,
          .prefill_tiles = shape_.window_of(layer) == 0 ? metadata.prefill_tiles : TensorView{}};
}

void FaBackend::forward(TensorView q, std::int64_t layer, TensorView out, ForwardContext& ctx) {
  const kernels::PagedAttentionArgs args = arguments(q, layer, out, ctx);
  const ScratchScope scope(ctx.scratch);
  // Sized for the longest sequence there may be, so that a dry step of the largest batch plans for
  // all.
  const TensorView workspace =
      ctx.scratch.alloc({workspace_bytes(q.dim(0), ctx.stream)}, DType::kU8);
  kernels::paged_attention(args, workspace, ctx.stream);
}

void FaBackend::forward_with_rope(const kernels::RopeStoreArgs& rope, std::int64_t layer,
                                  TensorView out, ForwardContext& ctx) {
  if constexpr (cuda::kBuilt) {
    if (!ctx.stream.device().is_cpu()) {
      const kernels::PagedAttentionArgs args = arguments(rope.q, layer, out, ctx);
      if (kernels::gpu::takes_rope(args, rope)) {
        const ScratchScope scope(ctx.scratch);
        const TensorView workspace =
            ctx.scratch.alloc({workspace_bytes(out.dim(0), ctx.stream)}, DType::kU8);
        kernels::gpu::paged_attention_with_rope(args, rope, workspace, ctx.stream);
        return;
      }
    }
  }
  AttentionBackend::forward_with_rope(rope, layer, out, ctx);
}

void FaBackend::init_capture_graph(std::span<const std::int32_t> batch_sizes,
                                   std::int64_t max_seq_len_tokens) {
  check_capture(batch_sizes, max_seq_len_tokens);
  const std::int64_t rows = batch_sizes.back();
  const std::int64_t columns = ceil_div<std::int64_t>(max_seq_len_tokens, shape_.page_size);
  captured_ = {};
  captured_.max_seq_len_tokens = max_seq_len_tokens;
  captured_.cu_seqlens_q = Tensor({rows + 1}, DType::kI32, {.device = shape_.device});
  captured_.cu_seqlens_k = Tensor({rows + 1}, DType::kI32, {.device = shape_.device});
  captured_.cache_seqlens = Tensor({rows}, DType::kI32, {.device = shape_.device});
  captured_.page_table = Tensor({rows, columns}, DType::kI32, {.device = shape_.device});
  for (const std::int32_t size : batch_sizes) {
    FaMetadata metadata;
    metadata.cu_seqlens_q = captured_.cu_seqlens_q.view().slice(0, size + 1);
    metadata.cu_seqlens_k = captured_.cu_seqlens_k.view().slice(0, size + 1);
    metadata.cache_seqlens = captured_.cache_seqlens.view().slice(0, size);
    metadata.page_table = captured_.page_table.view().slice(0, size);
    metadata.max_seqlen_q = 1;
    // Part of the graph, so it must bound every later step; a row's length is in cache_seqlens.
    metadata.max_seqlen_k = static_cast<std::int32_t>(max_seq_len_tokens);
    metadata.queries = FaMetadata::Queries::kOneEach;
    captured_.metadata.emplace(size, std::move(metadata));
  }
}

const FaMetadata& FaBackend::captured_metadata(std::int32_t batch_size) const {
  return captured_for(batch_size, captured_.metadata, name());
}

const AttentionMetadata& FaBackend::prepare_for_capture(std::int32_t batch_size, Stream& stream) {
  const FaMetadata& metadata = captured_metadata(batch_size);
  fill_ascending(metadata.cu_seqlens_q, /*first=*/0, /*step=*/1, stream);
  fill_ascending(metadata.cu_seqlens_k, /*first=*/0, /*step=*/1, stream);
  fill_ascending(metadata.cache_seqlens, /*first=*/1, /*step=*/0, stream);
  return metadata;
}

std::vector<CapturedBuffer> FaBackend::captured_buffers(std::int32_t batch_size) const {
  const FaMetadata& metadata = captured_metadata(batch_size);
  return {{"fa.cu_seqlens_q", metadata.cu_seqlens_q, CapturedContent::kConstant},
          {"fa.cu_seqlens_k", metadata.cu_seqlens_k},
          {"fa.cache_seqlens", metadata.cache_seqlens},
          {"fa.page_table", metadata.page_table}};
}

void FaBackend::prepare_for_replay(std::int32_t batch_size, const AttentionMetadata& live,
                                   CaptureWriter& writer, Stream& stream) {
  const FaMetadata& fixed = captured_metadata(batch_size);
  const auto& step = metadata_of<FaMetadata>(&live, name());
  check_replay({step.cache_seqlens.dim(0), step.max_seqlen_q, step.max_seqlen_k}, batch_size,
               captured_.max_seq_len_tokens);
  writer.copy("fa.cache_seqlens", fixed.cache_seqlens, step.cache_seqlens, stream);
  writer.copy("fa.cu_seqlens_k", fixed.cu_seqlens_k, step.cu_seqlens_k, stream);
  writer.copy("fa.page_table", fixed.page_table, step.page_table, stream);
}

}  // namespace minisgl
