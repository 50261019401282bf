#include "kernels/attention_plan.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "kernels/cpu/attention_call.h"

namespace minisgl::kernels {
namespace {

/// More pieces than this for each worker do not balance better, and cost a merge each.
constexpr std::int64_t kExtraItems = 8;
/// Reading and transposing a tile takes as long as computing so many pairs with it.
constexpr std::int64_t kTileCost = 4;

std::int32_t num_splits(const std::int32_t* fields) {
  return fields[WorkItem::kSplitEnd] - fields[WorkItem::kSplitBegin];
}

}  // namespace

AttentionPlanner::AttentionPlanner(const AttentionPlanShape& shape) : shape_(shape) {
  check(
      shape.num_kv_heads > 0 && shape.num_heads % shape.num_kv_heads == 0 && shape.num_workers > 0,
      "an attention plan needs heads that are a multiple of the KV heads, and workers");
}

std::int64_t AttentionPlanner::max_items(const AttentionPlanShape& shape, std::int64_t num_rows,
                                         std::int64_t max_queries) {
  const std::int64_t group = shape.num_heads / shape.num_kv_heads;
  const std::int64_t blocks = ceil_div<std::int64_t>(max_queries * group, kAttentionRows);
  return num_rows * blocks * shape.num_kv_heads + kExtraItems * shape.num_workers;
}

std::int64_t AttentionPlanner::max_merges(const AttentionPlanShape& shape) {
  return kExtraItems * shape.num_workers;  // each cut adds an item at least
}

std::int64_t AttentionPlanner::max_states(const AttentionPlanShape& shape) {
  return kMaxPartialBytes / (partial_floats(shape.head_dim) * std::int64_t{sizeof(float)});
}

void AttentionPlanner::plan(std::span<const AttentionPlanRow> rows) {
  collect_blocks(rows);
  cut(choose_piece());
  deal();
}

void AttentionPlanner::collect_blocks(std::span<const AttentionPlanRow> rows) {
  blocks_.clear();
  const std::int32_t group = shape_.num_heads / shape_.num_kv_heads;
  for (std::int32_t row = 0; row < static_cast<std::int32_t>(rows.size()); ++row) {
    const std::int32_t pairs = rows[row].num_queries * group;
    const std::int32_t first_end = rows[row].num_keys - rows[row].num_queries + 1;
    for (std::int32_t block = 0; block * kAttentionRows < pairs; ++block) {
      const std::int32_t first = block * kAttentionRows;
      const std::int32_t count = std::min(kAttentionRows, pairs - first);
      const std::int32_t begin = first_key_seen(first_end + first / group, shape_.window_tokens);
      const std::int32_t end = first_end + (first + count - 1) / group;
      const std::int64_t tiles = ceil_div(end, kAttentionTile) - begin / kAttentionTile;
      for (std::int32_t head = 0; head < shape_.num_kv_heads; ++head)
        blocks_.push_back(
            {{row, head, block, begin / kAttentionSplit, ceil_div(end, kAttentionSplit), -1},
             count,
             tiles * (count + kTileCost),
             0});
    }
  }
}

/// Splits of a piece.
std::int32_t AttentionPlanner::choose_piece() const {
  std::int32_t longest = 1;
  for (const Item& block : blocks_) longest = std::max(longest, num_splits(block.fields));
  if (shape_.num_workers == 1) return longest;
  const std::int64_t limit = kExtraItems * shape_.num_workers;
  const std::int64_t state_limit = max_states(shape_);
  const auto fits = [&](std::int32_t piece) {
    std::int64_t extra = 0;
    std::int64_t states = 0;
    for (const Item& block : blocks_) {
      const std::int32_t splits = num_splits(block.fields);
      if (splits <= piece) continue;
      extra += ceil_div(splits, piece) - 1;
      states += std::int64_t{splits} * block.num_pairs;
    }
    return extra <= limit && states <= state_limit;
  };
  std::int32_t low = 1;  // fits(longest) always; the smallest that fits lies in [low, high]
  std::int32_t high = longest;
  while (low < high) {
    const std::int32_t middle = (low + high) / 2;
    if (fits(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

void AttentionPlanner::cut(std::int32_t piece) {
  items_.clear();
  merges_.clear();
  std::int32_t state = 0;
  for (Item block : blocks_) {
    const std::int32_t splits = num_splits(block.fields);
    if (splits <= piece) {
      items_.push_back(block);
      continue;
    }
    block.fields[WorkItem::kState] = state;
    state += splits * block.num_pairs;
    merges_.push_back(block);
    const std::int32_t end = block.fields[WorkItem::kSplitEnd];
    for (std::int32_t at = block.fields[WorkItem::kSplitBegin]; at < end; at += piece) {
      Item item = block;
      item.fields[WorkItem::kSplitBegin] = at;
      item.fields[WorkItem::kSplitEnd] = std::min(end, at + piece);
      item.load = block.load * num_splits(item.fields) / splits;
      items_.push_back(item);
    }
  }
}

void AttentionPlanner::deal() {
  loads_.assign(shape_.num_workers, 0);
  heap_.resize(shape_.num_workers);
  std::iota(heap_.begin(), heap_.end(), 0);
  // Ties by position: a plan must be the same every time.
  std::vector<Item>& items = items_;
  for (std::size_t i = 0; i < items.size(); ++i) items[i].worker = static_cast<std::int32_t>(i);
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return a.load != b.load ? a.load > b.load : a.worker < b.worker;
  });
  const auto more = [this](std::int32_t a, std::int32_t b) {
    return loads_[a] != loads_[b] ? loads_[a] > loads_[b] : a > b;
  };
  for (Item& item : items) {
    std::pop_heap(heap_.begin(), heap_.end(), more);
    item.worker = heap_.back();
    loads_[item.worker] += item.load;
    std::push_heap(heap_.begin(), heap_.end(), more);
  }
}

void AttentionPlanner::write(std::span<std::int32_t> work_indptr,
                             std::span<std::int32_t> work_items,
                             std::span<std::int32_t> merges) const {
  std::fill(work_indptr.begin(), work_indptr.end(), 0);
  for (const Item& item : items_) ++work_indptr[item.worker + 1];
  std::partial_sum(work_indptr.begin(), work_indptr.end(), work_indptr.begin());
  // Placing items from the last to the first, with work_indptr[w + 1] as the end of worker w's
  // part, leaves in it the beginning of that part, which is shifted back after that.
  for (auto item = items_.rbegin(); item != items_.rend(); ++item) {
    const std::int32_t at = --work_indptr[item->worker + 1];
    std::copy_n(item->fields, WorkItem::kNumFields,
                work_items.begin() + std::int64_t{at} * WorkItem::kNumFields);
  }
  std::copy(work_indptr.begin() + 1, work_indptr.end(), work_indptr.begin());
  work_indptr.back() = static_cast<std::int32_t>(num_items());
  for (std::size_t i = 0; i < merges_.size(); ++i)
    std::copy_n(merges_[i].fields, WorkItem::kNumFields,
                merges.begin() + static_cast<std::int64_t>(i) * WorkItem::kNumFields);
}

double AttentionPlanner::imbalance() const {
  const auto sum = std::accumulate(loads_.begin(), loads_.end(), std::int64_t{0});
  const auto most = *std::max_element(loads_.begin(), loads_.end());
  return sum == 0 ? 1.0
                  : static_cast<double>(most) * static_cast<double>(loads_.size()) /
                        static_cast<double>(sum);
}

}  // namespace minisgl::kernels
