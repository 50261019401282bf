// Who computes what of an attention step: made on the host once a step, read by
// ragged_attention() once a layer.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace minisgl::kernels {

/// What a planner must know besides the rows.
struct AttentionPlanShape {
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t window_tokens = 0;  ///< as in PagedAttentionArgs
  std::int32_t num_workers = 1;
};

/// A sequence of a step.
struct AttentionPlanRow {
  std::int32_t num_queries = 0;
  std::int32_t num_keys = 0;  ///< the new tokens included
};

/// Fields of a work item: `kRow, kKvHead, kBlock` are a block of up to kAttentionRows (token, query
/// head) pairs of one KV head of one row; `kSplitBegin, kSplitEnd` the fixed splits of 512 keys
/// that it is computed against. `kState` is -1 if these are all that the block sees, and its output
/// is written; else the number of the first state of the block (its pairs one after the other, for
/// each of them its splits), from which a merge makes the output.
struct WorkItem {
  enum Field { kRow, kKvHead, kBlock, kSplitBegin, kSplitEnd, kState, kNumFields };
};
/// A block that was cut: the same fields, over all its splits.
using MergeItem = WorkItem;

/// Cuts a step into work items and deals them to workers so that all have about the same load.
///
///   load of an item = tiles of 64 keys * (pairs + a constant for reading the tile)
///
/// A block with many splits is cut into pieces of k splits, with the smallest k that adds at most 8
/// items for each worker and whose states fit into the workspace; then items are dealt in falling
/// order of load, each to the worker with the least so far. The result depends on the rows and the
/// shape alone. A plan says who computes a split, never how: results do not depend on it.
/// Source: FlashInfer attention/scheduler.cuh (binary search of a chunk size), with fixed splits.
class AttentionPlanner {
 public:
  explicit AttentionPlanner(const AttentionPlanShape& shape);

  /// Allocates only while it grows.
  void plan(std::span<const AttentionPlanRow> rows);

  std::int64_t num_items() const { return static_cast<std::int64_t>(items_.size()); }
  std::int64_t num_merges() const { return static_cast<std::int64_t>(merges_.size()); }
  /// work_indptr [num_workers + 1]: items of worker w are work_indptr[w] .. work_indptr[w + 1];
  /// work_items [num_items][kNumFields], merges [num_merges][kNumFields].
  void write(std::span<std::int32_t> work_indptr, std::span<std::int32_t> work_items,
             std::span<std::int32_t> merges) const;

  /// Load of the worker that has most, divided by the mean; for tests and tuning.
  double imbalance() const;

  /// The most items of a plan for `num_rows` rows of `max_queries` tokens each, and most merges.
  static std::int64_t max_items(const AttentionPlanShape& shape, std::int64_t num_rows,
                                std::int64_t max_queries);
  static std::int64_t max_merges(const AttentionPlanShape& shape);
  /// States that the workspace has room for.
  static std::int64_t max_states(const AttentionPlanShape& shape);

 private:
  struct Item {
    std::int32_t fields[WorkItem::kNumFields];
    std::int32_t num_pairs;
    std::int64_t load;
    std::int32_t worker;
  };
  void collect_blocks(std::span<const AttentionPlanRow> rows);
  std::int32_t choose_piece() const;
  void cut(std::int32_t piece);
  void deal();

  AttentionPlanShape shape_;
  std::vector<Item> blocks_, items_, merges_;
  std::vector<std::int64_t> loads_;  // of each worker
  std::vector<std::int32_t> heap_;   // workers, least load first
};

}  // namespace minisgl::kernels
