// The Generator of this process: tokenizer, scheduler and engine of one rank.

#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "chat/stop_matcher.h"
#include "comm/rank_group.h"
#include "engine/engine.h"
#include "grammar/grammar.h"
#include "grammar/reasoning_gate.h"
#include "llm/generator.h"
#include "minisgl/llm.h"
#include "scheduler/rank_turns.h"
#include "tokenizer/chat_renderer.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/tokenizer.h"

namespace minisgl {

/// What makes a process one of several that share a model.
struct RankSetup {
  RankGroup* group = nullptr;  ///< null: it is alone
  /// Why a rank is known to have failed, by whoever watches the processes; "" if none is. May be
  /// empty.
  std::function<std::string()> fault = {};
  bool compare_batches = false;  ///< in every build; see RankTurns::Options
};

/// Loads a model and runs its scheduler on a thread of its own. Requests that still run when it is
/// destroyed are aborted.
///
/// With several ranks each has one. That of the first rank is used; those of the others compute
/// what the first one asks for, and end with it: wait() there.
///
/// A model folder may lack a tokenizer that we can read: such a model serves token ids, and text
/// gets a RequestError saying why.
class LocalGenerator final : public Generator {
 public:
  /// Throws Error when the model cannot be loaded or does not fit. Logs what was chosen and why.
  explicit LocalGenerator(const LlmOptions& options, const RankSetup& ranks = {});
  /// With something in the engine's place, to test or measure everything around it. Without
  /// `tokenizer` it serves token ids only.
  LocalGenerator(std::string name, std::unique_ptr<Executor> executor,
                 std::unique_ptr<Tokenizer> tokenizer, SchedulerConfig config);
  ~LocalGenerator() override;

  RequestId submit(GenerateRequest request, std::function<void(GenerateUpdate)> on_update) override;
  void abort(RequestId id) override;
  void flush_cache() override { scheduler_->flush_cache(); }
  MarkedText render_chat(const nlohmann::ordered_json& messages,
                         const nlohmann::ordered_json& tools, const nlohmann::ordered_json& kwargs,
                         bool add_generation_prompt) const override;
  ChatDialect chat_dialect() const override { return chat_dialect_; }
  std::vector<TokenId> encode(const decltype(GenerateRequest::prompt)& prompt,
                              bool add_special) const override;
  std::string decode(std::span<const TokenId> ids, bool skip_special) const override {
    return tokenizer().decode(ids, skip_special);
  }
  std::string token_bytes(TokenId id) const override {
    return tokenizer_ == nullptr ? "" : std::string(tokenizer_->token_bytes(id));
  }
  std::string model_name() const override { return name_; }
  std::string model_path() const override { return path_; }
  int max_seq_len() const override { return executor_->limits().max_seq_len; }
  int vocab_size() const override { return executor_->limits().vocab_size; }
  SchedulerStats stats() const override { return scheduler_->stats(); }
  EngineStats engine_stats() const override {
    return engine_ == nullptr ? EngineStats{} : engine_->stats();
  }
  /// Of no steps when there is something in the engine's place.
  StepGroups step_groups() const {
    return engine_ == nullptr ? StepGroups{} : engine_->step_groups();
  }
  SamplingDefaults sampling_defaults() const override { return sampling_defaults_; }

  /// Returns when the scheduler has ended: for ranks other than the first.
  void wait();
  /// Aborts what runs and ends the scheduler, those of the other ranks too; fault() then says
  /// whether it ended well. Once it has ended this does nothing.
  void stop();

  /// What the engine died of; "" while it lives. All requests have got an error by then.
  std::string fault() const;

  /// Throws RequestError when the model has no tokenizer that we can read.
  const Tokenizer& tokenizer() const;

 private:
  /// An answer in the making.
  struct Answer {
    std::function<void(GenerateUpdate)> on_update;
    std::optional<IncrementalDetokenizer> detokenizer;
    StopMatcher stop;
    std::int64_t min_tokens = 0;  ///< stop texts are not looked for in the first so many tokens
    bool includes_stop_text = false;
    bool awaits_prompt_logprobs = false;  ///< asked for and not delivered
    double cumulative_logprob = 0;
    int prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  };

  void load(const LlmOptions& options, const RankSetup& ranks);
  void start(SchedulerConfig config);
  std::unique_ptr<TokenConstraint> make_constraint(const ResponseFormat& format,
                                                   ReasoningStart reasoning) const;
  void constrain(NewRequest& work, ReasoningStart reasoning) const;
  void deliver(std::span<const TokenEvent> events);
  GenerateUpdate advance(Answer& answer, const TokenEvent& event) const;
  void add_logprobs(Answer& answer, const TokenEvent& event, GenerateUpdate& update) const;
  TextLogprobs to_text(const PositionLogprobs& position) const;
  static std::string text_of(Answer& answer, const TokenEvent& event);
  void run();

  std::string name_;
  std::string path_;
  SamplingDefaults sampling_defaults_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::string tokenizer_error_;  // why there is none
  mutable std::atomic<bool> warned_of_two_bos_ = false;
  std::unique_ptr<ChatRenderer> chat_renderer_;
  std::unique_ptr<Grammars> grammars_;                       // null without a tokenizer
  std::shared_ptr<const ReasoningTokens> reasoning_tokens_;  // null: no reasoning before formats
  ChatDialect chat_dialect_;
  std::unique_ptr<Executor> executor_;
  Engine* engine_ = nullptr;          // the executor, if it is one
  std::unique_ptr<RankTurns> turns_;  // null: this rank is alone
  std::unique_ptr<Scheduler> scheduler_;

  mutable std::mutex mutex_;                              // guards answers_, next_id_ and fault_
  std::map<RequestId, std::shared_ptr<Answer>> answers_;  // shared with a delivery under way
  std::uint64_t next_id_ = 0;
  std::string fault_;
  std::thread thread_;
};

/// What `options` say about chats. Throws Error for template variables that are no JSON object.
ChatOptions chat_options(const LlmOptions& options);

/// Opens a model, or this rank's part of it, without a scheduler: for scoring, or for a caller that
/// brings its own.
std::unique_ptr<Engine> open_engine(const LlmOptions& options, const RankSetup& ranks = {});

}  // namespace minisgl
