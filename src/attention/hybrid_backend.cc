#include "attention/hybrid_backend.h"

#include <algorithm>

#include "attention/arguments.h"

namespace minisgl {

HybridBackend::HybridBackend(std::unique_ptr<AttentionBackend> prefill,
                             std::unique_ptr<AttentionBackend> decode)
    : prefill_(std::move(prefill)),
      decode_(std::move(decode)),
      name_(std::string(prefill_->name()) + "," + std::string(decode_->name())) {}

/// Metadata of rows [begin, end) of the batch.
std::unique_ptr<AttentionMetadata> HybridBackend::prepare_part(AttentionBackend& backend,
                                                               const Batch& batch,
                                                               std::size_t begin, std::size_t end,
                                                               Stream& copy) {
  const auto first = static_cast<std::int32_t>(begin);
  const auto clip = [&](std::int32_t count) {
    return std::clamp(count - first, 0, static_cast<std::int32_t>(end - begin));
  };
  part_.rows.assign(batch.rows.begin() + static_cast<std::ptrdiff_t>(begin),
                    batch.rows.begin() + static_cast<std::ptrdiff_t>(end));
  part_.num_rows = clip(batch.num_rows);
  part_.num_decode = clip(batch.num_decode);
  part_.page_table = batch.page_table;
  return backend.prepare_metadata(part_, copy);
}

std::unique_ptr<AttentionMetadata> HybridBackend::prepare_metadata(const Batch& batch,
                                                                   Stream& copy) {
  auto metadata = std::make_unique<HybridMetadata>();
  if (copy.dry()) {
    // A step that only counts what it takes: either backend may be the one that takes most.
    metadata->own_decode = decode_->prepare_metadata(batch, copy);
    metadata->own_prefill = prefill_->prepare_metadata(batch, copy);
  } else if (batch.num_decode == 0) {
    metadata->own_prefill = prefill_->prepare_metadata(batch, copy);
  } else if (batch.is_decode()) {
    metadata->own_decode = decode_->prepare_metadata(batch, copy);
    metadata->num_decode_tokens = batch.num_tokens();
  } else {
    // Decode rows have one token each.
    const auto cut = static_cast<std::size_t>(batch.num_decode);
    metadata->own_decode = prepare_part(*decode_, batch, 0, cut, copy);
    metadata->own_prefill = prepare_part(*prefill_, batch, cut, batch.rows.size(), copy);
    metadata->num_decode_tokens = batch.num_decode;
  }
  metadata->decode = metadata->own_decode.get();
  metadata->prefill = metadata->own_prefill.get();
  return metadata;
}

void HybridBackend::forward(TensorView q, std::int64_t layer, TensorView out, ForwardContext& ctx) {
  const auto& metadata = metadata_of<HybridMetadata>(ctx.metadata, name());
  const auto run = [&](AttentionBackend& backend, const AttentionMetadata* part, std::int64_t begin,
                       std::int64_t end) {
    if (part == nullptr) return;
    ForwardContext own{ctx.stream, ctx.scratch, ctx.inputs, backend, part, ctx.kv};
    backend.forward(q.slice(begin, end), layer, out.slice(begin, end), own);
  };
  const bool dry = ctx.stream.dry();
  const std::int64_t cut = metadata.num_decode_tokens;
  run(*decode_, metadata.decode, 0, dry ? q.dim(0) : cut);
  run(*prefill_, metadata.prefill, dry ? 0 : cut, q.dim(0));
}

void HybridBackend::init_capture_graph(std::span<const std::int32_t> batch_sizes,
                                       std::int64_t max_seq_len_tokens) {
  decode_->init_capture_graph(batch_sizes, max_seq_len_tokens);
  captured_.clear();
}

const AttentionMetadata& HybridBackend::prepare_for_capture(std::int32_t batch_size,
                                                            Stream& stream) {
  HybridMetadata& metadata = captured_[batch_size];
  metadata.decode = &decode_->prepare_for_capture(batch_size, stream);
  metadata.num_decode_tokens = batch_size;
  return metadata;
}

std::vector<CapturedBuffer> HybridBackend::captured_buffers(std::int32_t batch_size) const {
  return decode_->captured_buffers(batch_size);
}

void HybridBackend::prepare_for_replay(std::int32_t batch_size, const AttentionMetadata& live,
                                       CaptureWriter& writer, Stream& stream) {
  const auto& step = metadata_of<HybridMetadata>(&live, name());
  check(step.decode != nullptr && step.prefill == nullptr,
        "a graph replays decode steps only, and this step has rows for ", prefill_->name());
  decode_->prepare_for_replay(batch_size, *step.decode, writer, stream);
}

}  // namespace minisgl
