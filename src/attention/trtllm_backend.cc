#include "attention/trtllm_backend.h"

#include <algorithm>

#include "attention/arguments.h"
#include "attention/cuda/tiles.h"
#include "attention/lengths.h"
#include "base/log.h"
#include "base/math.h"
#include "kernels/attention.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/flashinfer/xqa.h"
#include "tensor/cuda/build.h"

namespace minisgl {
namespace {

std::int64_t block_capacity(const AttentionShape& shape, std::int32_t table_page_size) {
  std::int64_t pages = ceil_div<std::int64_t>(shape.max_seq_len_tokens, table_page_size);
  std::int64_t tiles = 0;
  if constexpr (cuda::kBuilt)
    if (!shape.device.is_cpu()) {
      pages += ceil_div<std::int64_t>(shape.max_seq_len_tokens, shape.page_size);
      tiles = prefill_tiles_capacity(shape);
    }
  // Six arrays, each of which may lose up to 16 entries to alignment.
  return shape.max_rows * (3 + pages) + 2 + tiles + 6 * 16;
}

}  // namespace

TrtllmBackend::TrtllmBackend(const AttentionShape& shape)
    : shape_(shape), table_page_size_(shape.page_size) {
  check(shape.page_size == 16 || shape.page_size == 32 || shape.page_size == 64,
        "the attention backend trtllm needs pages of 16, 32 or 64 tokens, not ", shape.page_size);
  if (!shape.device.is_cpu()) prepare_gpu();
  pool_ = std::make_shared<ArgumentPool>(block_capacity(shape, table_page_size_), shape.device);
}

void TrtllmBackend::prepare_gpu() {
  if constexpr (cuda::kBuilt) {
    check(kernels::gpu::xqa_built(),
          "the attention backend trtllm is XQA on a GPU, and this build has none of it; use fa, or "
          "build with MINISGL_FLASHINFER=ON");
    check(shape_.head_dim == 64 || shape_.head_dim == 128,
          "the attention backend trtllm takes heads of 64 or 128 numbers on a GPU, not of ",
          shape_.head_dim, "; use fa");
    const std::int32_t group = shape_.num_heads / shape_.num_kv_heads;
    check(group <= 8,
          "the attention backend trtllm takes up to 8 query heads to a KV head on a "
          "GPU, not ",
          group, "; use fa");
    const bool windows = std::any_of(shape_.layer_windows.begin(), shape_.layer_windows.end(),
                                     [](std::int32_t window) { return window != 0; });
    check(!windows && (!shape_.layer_windows.empty() || shape_.sliding_window == 0),
          "the attention backend trtllm has no sliding windows on a GPU; use fa");
    check(shape_.softcap == 0, "the attention backend trtllm caps no logits on a GPU; use fa");
    check(shape_.activations == DType::kBF16 && shape_.kv_dtype == DType::kBF16,
          "the attention backend trtllm computes in bf16 on a GPU, with keys and values alike, not "
          "in ",
          minisgl::name(shape_.activations), " with those of ", minisgl::name(shape_.kv_dtype),
          "; use fa");
    table_page_size_ = kernels::gpu::kXqaPageSize;
    kernels::gpu::prepare_xqa({shape_.num_heads, shape_.num_kv_heads, shape_.head_dim},
                              shape_.device);
    log::info(
        "The attention backend trtllm computes decode steps with XQA and, on this GPU, prompts "
        "with fa's kernels");
  }
}

std::unique_ptr<AttentionMetadata> TrtllmBackend::prepare_metadata(const Batch& batch,
                                                                   Stream& copy) {
  const BatchLengths lengths = measure(batch, shape_);
  const std::span<const BatchRow> rows = batch.rows;
  const auto num_rows = static_cast<std::int64_t>(rows.size());
  auto metadata = std::make_unique<TrtllmMetadata>(pool_->lend());
  ArgumentPool::Lease& block = metadata->block;
  metadata->max_q_len = lengths.max_seqlen_q;
  metadata->max_kv_len = lengths.max_seqlen_k;

  const auto seq_lens = block->add({num_rows});
  for (std::int64_t i = 0; i < num_rows; ++i) seq_lens.host[i] = rows[i].device_len;
  metadata->seq_lens = seq_lens.device;

  const auto cum_seq_lens_kv = block->add({num_rows + 1});
  prefix_sums(rows, cum_seq_lens_kv.host, [](const BatchRow& row) { return row.device_len; });
  metadata->cum_seq_lens_kv = cum_seq_lens_kv.device;

  const auto page_table = [&](std::int64_t first, std::int32_t page_size) {
    const std::int64_t width = ceil_div(lengths.max_seqlen_k, page_size);
    const auto table = block->add({num_rows - first, width});
    for (std::int64_t i = first; i < num_rows; ++i) {
      const std::int32_t pages = ceil_div(rows[i].device_len, page_size);
      fill_pages(batch.page_table->row(rows[i].row), page_size,
                 table.host.subspan((i - first) * width, pages));
    }
    return table.device;
  };
  metadata->block_tables = page_table(0, table_page_size_);

  metadata->num_decode =
      lengths.max_seqlen_q == 1 ? static_cast<std::int32_t>(num_rows) : batch.num_decode;
  if constexpr (cuda::kBuilt)
    if (!shape_.device.is_cpu() && lengths.max_seqlen_q > 1) {
      // Prompts are computed as a step of their own, which begins after the decode rows.
      metadata->prefill_pages = page_table(batch.num_decode, shape_.page_size);
      if (!copy.dry()) {
        if (!has_tiles_) has_tiles_ = has_prefill_tiles(shape_);
        if (*has_tiles_)
          metadata->prefill_tiles = add_prefill_tiles(rows.subspan(batch.num_decode), /*first=*/0,
                                                      shape_.head_dim, block);
      }
    }

  // The same three ways as fa's cu_seqlens_q.
  if (lengths.max_seqlen_q == 1) {
    metadata->cum_seq_lens_q = block->add_on_device({num_rows + 1});
    fill_ascending(metadata->cum_seq_lens_q, /*first=*/0, /*step=*/1, copy);
  } else if (!lengths.any_cached) {
    metadata->cum_seq_lens_q = metadata->cum_seq_lens_kv;
  } else {
    const auto cum_seq_lens_q = block->add({num_rows + 1});
    prefix_sums(rows, cum_seq_lens_q.host, [](const BatchRow& row) { return row.extend_len(); });
    metadata->cum_seq_lens_q = cum_seq_lens_q.device;
  }
  block->upload(copy);
  return metadata;
}

void TrtllmBackend::forward(TensorView q, std::int64_t layer, TensorView out, ForwardContext& ctx) {
  const auto& metadata = metadata_of<TrtllmMetadata>(ctx.metadata, name());
  const KvView kv = ctx.kv.layer(layer);
  check(kv.page_size == shape_.page_size, "the KV pool has pages of ", kv.page_size,
        ", the backend of ", shape_.page_size);
  if constexpr (cuda::kBuilt)
    if (!ctx.stream.device().is_cpu()) {
      forward_on_gpu(q, metadata, kv, out, ctx);
      return;
    }
  const ScratchScope scope(ctx.scratch);
  // For the longest sequence there may be: a dry step of the largest batch plans for all.
  const std::int64_t bytes = kernels::paged_attention_workspace_bytes(
      q.dim(0), shape_.num_heads, shape_.head_dim, shape_.max_seq_len_tokens,
      as_cpu(ctx.stream).num_threads());
  const TensorView workspace = ctx.scratch.alloc({bytes}, DType::kU8);
  kernels::paged_attention({.q = q,
                            .kv = kv,
                            .cu_seqlens_q = metadata.cum_seq_lens_q,
                            .cache_seqlens = metadata.seq_lens,
                            .page_table = metadata.block_tables,
                            .scale = shape_.scale,
                            .window_tokens = shape_.window_of(layer),
                            .softcap = shape_.softcap,
                            .max_seqlen_q = metadata.max_q_len,
                            .max_seqlen_k = metadata.max_kv_len,
                            .out = out},
                           workspace, ctx.stream);
}

void TrtllmBackend::forward_on_gpu(TensorView q, const TrtllmMetadata& metadata, const KvView& kv,
                                   TensorView out, ForwardContext& ctx) const {
  if constexpr (cuda::kBuilt) {
    const ScratchScope scope(ctx.scratch);
    const std::int64_t bytes = std::max(
        kernels::gpu::xqa_workspace_bytes({shape_.num_heads, shape_.num_kv_heads, shape_.head_dim}),
        kernels::gpu::paged_attention_workspace_bytes(shape_.num_heads, shape_.num_kv_heads,
                                                      shape_.head_dim));
    const TensorView workspace = ctx.scratch.alloc({bytes}, DType::kU8);
    const std::int64_t rows = metadata.seq_lens.dim(0);
    const std::int64_t decode = metadata.num_decode;
    KvView in_table_pages = kv;
    in_table_pages.page_size = table_page_size_;
    if (decode > 0)
      kernels::gpu::xqa_decode(
          {.q = q.slice(0, decode),
           .kv = in_table_pages,
           .cu_seqlens_q = metadata.cum_seq_lens_q.slice(0, decode + 1),
           .cache_seqlens = metadata.seq_lens.slice(0, decode),
           .page_table = metadata.block_tables.slice(0, decode),
           .scale = shape_.scale,
           // The same in every step, so that a graph gives an eager one's bits.
           .max_seqlen_k = static_cast<std::int32_t>(shape_.max_seq_len_tokens),
           .out = out.slice(0, decode)},
          workspace, ctx.stream);
    if (decode < rows)
      kernels::gpu::paged_attention(
          {.q = q,
           .kv = kv,
           .cu_seqlens_q = metadata.cum_seq_lens_q.slice(decode, rows + 1),
           .cache_seqlens = metadata.seq_lens.slice(decode, rows),
           .page_table = metadata.prefill_pages,
           .scale = shape_.scale,
           .max_seqlen_q = metadata.max_q_len,
           .max_seqlen_k = metadata.max_kv_len,
           .out = out,
           .prefill_tiles = metadata.prefill_tiles},
          workspace, ctx.stream);
  }
}

void TrtllmBackend::init_capture_graph(std::span<const std::int32_t> batch_sizes,
                                       std::int64_t max_seq_len_tokens) {
  check_capture(batch_sizes, max_seq_len_tokens);
  const std::int64_t rows = batch_sizes.back();
  const std::int64_t pages = ceil_div<std::int64_t>(max_seq_len_tokens, table_page_size_);
  const auto ints = [this](const Shape& shape) {
    return Tensor(shape, DType::kI32, {.device = shape_.device});
  };
  captured_ = {};
  captured_.max_seq_len_tokens = max_seq_len_tokens;
  captured_.block_tables = ints({rows, pages});
  captured_.seq_lens = ints({rows});
  captured_.cum_seq_lens_q = ints({rows + 1});
  captured_.cum_seq_lens_kv = ints({rows + 1});
  for (const std::int32_t size : batch_sizes) {
    TrtllmMetadata metadata;
    metadata.block_tables = captured_.block_tables.view().slice(0, size);
    metadata.seq_lens = captured_.seq_lens.view().slice(0, size);
    metadata.cum_seq_lens_q = captured_.cum_seq_lens_q.view().slice(0, size + 1);
    metadata.cum_seq_lens_kv = captured_.cum_seq_lens_kv.view().slice(0, size + 1);
    metadata.max_q_len = 1;
    metadata.num_decode = size;
    metadata.max_kv_len = static_cast<std::int32_t>(max_seq_len_tokens);
    captured_.metadata.emplace(size, std::move(metadata));
  }
}

const TrtllmMetadata& TrtllmBackend::captured_metadata(std::int32_t batch_size) const {
  return captured_for(batch_size, captured_.metadata, name());
}

const AttentionMetadata& TrtllmBackend::prepare_for_capture(std::int32_t batch_size,
                                                            Stream& stream) {
  const TrtllmMetadata& metadata = captured_metadata(batch_size);
  fill_ascending(metadata.cum_seq_lens_q, /*first=*/0, /*step=*/1, stream);
  fill_ascending(metadata.cum_seq_lens_kv, /*first=*/0, /*step=*/1, stream);
  fill_ascending(metadata.seq_lens, /*first=*/1, /*step=*/0, stream);
  fill_ascending(metadata.block_tables, /*first=*/0, /*step=*/0, stream);
  return metadata;
}

std::vector<CapturedBuffer> TrtllmBackend::captured_buffers(std::int32_t batch_size) const {
  const TrtllmMetadata& metadata = captured_metadata(batch_size);
  return {{"trtllm.block_tables", metadata.block_tables},
          {"trtllm.seq_lens", metadata.seq_lens},
          {"trtllm.cum_seq_lens_kv", metadata.cum_seq_lens_kv},
          {"trtllm.cum_seq_lens_q", metadata.cum_seq_lens_q, CapturedContent::kConstant}};
}

void TrtllmBackend::prepare_for_replay(std::int32_t batch_size, const AttentionMetadata& live,
                                       CaptureWriter& writer, Stream& stream) {
  const TrtllmMetadata& fixed = captured_metadata(batch_size);
  const auto& step = metadata_of<TrtllmMetadata>(&live, name());
  check_replay({step.seq_lens.dim(0), step.max_q_len, step.max_kv_len}, batch_size,
               captured_.max_seq_len_tokens);
  writer.copy("trtllm.block_tables", fixed.block_tables, step.block_tables, stream);
  writer.copy("trtllm.seq_lens", fixed.seq_lens, step.seq_lens, stream);
  writer.copy("trtllm.cum_seq_lens_kv", fixed.cum_seq_lens_kv, step.cum_seq_lens_kv, stream);
}

}  // namespace minisgl
