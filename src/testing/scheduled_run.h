// A model, an engine and a scheduler without threads of their own around them, and a record of what
// every request got. Linked by tests of layers from scheduler/ on.

#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "scheduler/rank_turns.h"
#include "scheduler/scheduler.h"

namespace minisgl::testing_util {

struct RunConfig {
  Device device = kCpu;
  int threads = 1;
  std::int32_t page_size = 1;
  std::int32_t num_pages = 2048;
  std::int32_t prefill_budget = 256;
  std::int32_t max_running = 64;
  std::string cache = "radix";
  std::string attention = "auto";
  Compute compute = Compute::kExact;
  std::optional<DType> dtype = std::nullopt;  ///< of weights, see LoadOptions
  std::optional<DType> kv_cache_dtype = std::nullopt;
  bool overlap = true;
  std::vector<TokenId> eos_ids = {};
  std::int32_t max_seq_len = 0;  ///< 0: the model's
  std::int32_t graph_max = -1;   ///< see EngineConfig
  std::vector<std::int32_t> graph_sizes = {};
  bool deterministic = false;
  bool check_graphs = false;
  /// Called on the stream after each step, before its logits are sampled.
  std::function<void(const Engine&, const Batch&)> on_step = {};
  std::size_t keep_logits = 0;  ///< positions of each answer whose logits are kept whole
  bool dummy_weights = false;   ///< see LoadOptions
  /// One of several ranks: see run_on_ranks().
  RankLinks ranks = {};
  layers::Shard shard = {};
};

inline std::string describe(const RunConfig& c) {
  return "page size " + std::to_string(c.page_size) + ", budget " +
         std::to_string(c.prefill_budget) + ", " + c.cache + ", overlap " +
         (c.overlap ? "on" : "off") + ", " + std::to_string(c.threads) + " threads, attention " +
         c.attention + (c.graph_max > 0 || !c.graph_sizes.empty() ? ", graphs" : "");
}

/// What one request got.
struct Outcome {
  std::vector<TokenId> tokens;
  std::vector<std::uint64_t> logits_hash;  ///< of each token's logits, bit for bit
  std::vector<std::vector<float>> logits;  ///< of the first RunConfig::keep_logits tokens
  FinishReason finish = FinishReason::kNone;
  std::int32_t cached_tokens = 0;
  std::string error;
  std::vector<PositionLogprobs> logprobs, prompt_logprobs;
};

class ScheduledRun {
 public:
  ScheduledRun(const std::filesystem::path& model_path, const RunConfig& config) : config_(config) {
    EngineConfig engine;
    engine.device = config.device;
    engine.num_threads = config.threads;
    engine.compute = config.compute;
    engine.attention_backend = config.attention;
    engine.page_size = config.page_size;
    engine.num_pages = config.num_pages;
    engine.kv_cache_dtype = config.kv_cache_dtype;
    engine.max_running_requests = config.max_running;
    engine.prefill_budget_tokens = config.prefill_budget;
    engine.max_seq_len = config.max_seq_len;
    engine.graph_max_batch_size = config.graph_max;
    engine.graph_batch_sizes = config.graph_sizes;
    engine.deterministic = config.deterministic;
    engine.check_graphs = config.check_graphs;
    engine.on_logits = [this](const Batch& batch, TensorView logits) {
      record(batch, logits);
      if (config_.on_step) config_.on_step(*engine_, batch);
    };
    engine.ranks = config.ranks;
    engine_ =
        std::make_unique<Engine>(load_model(model_path, {.num_threads = config.threads,
                                                         .max_seq_len = config.max_seq_len,
                                                         .shard = config.shard,
                                                         .device = config.device,
                                                         .dtype = config.dtype,
                                                         .dummy_weights = config.dummy_weights}),
                                 engine);
    if (config.ranks.host != nullptr)
      turns_ = std::make_unique<RankTurns>(*config.ranks.host,
                                           RankTurns::Options{.compare_batches = true});
    scheduler_ =
        std::make_unique<Scheduler>(*engine_,
                                    SchedulerConfig{.prefill_budget_tokens = config.prefill_budget,
                                                    .prefix_cache = config.cache,
                                                    .overlap = config.overlap,
                                                    .eos_ids = config.eos_ids,
                                                    .check_integrity = true,
                                                    .seed = 1,
                                                    .ranks = turns_.get()},
                                    [this](std::span<const TokenEvent> events) { take(events); });
  }

  /// Returns the request's number, from 0 on.
  std::size_t submit(std::vector<TokenId> prompt, SamplingParams sampling,
                     std::unique_ptr<TokenConstraint> constraint = nullptr) {
    outcomes_.emplace_back();
    scheduler_->submit(
        {{outcomes_.size() - 1}, std::move(prompt), std::move(sampling), std::move(constraint)});
    return outcomes_.size() - 1;
  }
  void abort(std::size_t request) { scheduler_->abort({request}); }
  bool step() { return scheduler_->step(); }
  void stop() { scheduler_->stop(); }
  bool stopped() const { return scheduler_->stopped(); }
  void check_integrity() const { scheduler_->check_integrity(); }

  /// Runs until nothing is left, then verifies the ledgers.
  void finish() {
    while (scheduler_->step()) {
    }
    scheduler_->check_integrity();
    // Logits are recorded on the stream: collect() of the last step has ordered them before this.
    for (auto& [key, hash] : hashes_) {
      Outcome& outcome = outcomes_[key.first];
      if (key.second >= outcome.tokens.size()) continue;  // of the step after the last
      outcome.logits_hash.resize(outcome.tokens.size());
      outcome.logits_hash[key.second] = hash;
    }
    for (auto& [key, logits] : kept_) {
      Outcome& outcome = outcomes_[key.first];
      outcome.logits.resize(std::max(outcome.logits.size(), key.second + 1));
      outcome.logits[key.second] = logits;
    }
  }

  const std::vector<Outcome>& outcomes() const { return outcomes_; }
  SchedulerStats stats() const { return scheduler_->stats(); }
  Engine& engine() { return *engine_; }

 private:
  using Key = std::pair<std::uint64_t, std::size_t>;  // request, position in its answer

  void record(const Batch& batch, TensorView logits) {
    for (std::size_t s = 0; s < batch.samples.size(); ++s) {
      const Key key{batch.samples[s].request.value,
                    static_cast<std::size_t>(batch.samples[s].position)};
      const float* row = logits.as<float>() + static_cast<std::int64_t>(s) * logits.stride(0);
      std::uint64_t hash = 0xCBF29CE484222325U;  // FNV-1a over 32-bit words
      for (std::int64_t i = 0; i < logits.dim(1); ++i) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, row + i, sizeof(bits));
        hash = (hash ^ bits) * 0x100000001B3U;
      }
      hashes_[key] = hash;
      if (key.second < config_.keep_logits) kept_[key].assign(row, row + logits.dim(1));
    }
  }

  void take(std::span<const TokenEvent> events) {
    for (const TokenEvent& event : events) {
      if (event.request.value >= outcomes_.size()) continue;  // another rank's
      Outcome& outcome = outcomes_[event.request.value];
      if (event.has_token) outcome.tokens.push_back(event.token);
      outcome.finish = event.finish;
      outcome.cached_tokens = event.cached_tokens;
      outcome.error = event.error;
      if (event.logprobs) outcome.logprobs.push_back(*event.logprobs);
      if (!event.prompt_logprobs.empty()) outcome.prompt_logprobs = event.prompt_logprobs;
    }
  }

  RunConfig config_;
  std::vector<Outcome> outcomes_;
  std::map<Key, std::uint64_t> hashes_;
  std::map<Key, std::vector<float>> kept_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<RankTurns> turns_;
  std::unique_ptr<Scheduler> scheduler_;
};

}  // namespace minisgl::testing_util
