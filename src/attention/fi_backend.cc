#include "attention/fi_backend.h"

#include <algorithm>

#include "attention/arguments.h"
#include "attention/lengths.h"
#include "base/math.h"

namespace minisgl {
namespace {

using kernels::AttentionPlanner;
using kernels::WorkItem;

/// A plan of more workers than this is not made; streams with more threads leave some idle.
constexpr std::int32_t kMaxWorkers = 256;

/// One plan serves all layers: that of the widest window names every split that a narrower one
/// sees, and those that it does not see cost nothing.
kernels::AttentionPlanShape plan_shape(const AttentionShape& shape, std::int32_t num_workers) {
  return {.num_heads = shape.num_heads,
          .num_kv_heads = shape.num_kv_heads,
          .head_dim = shape.head_dim,
          .window_tokens = shape.widest_window(),
          .num_workers = num_workers};
}

std::int64_t block_capacity(const AttentionShape& shape) {
  const kernels::AttentionPlanShape plan = plan_shape(shape, kMaxWorkers);
  const std::int64_t pages = ceil_div<std::int64_t>(shape.max_seq_len_tokens, shape.page_size);
  const std::int64_t items =
      AttentionPlanner::max_items(plan, shape.max_rows, shape.max_seq_len_tokens) +
      AttentionPlanner::max_merges(plan);
  // Eight arrays, each of which may lose up to 16 entries to alignment.
  return shape.max_rows * (3 + pages) + 2 + kMaxWorkers + 2 + items * WorkItem::kNumFields + 8 * 16;
}

}  // namespace

FiBackend::FiBackend(const AttentionShape& shape)
    : shape_(shape), pool_(std::make_shared<ArgumentPool>(block_capacity(shape), shape.device)) {}

AttentionPlanner& FiBackend::planner_for(Stream& stream) {
  const std::int32_t workers = std::min(as_cpu(stream).num_threads(), kMaxWorkers);
  if (!planner_ || workers != num_workers_) {
    planner_.emplace(plan_shape(shape_, workers));
    num_workers_ = workers;
  }
  return *planner_;
}

void FiBackend::plan(std::span<const BatchRow> rows, Stream& stream) {
  plan_rows_.clear();
  for (const BatchRow& row : rows) plan_rows_.push_back({row.extend_len(), row.device_len});
  planner_for(stream).plan(plan_rows_);
}

std::unique_ptr<AttentionMetadata> FiBackend::prepare_metadata(const Batch& batch, Stream& copy) {
  const BatchLengths lengths = measure(batch, shape_);
  const std::span<const BatchRow> rows = batch.rows;
  auto metadata = std::make_unique<FiMetadata>(pool_->lend());
  ArgumentPool::Lease& block = metadata->block;
  metadata->max_seqlen_q = lengths.max_seqlen_q;
  metadata->max_seqlen_k = lengths.max_seqlen_k;

  add_ragged_arrays(batch, shape_.page_size, block, *metadata);

  plan(rows, copy);
  const auto work_indptr = block->add({num_workers_ + 1});
  const auto work_items = block->add({planner_->num_items(), WorkItem::kNumFields});
  const auto merges = block->add({planner_->num_merges(), WorkItem::kNumFields});
  const auto num_merges = block->add({1});
  planner_->write(work_indptr.host, work_items.host, merges.host);
  num_merges.host[0] = static_cast<std::int32_t>(planner_->num_merges());
  metadata->plan = {work_indptr.device, work_items.device, merges.device, num_merges.device};
  block->upload(copy);
  return metadata;
}

void FiBackend::forward(TensorView q, std::int64_t layer, TensorView out, ForwardContext& ctx) {
  const auto& metadata = metadata_of<FiMetadata>(ctx.metadata, name());
  const KvView kv = ctx.kv.layer(layer);
  check(kv.page_size == shape_.page_size, "the KV pool has pages of ", kv.page_size,
        ", the backend of ", shape_.page_size);
  const ScratchScope scope(ctx.scratch);
  const auto workers = static_cast<std::int32_t>(metadata.plan.work_indptr.dim(0)) - 1;
  const TensorView workspace = ctx.scratch.alloc(
      {kernels::ragged_attention_workspace_bytes(shape_.head_dim, workers)}, DType::kU8);
  kernels::ragged_attention({.q = q,
                             .kv = kv,
                             .qo_indptr = metadata.qo_indptr,
                             .kv_indptr = metadata.kv_indptr,
                             .kv_indices = metadata.kv_indices,
                             .kv_last_page_len = metadata.kv_last_page_len,
                             .plan = metadata.plan,
                             .scale = shape_.scale,
                             .window_tokens = shape_.window_of(layer),
                             .softcap = shape_.softcap,
                             .out = out},
                            workspace, ctx.stream);
}

void FiBackend::init_capture_graph(std::span<const std::int32_t> batch_sizes,
                                   std::int64_t max_seq_len_tokens) {
  check_capture(batch_sizes, max_seq_len_tokens);
  const std::int64_t rows = batch_sizes.back();
  const std::int64_t pages = ceil_div<std::int64_t>(max_seq_len_tokens, shape_.page_size);
  const kernels::AttentionPlanShape plan = plan_shape(shape_, kMaxWorkers);
  const auto ints = [this](const Shape& shape) {
    return Tensor(shape, DType::kI32, {.device = shape_.device});
  };
  captured_ = {};
  captured_.max_seq_len_tokens = max_seq_len_tokens;
  captured_.arrays = CapturedRaggedArrays(rows, pages, shape_.device);
  captured_.work_indptr = ints({kMaxWorkers + 1});
  captured_.work_items = ints({AttentionPlanner::max_items(plan, rows, 1), WorkItem::kNumFields});
  captured_.merges = ints({AttentionPlanner::max_merges(plan), WorkItem::kNumFields});
  captured_.num_merges = ints({1});
  for (const std::int32_t size : batch_sizes) {
    FiMetadata metadata;
    static_cast<RaggedArrays&>(metadata) = captured_.arrays.first(size);
    metadata.plan = {captured_.work_indptr, captured_.work_items, captured_.merges,
                     captured_.num_merges};
    metadata.max_seqlen_q = 1;
    metadata.max_seqlen_k = static_cast<std::int32_t>(max_seq_len_tokens);
    captured_.metadata.emplace(size, std::move(metadata));
  }
}

const FiMetadata& FiBackend::captured_metadata(std::int32_t batch_size) const {
  return captured_for(batch_size, captured_.metadata, name());
}

const AttentionMetadata& FiBackend::prepare_for_capture(std::int32_t batch_size, Stream& stream) {
  captured_metadata(batch_size);
  FiMetadata& metadata = captured_.metadata.at(batch_size);
  fill_one_key_each(metadata, stream);

  const std::vector<BatchRow> rows(batch_size, BatchRow{RowId{0}, 0, 1});
  plan(rows, stream);
  // The number of workers is part of the graph.
  metadata.plan.work_indptr = captured_.work_indptr.view().slice(0, num_workers_ + 1);
  std::vector<std::int32_t> indptr(num_workers_ + 1);
  std::vector<std::int32_t> items(planner_->num_items() * WorkItem::kNumFields);
  planner_->write(indptr, items, {});  // one key for each row: nothing is cut
  as_cpu(stream).run(
      [view = metadata.plan, indptr = std::move(indptr), items = std::move(items)](ThreadPool&) {
        std::copy(indptr.begin(), indptr.end(), view.work_indptr.as<std::int32_t>());
        std::copy(items.begin(), items.end(), view.work_items.as<std::int32_t>());
        *view.num_merges.as<std::int32_t>() = 0;
      });
  return metadata;
}

std::vector<CapturedBuffer> FiBackend::captured_buffers(std::int32_t batch_size) const {
  const FiMetadata& metadata = captured_metadata(batch_size);
  return {{"fi.qo_indptr", metadata.qo_indptr, CapturedContent::kConstant},
          {"fi.kv_indptr", metadata.kv_indptr},
          {"fi.kv_indices", metadata.kv_indices},
          {"fi.kv_last_page_len", metadata.kv_last_page_len},
          {"fi.work_indptr", metadata.plan.work_indptr},
          {"fi.work_items", metadata.plan.work_items},
          {"fi.merges", metadata.plan.merges},
          {"fi.num_merges", metadata.plan.num_merges}};
}

void FiBackend::prepare_for_replay(std::int32_t batch_size, const AttentionMetadata& live,
                                   CaptureWriter& writer, Stream& stream) {
  const FiMetadata& fixed = captured_metadata(batch_size);
  const auto& step = metadata_of<FiMetadata>(&live, name());
  check_replay({step.kv_last_page_len.dim(0), step.max_seqlen_q, step.max_seqlen_k}, batch_size,
               captured_.max_seq_len_tokens);
  check(step.plan.work_indptr.dim(0) == fixed.plan.work_indptr.dim(0), "a plan for ",
        step.plan.work_indptr.dim(0) - 1, " workers does not fit a graph of ",
        fixed.plan.work_indptr.dim(0) - 1);
  writer.copy("fi.kv_indptr", fixed.kv_indptr, step.kv_indptr, stream);
  writer.copy("fi.kv_indices", fixed.kv_indices, step.kv_indices, stream);
  writer.copy("fi.kv_last_page_len", fixed.kv_last_page_len, step.kv_last_page_len, stream);
  writer.copy("fi.work_indptr", fixed.plan.work_indptr, step.plan.work_indptr, stream);
  writer.copy("fi.work_items", fixed.plan.work_items, step.plan.work_items, stream);
  writer.copy("fi.merges", fixed.plan.merges, step.plan.merges, stream);
  writer.copy("fi.num_merges", fixed.plan.num_merges, step.plan.num_merges, stream);
}

}  // namespace minisgl
