#include "attention/cuda/fi_gpu_backend.h"

#include <algorithm>

#include "attention/arguments.h"
#include "attention/cuda/tiles.h"
#include "attention/lengths.h"
#include "base/math.h"

namespace minisgl {
namespace {

kernels::gpu::RaggedShape ragged_shape(const AttentionShape& shape) {
  return {shape.num_heads, shape.num_kv_heads, shape.head_dim, shape.page_size};
}

std::int64_t block_capacity(const AttentionShape& shape) {
  const std::int64_t pages = ceil_div<std::int64_t>(shape.max_seq_len_tokens, shape.page_size);
  const std::int64_t plan = kernels::gpu::ragged_plan_ints(
      ragged_shape(shape), shape.max_rows, shape.max_rows * shape.max_seq_len_tokens);
  // Seven arrays, each of which may lose up to 16 entries to alignment.
  return shape.max_rows * (4 + pages) + 2 + prefill_tiles_capacity(shape) + plan + 7 * 16;
}

}  // namespace

FiGpuBackend::FiGpuBackend(const AttentionShape& shape)
    : shape_(shape), ragged_(ragged_shape(shape)) {
  check(kernels::gpu::ragged_attention_built(),
        "the attention backend fi is FlashInfer's on a GPU, and this build has none of it; use fa, "
        "or build with MINISGL_FLASHINFER=ON");
  check(shape.head_dim == 64 || shape.head_dim == 128,
        "the attention backend fi takes heads of 64 or 128 numbers on a GPU, not of ",
        shape.head_dim, "; use fa");
  const bool windows = std::any_of(shape.layer_windows.begin(), shape.layer_windows.end(),
                                   [](std::int32_t window) { return window != 0; });
  check(!windows && (!shape.layer_windows.empty() || shape.sliding_window == 0),
        "the attention backend fi has no sliding windows on a GPU; use fa");
  check(shape.softcap == 0, "the attention backend fi caps no logits on a GPU; use fa");
  check(shape.activations == DType::kBF16 && shape.kv_dtype == DType::kBF16,
        "the attention backend fi computes in bf16 on a GPU, with keys and values alike, not in ",
        minisgl::name(shape.activations), " with those of ", minisgl::name(shape.kv_dtype),
        "; use fa");
  pool_ = std::make_shared<ArgumentPool>(block_capacity(shape), shape.device);
}

void FiGpuBackend::add_plan(std::span<std::int32_t> qo_indptr, std::span<std::int32_t> kv_indptr,
                            FiGpuMetadata& metadata, Stream& stream) {
  const auto rows = static_cast<std::int64_t>(qo_indptr.size()) - 1;
  const std::int64_t tokens = qo_indptr.back();
  const auto ints = metadata.block->add({kernels::gpu::ragged_plan_ints(ragged_, rows, tokens)});
  metadata.plan_ints = ints.device;
  // Any step of one query each may be replayed.
  metadata.plan = kernels::gpu::plan_ragged_attention(
      ragged_, qo_indptr, kv_indptr, /*fixed=*/tokens == rows, ints.host, ints.device, stream);
}

std::unique_ptr<AttentionMetadata> FiGpuBackend::prepare_metadata(const Batch& batch,
                                                                  Stream& copy) {
  const BatchLengths lengths = measure(batch, shape_);
  const std::span<const BatchRow> rows = batch.rows;
  const auto num_rows = static_cast<std::int64_t>(rows.size());
  auto metadata = std::make_unique<FiGpuMetadata>(pool_->lend());
  ArgumentPool::Lease& block = metadata->block;
  metadata->max_seqlen_q = lengths.max_seqlen_q;
  metadata->max_seqlen_k = lengths.max_seqlen_k;

  const RaggedHost host = add_ragged_arrays(batch, shape_.page_size, block, *metadata);

  if (!copy.dry()) {
    std::int64_t planned = num_rows;
    if (!has_tiles_) has_tiles_ = has_prefill_tiles(shape_);
    if (*has_tiles_ && lengths.max_seqlen_q > 1) {
      metadata->prefill_tiles = add_prefill_tiles(rows.subspan(batch.num_decode), batch.num_decode,
                                                  shape_.head_dim, block);
      if (metadata->prefill_tiles.data != nullptr) {
        planned = batch.num_decode;
        const auto cache_seqlens = block->add({num_rows});
        for (std::int64_t i = 0; i < num_rows; ++i) cache_seqlens.host[i] = rows[i].device_len;
        metadata->cache_seqlens = cache_seqlens.device;
      }
    }
    const auto count = static_cast<std::size_t>(planned) + 1;
    if (planned > 0)
      add_plan(host.qo_indptr.first(count), host.kv_indptr.first(count), *metadata, copy);
  }
  block->upload(copy);
  return metadata;
}

void FiGpuBackend::forward(TensorView q, std::int64_t layer, TensorView out, ForwardContext& ctx) {
  const auto& metadata = metadata_of<FiGpuMetadata>(ctx.metadata, name());
  const KvView kv = ctx.kv.layer(layer);
  check(kv.page_size == shape_.page_size, "the KV pool has pages of ", kv.page_size,
        ", the backend of ", shape_.page_size);
  const ScratchScope scope(ctx.scratch);
  const TensorView workspace = ctx.scratch.alloc(
      {kernels::gpu::ragged_workspace_bytes(ragged_, shape_.max_rows)}, DType::kU8);
  kernels::gpu::RaggedArgs args{.q = q,
                                .kv = kv,
                                .qo_indptr = metadata.qo_indptr,
                                .kv_indptr = metadata.kv_indptr,
                                .kv_indices = metadata.kv_indices,
                                .kv_last_page_len = metadata.kv_last_page_len,
                                .plan = metadata.plan,
                                .plan_ints = metadata.plan_ints,
                                .scale = shape_.scale,
                                .out = out};
  if (metadata.prefill_tiles.data != nullptr)
    kernels::gpu::ragged_prefill(args, metadata.prefill_tiles, metadata.cache_seqlens, ctx.stream);
  const std::int64_t planned = metadata.plan.num_rows;
  if (!ctx.stream.dry() && planned == 0) return;
  if (!ctx.stream.dry()) {
    args.qo_indptr = args.qo_indptr.slice(0, planned + 1);
    args.kv_indptr = args.kv_indptr.slice(0, planned + 1);
    args.kv_last_page_len = args.kv_last_page_len.slice(0, planned);
  }
  kernels::gpu::ragged_attention(args, workspace, ctx.stream);
}

void FiGpuBackend::init_capture_graph(std::span<const std::int32_t> batch_sizes,
                                      std::int64_t max_seq_len_tokens) {
  check_capture(batch_sizes, max_seq_len_tokens);
  const std::int64_t rows = batch_sizes.back();
  const std::int64_t pages = ceil_div<std::int64_t>(max_seq_len_tokens, shape_.page_size);
  captured_ = {};
  captured_.max_seq_len_tokens = max_seq_len_tokens;
  captured_.arrays = CapturedRaggedArrays(rows, pages, shape_.device);
  for (const std::int32_t size : batch_sizes) {
    FiGpuMetadata metadata(pool_->lend());
    static_cast<RaggedArrays&>(metadata) = captured_.arrays.first(size);
    metadata.max_seqlen_q = 1;
    metadata.max_seqlen_k = static_cast<std::int32_t>(max_seq_len_tokens);
    captured_.metadata.emplace(size, std::move(metadata));
  }
}

const FiGpuMetadata& FiGpuBackend::captured_metadata(std::int32_t batch_size) const {
  return captured_for(batch_size, captured_.metadata, name());
}

const AttentionMetadata& FiGpuBackend::prepare_for_capture(std::int32_t batch_size,
                                                           Stream& stream) {
  captured_metadata(batch_size);
  FiGpuMetadata& metadata = captured_.metadata.at(batch_size);
  fill_one_key_each(metadata, stream);
  std::vector<std::int32_t> one_each(static_cast<std::size_t>(batch_size) + 1);
  for (std::int32_t i = 0; i <= batch_size; ++i) one_each[static_cast<std::size_t>(i)] = i;
  std::vector<std::int32_t> pages = one_each;
  metadata.block->clear();
  add_plan(one_each, pages, metadata, stream);
  return metadata;
}

std::vector<CapturedBuffer> FiGpuBackend::captured_buffers(std::int32_t batch_size) const {
  const FiGpuMetadata& metadata = captured_metadata(batch_size);
  return {{"fi.qo_indptr", metadata.qo_indptr, CapturedContent::kConstant},
          {"fi.kv_indptr", metadata.kv_indptr},
          {"fi.kv_indices", metadata.kv_indices},
          {"fi.kv_last_page_len", metadata.kv_last_page_len},
          {"fi.plan", metadata.plan_ints}};
}

void FiGpuBackend::prepare_for_replay(std::int32_t batch_size, const AttentionMetadata& live,
                                      CaptureWriter& writer, Stream& stream) {
  const FiGpuMetadata& fixed = captured_metadata(batch_size);
  const auto& step = metadata_of<FiGpuMetadata>(&live, name());
  check_replay({step.kv_last_page_len.dim(0), step.max_seqlen_q, step.max_seqlen_k}, batch_size,
               captured_.max_seq_len_tokens);
  check(step.plan == fixed.plan, "FlashInfer planned this step of ", batch_size,
        " rows otherwise than the graph of so many");
  writer.copy("fi.kv_indptr", fixed.kv_indptr, step.kv_indptr, stream);
  writer.copy("fi.kv_indices", fixed.kv_indices, step.kv_indices, stream);
  writer.copy("fi.kv_last_page_len", fixed.kv_last_page_len, step.kv_last_page_len, stream);
  writer.copy("fi.plan", fixed.plan_ints, step.plan_ints, stream);
}

}  // namespace minisgl
