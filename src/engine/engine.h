// One rank's engine: memory, inputs, forward and sampling of one step after the other.

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attention/backend.h"
#include "engine/executor.h"
#include "kvcache/kv_pool.h"
#include "models/model.h"

namespace minisgl {

struct EngineConfig {
  int num_threads = 0;                    ///< 0: one for each processor that the process may use
  std::string attention_backend = "auto";
  std::int32_t page_size = 1;             ///< tokens
  std::int32_t num_pages = 0;             ///< 0: from the available memory
  double memory_ratio = 0.5;              ///< share of the available memory for the KV cache
  std::int32_t max_running_requests = 256;
  std::int32_t max_seq_len = 0;           ///< 0: as the model was trained
  std::int32_t prefill_budget_tokens = 256;
  /// For tests: called on the stream with each step's logits [samples, vocab] before they are sampled.
  std::function<void(const Batch&, TensorView logits)> on_logits;
};

/// Runs steps on one stream. launch() and collect() are called by one thread.
///
/// Every input of a step is copied into one of kSlots staging blocks and from there, by one copy,
/// into the block's twin on the device; a slot is used again only after its step was collected.
class Engine final : public Executor {
 public:
  /// Plans memory and allocates all of it. Throws Error when there is too little, or a setting does
  /// not fit the model.
  Engine(std::unique_ptr<Model> model, EngineConfig config);
  ~Engine() override;

  const ExecutorLimits& limits() const override { return limits_; }
  const Model& model() const { return *model_; }
  std::string_view attention_backend() const { return attention_->name(); }
  int num_threads() const;
  /// Bytes of the KV pool if all of it is used.
  std::int64_t kv_pool_bytes() const;

  void launch(Batch& batch) override;
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
  void sample(Batch& batch, Slot& slot);
  std::int64_t plan_scratch_bytes();

  std::unique_ptr<Model> model_;
  EngineConfig config_;
  ExecutorLimits limits_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<KvPool> kv_pool_;
  std::unique_ptr<AttentionBackend> attention_;
  std::unique_ptr<ScratchArena> scratch_;
  Tensor logits_;       // [max_rows, vocab] f32
  Tensor last_tokens_;  // [max_rows + 1] i32, by page-table row: the token last drawn for it
  std::array<std::unique_ptr<Slot>, kSlots> slots_;
  int next_slot_ = 0;
};

}  // namespace minisgl
