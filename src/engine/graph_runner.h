// Decode steps as graphs: captured once for each batch size, padded to one, replayed.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/backend.h"
#include "engine/graph.h"
#include "engine/graph_buffer.h"
#include "engine/graph_checker.h"

namespace minisgl {

/// What became of the steps so far.
struct GraphStats {
  std::int64_t replays = 0;
  std::int64_t eager_steps = 0;         ///< all others
  std::int64_t eager_decode_steps = 0;  ///< those of them that had too many rows for a graph
  std::int64_t real_rows = 0;           ///< rows of requests in replays
  std::int64_t padding_rows = 0;        ///< dummy rows in replays
  /// Padding computed for each row that was wanted: 0.6 where 5 rows were padded to 8.
  double padding_waste() const {
    return real_rows == 0 ? 0 : static_cast<double>(padding_rows) / static_cast<double>(real_rows);
  }
};

/// The copies of a replay. Two-dimensional ones are copied row by row, into however wide rows.
class GraphWriter final : public CaptureWriter {
 public:
  void copy(std::string_view name, TensorView dst, TensorView src, Stream& stream) override;
  /// Enqueues `write`, which sets all of `dst`, a part of the buffer `name`.
  void fill(std::string_view name, TensorView dst, const std::function<void(TensorView)>& write);
  /// Drops copies to `name` from now on; "" drops none.
  void leave_out(std::string name) { left_out_ = std::move(name); }
  /// Is told of every copy; may be null.
  void watch(GraphChecker* checker) { checker_ = checker; }

 private:
  std::string left_out_;
  GraphChecker* checker_ = nullptr;
};

/// What there is to record.
struct GraphRecording {
  ForwardContext& context;  ///< that the forward pass reads
  ForwardInputs inputs;     ///< in fixed buffers
  const AttentionMetadata& metadata;
  std::function<void()> forward;
};
using RecordGraph = std::function<std::unique_ptr<Graph>(GraphRecording)>;

/// Makes an EmulatedGraph.
std::unique_ptr<Graph> emulate_graph(GraphRecording recording);

struct GraphRunnerConfig {
  std::vector<std::int32_t> batch_sizes;  ///< of graph_batch_sizes(), at least one
  std::int64_t max_seq_len_tokens = 0;
  bool check = false;  ///< watch all buffers with a GraphChecker
  RecordGraph record = emulate_graph;
};

/// Whether there is something to capture: a size, and a backend that can be captured on `device`.
/// Says in the log why not.
bool wants_graphs(std::span<const std::int32_t> batch_sizes, const AttentionBackend& attention,
                  Device device);

/// Where a replay stands, for tests, examples and measurements.
enum class ReplayPoint : std::uint8_t { kBegin, kRefreshed, kEnd };

/// One graph for each batch size, and the fixed buffers that all of them read.
///
/// A decode step of n rows is padded to the first size >= n with rows that read and write the dummy
/// page only; their logits are dropped. Prefill has no graph: the shape of a graph is fixed, and
/// the number of a prompt's tokens is not.
///
/// pad_batch() is called by the thread that launches steps; replay() where the step runs (inside
/// Stream::submit()); stats() by any. Ranks of one group must capture and replay the same sizes in
/// the same order, and destroy() before their communicator is gone: a graph holds its collectives.
///
/// Invariants
///  1. Everything that a graph reads is weights, KV pool, scratch, or one of captured_buffers(n).
///  2. A replay writes every refreshed buffer and allocates nothing.
///  3. A smaller graph needs no more scratch memory than the largest, which is captured first.
///
/// Source: mini-sglang engine/graph.py GraphRunner.
class GraphRunner {
 public:
  using Forward = std::function<void(ForwardContext&, TensorView logits)>;

  /// Captures all sizes, largest first, each after one warm-up run, and waits for it. `context` is
  /// the one that `forward` is given, here and by the caller for eager steps; `page_table` is any
  /// one of the engine's shape (its dummy row counts), used during construction only. `logits`: see
  /// GraphCaptureBuffer. Throws Error if the backend cannot be captured, or what a warm-up run
  /// throws.
  GraphRunner(GraphRunnerConfig config, ForwardContext& context, const PageTable& page_table,
              TensorView logits, Forward forward);
  GraphRunner(const GraphRunner&) = delete;
  GraphRunner& operator=(const GraphRunner&) = delete;

  const std::vector<std::int32_t>& batch_sizes() const { return config_.batch_sizes; }

  /// The first thing when a step is prepared, so that inputs and metadata are made of the padded
  /// rows. Adds nothing to a step that has no graph.
  void pad_batch(Batch& batch);

  /// Decode rows only, and not more than the largest graph has.
  bool can_use(const Batch& batch) const {
    return enabled_ && !graphs_.empty() && batch.is_decode() &&
           batch.num_rows <= batch_sizes().back();
  }

  /// Copies the step's inputs and metadata into the fixed buffers and replays the graph of its
  /// size. The step must be current in the context (ForwardScope) and every row of a request
  /// sampled. `write_input_ids`, if any, enqueues what sets the rows' input ids [num_decode], which
  /// only the device knows, after the copies. Returns logits [num_rows, vocab], valid until the
  /// next step.
  TensorView replay(const Batch& batch,
                    const std::function<void(TensorView)>& write_input_ids = {});

  /// Everything that the graph of `num_rows` rows reads: the model's inputs, then the backend's.
  std::vector<CapturedBuffer> captured_buffers(std::int32_t num_rows) const;

  /// Logs the counters and drops the graphs; steps are eager from here on. Between steps.
  void destroy();

  GraphStats stats() const;
  /// Scratch memory of the largest graph, which all share.
  std::int64_t pool_bytes() const { return pool_bytes_; }

  /// For tests and examples: no replay copies the buffer `name` any more; "" ends that. Between
  /// steps. Throws Error listing the refreshed buffers if there is none of that name.
  void leave_out(std::string_view name);
  /// For measurements: steps are eager while graphs are not enabled. Between steps.
  void set_enabled(bool enabled) { enabled_ = enabled; }
  /// For tests and examples: called by replay().
  void set_observer(std::function<void(ReplayPoint, const Batch&)> observer) {
    observer_ = std::move(observer);
  }

 private:
  void capture(std::int32_t num_rows, const PageTable& page_table);
  void observe(ReplayPoint point, const Batch& batch) const {
    if (observer_) observer_(point, batch);
  }

  GraphRunnerConfig config_;
  ForwardContext& context_;
  Forward forward_;
  GraphCaptureBuffer buffer_;
  GraphWriter writer_;
  std::unique_ptr<GraphChecker> checker_;                  // null: not checked
  std::map<std::int32_t, std::unique_ptr<Graph>> graphs_;  // by number of rows
  std::int64_t pool_bytes_ = 0;
  bool enabled_ = true;
  std::function<void(ReplayPoint, const Batch&)> observer_;
  std::atomic<std::int64_t> replays_{0}, eager_steps_{0}, eager_decode_steps_{0};
  std::atomic<std::int64_t> real_rows_{0}, padding_rows_{0};
};

}  // namespace minisgl
