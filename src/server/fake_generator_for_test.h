// A Generator without a model, for the server's tests: a thread that makes one token a step for
// every running request.

#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "llm/generator.h"
#include "tokenizer/chat_messages.h"

namespace minisgl::testing_util {

/// A prompt's length in tokens is its number of bytes (or ids). Token i of an answer reads
/// "<i><seed>," so every answer can be foretold. After `eos_after` tokens comes an end token.
class FakeGenerator final : public Generator {
 public:
  struct Options {
    std::chrono::microseconds step{200};
    int max_seq_len = 4096;
    std::size_t max_running = 1000;
    int eos_after = 1 << 30;
    std::string padding = {};                  ///< added to every token's text
    std::chrono::milliseconds submit_time{0};  ///< what tokenizing takes
    int fail_after = 1 << 30;                  ///< tokens, then an error
    SamplingDefaults sampling_defaults = {};
    ChatDialect dialect = {};
    /// What the tokens of every answer read, in place of numbers; then comes an end token.
    std::vector<std::string> script = {};
    std::string prompt_end = "assistant:";  ///< of chats that want an answer
  };

  FakeGenerator() : FakeGenerator(Options{}) {}
  explicit FakeGenerator(Options options)
      : options_(std::move(options)), thread_([this] { run(); }) {}
  ~FakeGenerator() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  static constexpr TokenId kBos = 256;

  static std::string token_text(int i, const GenerateRequest& request) {
    return std::to_string(i) +
           (request.sampling.seed ? "s" + std::to_string(*request.sampling.seed) : "") + ",";
  }

  RequestId submit(GenerateRequest request,
                   std::function<void(GenerateUpdate)> on_update) override {
    std::this_thread::sleep_for(options_.submit_time);
    const int prompt_tokens = static_cast<int>(std::visit(
        [](const auto& p) {
          if constexpr (std::is_same_v<std::decay_t<decltype(p)>, MarkedText>)
            return p.text.size();
          else
            return p.size();
        },
        request.prompt));
    if (prompt_tokens == 0) throw RequestError("the prompt is empty", request.param);
    if (prompt_tokens >= options_.max_seq_len)
      throw RequestError("the prompt has " + std::to_string(prompt_tokens) +
                             " tokens, the context " + std::to_string(options_.max_seq_len),
                         request.param, "context_length_exceeded");
    const std::lock_guard lock(mutex_);
    const RequestId id{++num_ids_};
    Running& running = requests_[id];
    const std::int64_t left = options_.max_seq_len - prompt_tokens;
    running.max_tokens =
        request.sampling.max_tokens < 0 ? left : std::min(left, request.sampling.max_tokens);
    running.prompt_tokens = prompt_tokens;
    running.request = request;
    running.on_update = std::move(on_update);
    submitted_.push_back(std::move(request));
    changed_.notify_all();
    return id;
  }

  void abort(RequestId id) override {
    const std::lock_guard lock(mutex_);
    const auto it = requests_.find(id);
    if (it == requests_.end()) return;
    it->second.aborted = true;
    ++num_aborted_;
    changed_.notify_all();
  }

  MarkedText render_chat(const nlohmann::ordered_json& messages,
                         const nlohmann::ordered_json& tools, const nlohmann::ordered_json& kwargs,
                         bool add_generation_prompt) const override {
    std::string text;
    for (const auto& m : normalise_messages(messages))
      text += m["role"].get<std::string>() + ":" + m["content"].get<std::string>() + "\n";
    if (!tools.is_null()) text += "tools:" + tools.dump() + "\n";
    if (!kwargs.empty()) text += "kwargs:" + kwargs.dump() + "\n";
    if (add_generation_prompt) text += options_.prompt_end;
    return {.text = text, .message_spans = {}};
  }

  ChatDialect chat_dialect() const override { return options_.dialect; }

  // A token for each byte: its value.
  std::vector<TokenId> encode(const decltype(GenerateRequest::prompt)& prompt,
                              bool add_special) const override {
    if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) return *ids;
    const auto* raw = std::get_if<std::string>(&prompt);
    const std::string& text = raw != nullptr ? *raw : std::get<MarkedText>(prompt).text;
    std::vector<TokenId> ids;
    if (raw != nullptr && add_special) ids.push_back(kBos);
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::string decode(std::span<const TokenId> ids, bool skip_special) const override {
    std::string text;
    for (const TokenId id : ids)
      if (!(skip_special && id == kBos)) text += token_bytes(id);
    return text;
  }
  std::string token_bytes(TokenId id) const override {
    if (id == kBos) return "<s>";
    return id >= 0 && id < 256 ? std::string(1, static_cast<char>(id)) : "";
  }

  std::string model_name() const override { return "fake/model"; }
  int max_seq_len() const override { return options_.max_seq_len; }
  int vocab_size() const override { return 1000; }

  SamplingDefaults sampling_defaults() const override { return options_.sampling_defaults; }
  SchedulerStats stats() const override {
    const std::lock_guard lock(mutex_);
    SchedulerStats stats;
    stats.running = static_cast<std::int64_t>(std::min(requests_.size(), options_.max_running));
    stats.waiting = static_cast<std::int64_t>(requests_.size()) - stats.running;
    stats.total_pages = 100;
    stats.free_pages = 100 - stats.running;
    return stats;
  }

  std::vector<GenerateRequest> submitted() const {
    const std::lock_guard lock(mutex_);
    return submitted_;
  }
  int num_aborted() const {
    const std::lock_guard lock(mutex_);
    return num_aborted_;
  }
  std::size_t num_live() const {
    const std::lock_guard lock(mutex_);
    return requests_.size();
  }
  /// True once `num` requests are live, false if that takes longer than two seconds.
  bool wait_for_live(std::size_t num) const {
    for (int i = 0; i < 2000; ++i) {
      if (num_live() == num) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

 private:
  struct Running {
    GenerateRequest request;
    std::function<void(GenerateUpdate)> on_update;
    std::int64_t max_tokens = 0;
    int prompt_tokens = 0;
    int num_tokens = 0;
    bool aborted = false;
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (requests_.empty()) {
        changed_.wait(lock);
        continue;
      }
      changed_.wait_for(lock, options_.step);  // woken early by an abort: a step all the same
      std::vector<std::pair<std::function<void(GenerateUpdate)>, GenerateUpdate>> updates;
      std::size_t num_running = 0;
      for (auto it = requests_.begin(); it != requests_.end();) {
        const bool runs = num_running++ < options_.max_running;
        if (!runs && !it->second.aborted) break;
        updates.emplace_back(it->second.on_update, next(it->second));
        it = updates.back().second.finish == FinishReason::kNone ? std::next(it)
                                                                 : requests_.erase(it);
      }
      lock.unlock();
      for (auto& [on_update, update] : updates) on_update(std::move(update));
      lock.lock();
    }
  }

  GenerateUpdate next(Running& r) const {
    GenerateUpdate update;
    update.prompt_tokens = r.prompt_tokens;
    update.cached_tokens = r.prompt_tokens / 2;
    if (r.aborted) {
      update.finish = FinishReason::kAbort;
    } else if (r.num_tokens >= options_.fail_after) {
      update.finish = FinishReason::kError;
      update.error = "the engine has broken";
    } else if (r.max_tokens == 0) {
      update.finish = FinishReason::kLength;
    } else if (r.num_tokens == num_text_tokens()) {
      update.tokens = {0};
      ++r.num_tokens;
      update.finish = FinishReason::kStop;
      update.stop_reason = TokenId{0};
    } else {
      update.text = options_.script.empty()
                        ? token_text(r.num_tokens, r.request) + options_.padding
                        : options_.script[static_cast<std::size_t>(r.num_tokens)];
      update.tokens = {r.num_tokens % 1000};
      if (++r.num_tokens == r.max_tokens) update.finish = FinishReason::kLength;
    }
    update.completion_tokens = r.num_tokens;
    return update;
  }

  int num_text_tokens() const {
    return options_.script.empty() ? options_.eos_after : static_cast<int>(options_.script.size());
  }

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, Running> requests_;
  std::vector<GenerateRequest> submitted_;
  std::uint64_t num_ids_ = 0;
  int num_aborted_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace minisgl::testing_util
