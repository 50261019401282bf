#include "attention/ref_backend.h"

#include <algorithm>
#include <numeric>

#include "attention/arguments.h"
#include "attention/lengths.h"
#include "kernels/cuda/attention.h"
#include "kernels/ref/reference.h"
#include "tensor/cuda/build.h"

namespace minisgl {

RefBackend::RefBackend(const AttentionShape& shape)
    : shape_(shape),
      pool_(std::make_shared<ArgumentPool>(
          shape.max_rows * (2 + shape.max_seq_len_tokens) + 1 + 3 * 16, shape.device)) {}

std::unique_ptr<AttentionMetadata> RefBackend::prepare_metadata(const Batch& batch, Stream& copy) {
  const BatchLengths lengths = measure(batch, shape_);
  const auto num_rows = static_cast<std::int64_t>(batch.rows.size());
  auto metadata = std::make_unique<RefMetadata>(pool_->lend());
  metadata->max_seqlen_q = lengths.max_seqlen_q;
  metadata->max_seqlen_k = lengths.max_seqlen_k;

  const auto cu_seqlens_q = metadata->block->add({num_rows + 1});
  const auto cache_seqlens = metadata->block->add({num_rows});
  const auto page_table = metadata->block->add({num_rows, lengths.max_seqlen_k});
  prefix_sums(batch.rows, cu_seqlens_q.host, [](const BatchRow& row) { return row.extend_len(); });
  for (std::int64_t i = 0; i < num_rows; ++i) {
    const BatchRow& row = batch.rows[i];
    cache_seqlens.host[i] = row.device_len;
    std::copy_n(batch.page_table->row(row.row).begin(), row.device_len,
                page_table.host.begin() + i * lengths.max_seqlen_k);
  }
  metadata->cu_seqlens_q = cu_seqlens_q.device;
  metadata->cache_seqlens = cache_seqlens.device;
  metadata->page_table = page_table.device;
  metadata->block->upload(copy);
  return metadata;
}

void RefBackend::forward(TensorView q, std::int64_t layer, TensorView out, ForwardContext& ctx) {
  const auto& metadata = metadata_of<RefMetadata>(ctx.metadata, name());
  kernels::PagedAttentionArgs args{.q = q,
                                   .kv = ctx.kv.layer(layer),
                                   .cu_seqlens_q = metadata.cu_seqlens_q,
                                   .cache_seqlens = metadata.cache_seqlens,
                                   .page_table = metadata.page_table,
                                   .scale = shape_.scale,
                                   .window_tokens = shape_.window_of(layer),
                                   .softcap = shape_.softcap,
                                   .max_seqlen_q = metadata.max_seqlen_q,
                                   .max_seqlen_k = metadata.max_seqlen_k,
                                   .out = out};
  args.kv.page_size = 1;
  if constexpr (cuda::kBuilt)
    if (!ctx.stream.device().is_cpu()) return kernels::gpu::paged_attention_plain(args, ctx.stream);
  kernels::check_paged_attention(args);
  const ScratchScope scope(ctx.scratch);
  const TensorView workspace = ctx.scratch.alloc({2, shape_.head_dim}, DType::kF32);
  as_cpu(ctx.stream).run([args, workspace](ThreadPool&) {
    kernels::ref::paged_attention_in_order(args, workspace);
  });
}

void RefBackend::init_capture_graph(std::span<const std::int32_t> batch_sizes,
                                    std::int64_t max_seq_len_tokens) {
  check_capture(batch_sizes, max_seq_len_tokens);
  const std::int64_t rows = batch_sizes.back();
  captured_ = {};
  captured_.max_seq_len_tokens = max_seq_len_tokens;
  captured_.cu_seqlens_q = Tensor({rows + 1}, DType::kI32);
  captured_.cache_seqlens = Tensor({rows}, DType::kI32);
  captured_.page_table = Tensor({rows, max_seq_len_tokens}, DType::kI32);
  for (const std::int32_t size : batch_sizes) {
    RefMetadata metadata;
    metadata.cu_seqlens_q = captured_.cu_seqlens_q.view().slice(0, size + 1);
    metadata.cache_seqlens = captured_.cache_seqlens.view().slice(0, size);
    metadata.page_table = captured_.page_table.view().slice(0, size);
    metadata.max_seqlen_q = 1;
    metadata.max_seqlen_k = static_cast<std::int32_t>(max_seq_len_tokens);
    captured_.metadata.emplace(size, std::move(metadata));
  }
}

const RefMetadata& RefBackend::captured_metadata(std::int32_t batch_size) const {
  return captured_for(batch_size, captured_.metadata, name());
}

const AttentionMetadata& RefBackend::prepare_for_capture(std::int32_t batch_size, Stream& stream) {
  const RefMetadata& metadata = captured_metadata(batch_size);
  as_cpu(stream).run(
      [offsets = metadata.cu_seqlens_q, lengths = metadata.cache_seqlens](ThreadPool&) {
        std::iota(offsets.as<std::int32_t>(), offsets.as<std::int32_t>() + offsets.numel(), 0);
        std::fill_n(lengths.as<std::int32_t>(), lengths.numel(), 1);
      });
  return metadata;
}

std::vector<CapturedBuffer> RefBackend::captured_buffers(std::int32_t batch_size) const {
  const RefMetadata& metadata = captured_metadata(batch_size);
  return {{"ref.cu_seqlens_q", metadata.cu_seqlens_q, CapturedContent::kConstant},
          {"ref.cache_seqlens", metadata.cache_seqlens},
          {"ref.page_table", metadata.page_table}};
}

void RefBackend::prepare_for_replay(std::int32_t batch_size, const AttentionMetadata& live,
                                    CaptureWriter& writer, Stream& stream) {
  const RefMetadata& fixed = captured_metadata(batch_size);
  const auto& step = metadata_of<RefMetadata>(&live, name());
  check_replay({step.cache_seqlens.dim(0), step.max_seqlen_q, step.max_seqlen_k}, batch_size,
               captured_.max_seq_len_tokens);
  writer.copy("ref.cache_seqlens", fixed.cache_seqlens, step.cache_seqlens, stream);
  writer.copy("ref.page_table", fixed.page_table, step.page_table, stream);
}

}  // namespace minisgl
