#include "attention/fa_backend.h"

#include <algorithm>

#include "attention/lengths.h"
#include "base/math.h"
#include "kernels/attention.h"

namespace minisgl {
namespace {

std::int64_t block_capacity(const AttentionShape& shape) {
  const std::int64_t pages = ceil_div<std::int64_t>(shape.max_seq_len_tokens, shape.page_size);
  // Four arrays, each of which may lose up to 16 entries to alignment.
  return shape.max_rows * (3 + pages) + 2 + 4 * 16;
}

/// The first location of every page of a row, in pages. Division only where it does something:
/// with page_size 1 the slice is the answer.
void fill_pages(std::span<const TokenLoc> locs, std::int32_t page_size,
                std::span<std::int32_t> pages) {
  if (page_size == 1) {
    std::copy_n(locs.begin(), pages.size(), pages.begin());
    return;
  }
  bool aligned = true;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const TokenLoc loc = locs[i * page_size];
    pages[i] = loc / page_size;
    aligned &= pages[i] * page_size == loc;
  }
  check(aligned,
        "a row of the page table has a page that does not begin at a multiple of page_size ",
        page_size);
}

/// 0, 1, 2, ..., made by the device.
void fill_ascending(TensorView view, Stream& stream) {
  as_cpu(stream).run([view](ThreadPool&) {
    auto* values = view.as<std::int32_t>();
    for (std::int64_t i = 0; i < view.numel(); ++i) values[i] = static_cast<std::int32_t>(i);
  });
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

  if (lengths.max_seqlen_q == 1) {
    metadata->queries = FaMetadata::Queries::kOneEach;
    metadata->cu_seqlens_q = block->add_on_device({num_rows + 1});
    fill_ascending(metadata->cu_seqlens_q, copy);
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

void FaBackend::forward(TensorView q, std::int64_t layer, TensorView out, ForwardContext& ctx) {
  const auto* metadata = dynamic_cast<const FaMetadata*>(ctx.metadata);
  check(metadata != nullptr, "the metadata of this step was made by another backend than fa");
  const KvView kv = ctx.kv.layer(layer);
  check(kv.page_size == shape_.page_size, "the KV pool has pages of ", kv.page_size,
        ", the backend of ", shape_.page_size);
  const ScratchScope scope(ctx.scratch);
  // Sized for the longest sequence there may be, so that a dry step of the largest batch plans for
  // all.
  const std::int64_t bytes = kernels::paged_attention_workspace_bytes(
      q.dim(0), shape_.num_heads, shape_.head_dim, shape_.max_seq_len_tokens,
      as_cpu(ctx.stream).num_threads());
  const TensorView workspace = ctx.scratch.alloc({bytes}, DType::kU8);
  kernels::paged_attention({.q = q,
                            .kv = kv,
                            .cu_seqlens_q = metadata->cu_seqlens_q,
                            .cache_seqlens = metadata->cache_seqlens,
                            .page_table = metadata->page_table,
                            .scale = shape_.scale,
                            .window_tokens = shape_.sliding_window,
                            .softcap = shape_.softcap,
                            .max_seqlen_q = metadata->max_seqlen_q,
                            .max_seqlen_k = metadata->max_seqlen_k,
                            .out = out},
                           workspace, ctx.stream);
}

}  // namespace minisgl
