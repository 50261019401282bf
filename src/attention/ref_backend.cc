#include "attention/ref_backend.h"

#include <algorithm>

#include "attention/lengths.h"
#include "kernels/ref/reference.h"

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
  const auto* metadata = dynamic_cast<const RefMetadata*>(ctx.metadata);
  check(metadata != nullptr, "the metadata of this step was made by another backend than ref");
  kernels::PagedAttentionArgs args{.q = q,
                                   .kv = ctx.kv.layer(layer),
                                   .cu_seqlens_q = metadata->cu_seqlens_q,
                                   .cache_seqlens = metadata->cache_seqlens,
                                   .page_table = metadata->page_table,
                                   .scale = shape_.scale,
                                   .window_tokens = shape_.sliding_window,
                                   .softcap = shape_.softcap,
                                   .max_seqlen_q = metadata->max_seqlen_q,
                                   .max_seqlen_k = metadata->max_seqlen_k,
                                   .out = out};
  args.kv.page_size = 1;
  kernels::check_paged_attention(args);
  as_cpu(ctx.stream).run([args](ThreadPool&) { kernels::ref::paged_attention_in_order(args); });
}

}  // namespace minisgl
