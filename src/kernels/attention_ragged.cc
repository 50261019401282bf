#include "kernels/attention_ragged.h"

#include "kernels/cpu/attention_call.h"

namespace minisgl::kernels {
namespace {

AttentionCall call_of(const RaggedAttentionArgs& args) {
  return {args.q, args.out, args.kv, args.scale, args.window_tokens, args.softcap};
}

std::int32_t num_workers_of(const RaggedAttentionArgs& args) {
  return static_cast<std::int32_t>(args.plan.work_indptr.dim(0)) - 1;
}

void check_args(const RaggedAttentionArgs& args) {
  check_attention_call(call_of(args));
  check_tensor(args.kv_last_page_len, {-1}, DType::kI32, "kv_last_page_len");
  const std::int64_t seqs = args.kv_last_page_len.dim(0);
  check_tensor(args.qo_indptr, {seqs + 1}, DType::kI32, "qo_indptr");
  check_tensor(args.kv_indptr, {seqs + 1}, DType::kI32, "kv_indptr");
  check_tensor(args.kv_indices, {-1}, DType::kI32, "kv_indices");
  check_tensor(args.plan.work_indptr, {-1}, DType::kI32, "work_indptr");
  check(num_workers_of(args) >= 1, "work_indptr must name at least one worker");
  check_tensor(args.plan.work_items, {-1, WorkItem::kNumFields}, DType::kI32, "work_items");
  check_tensor(args.plan.merges, {-1, WorkItem::kNumFields}, DType::kI32, "merges");
  check_tensor(args.plan.num_merges, {1}, DType::kI32, "num_merges");
}

/// A call and its plan.
class PlannedWork {
 public:
  PlannedWork(const RaggedAttentionArgs& args, TensorView workspace)
      : args_(args),
        call_(call_of(args)),
        scratch_(reinterpret_cast<float*>(workspace.data)),
        states_(scratch_ + num_workers_of(args) * attention_scratch_floats(args.kv.head_dim)) {}

  void run(ThreadPool& pool) const {
    const CpuKernels& kernels = cpu_kernels();
    const auto* indptr = args_.plan.work_indptr.as<std::int32_t>();
    const auto* items = args_.plan.work_items.as<std::int32_t>();
    pool.parallel_for(num_workers_of(args_), [&](std::int64_t worker) {
      float* scratch = scratch_ + worker * attention_scratch_floats(args_.kv.head_dim);
      for (std::int32_t i = indptr[worker]; i < indptr[worker + 1]; ++i)
        kernels.attention(make_item(items + std::int64_t{i} * WorkItem::kNumFields), scratch);
    });
    const auto* merges = args_.plan.merges.as<std::int32_t>();
    pool.parallel_for(*args_.plan.num_merges.as<std::int32_t>(),
                      [&](std::int64_t i) { merge(merges + i * WorkItem::kNumFields, kernels); });
  }

 private:
  AttentionItem whole_block(const std::int32_t* fields) const {
    const std::int32_t row = fields[WorkItem::kRow];
    const auto* qo_indptr = args_.qo_indptr.as<std::int32_t>();
    const auto* kv_indptr = args_.kv_indptr.as<std::int32_t>();
    const std::int32_t pages = kv_indptr[row + 1] - kv_indptr[row];
    return call_.item({.first_token = qo_indptr[row],
                       .num_queries = qo_indptr[row + 1] - qo_indptr[row],
                       .num_keys = (pages - 1) * args_.kv.page_size +
                                   args_.kv_last_page_len.as<std::int32_t>()[row],
                       .pages = args_.kv_indices.as<std::int32_t>() + kv_indptr[row],
                       .kv_head = fields[WorkItem::kKvHead],
                       .block = fields[WorkItem::kBlock]});
  }

  AttentionItem make_item(const std::int32_t* fields) const {
    AttentionItem item = whole_block(fields);
    if (fields[WorkItem::kState] < 0) return item;
    const SplitRange seen = splits_of(item);
    item.split_begin = fields[WorkItem::kSplitBegin];
    item.split_end = fields[WorkItem::kSplitEnd];
    item.partial_split_stride = partial_floats(args_.kv.head_dim);
    item.partial_head_stride = (seen.end - seen.begin) * item.partial_split_stride;
    item.partial_token_stride = item.group * item.partial_head_stride;
    // The item numbers its pairs from the sequence's first on, the states from the block's.
    item.partial = states_ + fields[WorkItem::kState] * item.partial_split_stride +
                   (item.split_begin - seen.begin) * item.partial_split_stride -
                   item.first_row * item.partial_head_stride;
    return item;
  }

  void merge(const std::int32_t* fields, const CpuKernels& kernels) const {
    const AttentionItem item = whole_block(fields);
    const SplitRange seen = splits_of(item);
    const std::int64_t stride = partial_floats(args_.kv.head_dim);
    const float* state = states_ + fields[WorkItem::kState] * stride;
    for (std::int32_t row = 0; row < item.num_rows;
         ++row, state += (seen.end - seen.begin) * stride) {
      const std::int32_t token = (item.first_row + row) / item.group;
      const std::int32_t end = item.first_visible + token;
      const std::int32_t first = first_key_seen(end, item.window) / kAttentionSplit;
      kernels.attention_merge({.partial = state + (first - seen.begin) * stride,
                               .split_stride = stride,
                               .num_splits = ceil_div(end, kAttentionSplit) - first,
                               .head_dim = item.head_dim,
                               .out = item.out + token * item.out_token_stride +
                                      (item.first_row + row) % item.group * item.out_head_stride});
    }
  }

  const RaggedAttentionArgs& args_;
  AttentionCall call_;
  float* scratch_;
  float* states_;
};

}  // namespace

std::int64_t ragged_attention_workspace_bytes(std::int32_t head_dim, std::int32_t num_workers) {
  // A single worker cuts nothing.
  return num_workers * attention_scratch_bytes(head_dim) + (num_workers > 1 ? kMaxPartialBytes : 0);
}

void ragged_attention(const RaggedAttentionArgs& args, TensorView workspace, Stream& stream) {
  check_args(args);
  check_tensor(workspace, {-1}, DType::kU8, "workspace");
  const std::int64_t needed =
      ragged_attention_workspace_bytes(args.kv.head_dim, num_workers_of(args));
  check(workspace.numel() >= needed, "workspace has ", workspace.numel(), " bytes, needs ", needed);
  if (args.q.dim(0) == 0) return;
  as_cpu(stream).run(
      [args, workspace](ThreadPool& pool) { PlannedWork(args, workspace).run(pool); });
}

}  // namespace minisgl::kernels
