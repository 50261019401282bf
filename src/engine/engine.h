// One rank's engine: memory, inputs, forward and sampling of one step after the other.

#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attention/backend.h"
#include "comm/rank_group.h"
#include "engine/engine_stats.h"
#include "engine/executor.h"
#include "engine/graph_runner.h"
#include "engine/rank_watch.h"
#include "engine/sampler.h"
#include "engine/step_groups.h"
#include "kvcache/kv_pool.h"
#include "models/model.h"

namespace minisgl {

struct EngineConfig {
  Device device = kCpu;               ///< where the model's weights lie
  int num_threads = 0;                ///< 0: one for each processor that the process may use
  Compute compute = Compute::kExact;  ///< of a CPU; a GPU computes in bf16
  std::string attention_backend = "auto";
  std::int32_t page_size = 1;  ///< tokens
  std::int32_t num_pages = 0;  ///< 0: from the available memory
  /// Of keys and values, instead of what they are computed in: kF8E4M3, on a GPU.
  std::optional<DType> kv_cache_dtype = {};
  double memory_ratio = 0.5;  ///< share of the available memory for the KV cache
  std::int32_t max_running_requests = 256;
  std::int32_t max_seq_len = 0;  ///< 0: as the model was trained
  std::int32_t prefill_budget_tokens = 256;
  /// Rows of the largest graph; 0: none. -1: by the free memory on a GPU, none on a CPU, where a
  /// graph is emulated and saves nothing.
  std::int32_t graph_max_batch_size = -1;
  std::vector<std::int32_t> graph_batch_sizes = {};  ///< if not empty: these, whatever the maximum
  /// A request's logits do not depend on what is computed with it. On a CPU that is always so; on a
  /// GPU it is slow, and needs the attention backend ref, which "auto" then is.
  bool deterministic = false;
  bool check_graphs = false;  ///< stop when an input of a graph was not refreshed; slow
  /// The ranks that share the model; the model is then this rank's part of it.
  RankLinks ranks = {};
  /// With several ranks: a step that takes longer is a fault.
  std::chrono::milliseconds step_timeout{60'000};
  /// Asked on a thread while a step is launched or waited for: what it returns, unless empty, is a
  /// fault.
  std::function<std::string()> fault = {};
  /// For tests: called on the stream with each step's logits [samples, vocab] before they are
  /// sampled.
  std::function<void(const Batch&, TensorView logits)> on_logits = {};
};

/// Runs steps on one stream. launch() and collect() are called by one thread.
///
/// Every input of a step is copied into one of kSlots staging blocks and from there, by one copy,
/// into the block's twin on the device; a slot is used again only after its step was collected.
///
/// With graphs a decode step is padded to a batch size that was captured, its inputs and metadata
/// are copied on to the graph's own addresses, and the graph is replayed in place of the model's
/// forward pass (docs/graphs.md). Sampling is no part of it.
class Engine final : public Executor {
 public:
  /// Plans memory and allocates all of it. Throws Error when there is too little, or a setting does
  /// not fit the model.
  Engine(std::unique_ptr<Model> model, EngineConfig config);
  ~Engine() override;

  const ExecutorLimits& limits() const override { return limits_; }
  const Model& model() const { return *model_; }
  Device device() const { return config_.device; }
  std::string_view attention_backend() const { return attention_->name(); }
  int num_threads() const;
  /// Bytes of the KV pool if all of it is used.
  std::int64_t kv_pool_bytes() const;
  /// All keys and values, for tests: while no step is in flight, or on the stream.
  KvCacheView kv() const { return kv_pool_->view(); }
  /// Null without graphs.
  GraphRunner* graphs() { return graphs_.get(); }
  const GraphRunner* graphs() const { return graphs_.get(); }
  /// May be called by any thread.
  EngineStats stats() const;
  /// May be called by any thread.
  StepGroups step_groups() const { return group_meter_.groups(); }

  void launch(Batch& batch) override;
  void sample(Batch& batch) override;
  std::span<const TokenId> collect(Batch& batch) override;

  /// Natural logarithm of the probability of tokens[i + 1] after tokens[0 .. i], for every i: one
  /// window, in chunks of the prefill budget. Uses the first pages of the pool: only while no
  /// scheduler uses the engine. Throws RequestError if the window does not fit.
  std::vector<double> token_logprobs(std::span<const TokenId> tokens);

 private:
  static constexpr int kSlots = 2;
  struct Slot;

  void stage(Batch& batch, Slot& slot);
  void forward(Batch& batch, Slot& slot);
  void draw(Batch& batch, Slot& slot);
  std::int64_t plan_scratch_bytes();
  void show_logits(const Batch& batch, TensorView logits);
  std::int64_t find_memory() const;
  void wait_for(Event& event) const;
  std::vector<std::int32_t> plan_graphs() const;
  void capture_graphs();
  void warm_up();

  std::unique_ptr<Model> model_;
  EngineConfig config_;
  std::int64_t memory_bytes_;  // available at start, on every rank
  ExecutorLimits limits_;
  std::vector<std::int32_t> graph_sizes_;
  std::int32_t max_rows_ = 0;         // of a step, padding included
  std::int32_t max_tokens_ = 0;       // of a step, padding included
  std::unique_ptr<RankWatch> watch_;  // null unless several ranks compute on GPUs
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<KvPool> kv_pool_;
  std::unique_ptr<AttentionBackend> attention_;
  std::unique_ptr<ScratchArena> scratch_;
  Tensor logits_;  // [max_rows_, vocab] f32
  Tensor
      last_tokens_;  // [limits_.max_rows + 1] i32, by page-table row: the token last drawn for it
  std::unique_ptr<ForwardContext> context_;  // of the step that the stream runs
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<GraphRunner> graphs_;  // null without graphs
  std::unique_ptr<StepWorkModel> work_model_;
  StepMeter meter_;
  StepGroupMeter group_meter_;
  std::array<std::unique_ptr<Slot>, kSlots> slots_;
  int next_slot_ = 0;
};

}  // namespace minisgl
