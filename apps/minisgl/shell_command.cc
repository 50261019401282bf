// shell: a conversation in the terminal.

#include <editline/readline.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/env.h"
#include "base/log.h"
#include "commands.h"
#include "llm/local_generator.h"
#include "ranks.h"

namespace minisgl::app {
namespace {

using Json = nlohmann::ordered_json;

std::atomic<bool> interrupted{false};

void on_interrupt(int /*signal*/) { interrupted.store(true); }

/// Ctrl-C sets `interrupted` while it lives: it drops the line being typed, or stops the answer,
/// and not the program.
class InterruptGuard {
 public:
  InterruptGuard() {
    struct sigaction action{};
    action.sa_handler = on_interrupt;
    sigaction(SIGINT, &action, &before_);
  }
  ~InterruptGuard() { sigaction(SIGINT, &before_, nullptr); }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction before_{};
};

/// A line with editing and history on a terminal, else plainly; nullopt at the end of input.
std::optional<std::string> read_line() {
  if (isatty(STDIN_FILENO) == 1) {
    interrupted.store(false);
    char* line = readline("$ ");
    if (line == nullptr && interrupted.load()) {
      std::puts("");
      return std::string();
    }
    if (line == nullptr) return std::nullopt;
    std::string text(line);
    std::free(line);
    if (!text.empty()) add_history(text.c_str());
    return text;
  }
  std::string text;
  for (int c = std::getchar(); c != EOF; c = std::getchar()) {
    if (c == '\n') return text;
    text.push_back(static_cast<char>(c));
  }
  return text.empty() ? std::nullopt : std::optional(text);
}

/// Streams the answer to standard output; returns its text, or what there was of it at Ctrl-C.
std::string answer(LocalGenerator& generator, const Json& history, const SamplingParams& sampling) {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::string text;
  std::string error;
  interrupted.store(false);
  const RequestId id =
      generator.submit({.prompt = generator.render_chat(history, nullptr, nullptr, true),
                        .sampling = sampling,
                        .param = "messages"},
                       [&](GenerateUpdate update) {
                         std::fwrite(update.text.data(), 1, update.text.size(), stdout);
                         std::fflush(stdout);
                         const std::lock_guard lock(mutex);
                         text += update.text;
                         error = update.error;
                         done = update.finish != FinishReason::kNone;
                         changed.notify_all();
                       });
  std::unique_lock lock(mutex);
  constexpr auto kPoll = std::chrono::milliseconds(20);  // a signal handler cannot notify
  bool aborted = false;
  while (!done) {
    changed.wait_for(lock, kPoll);
    if (interrupted.load() && !aborted) {
      aborted = true;
      generator.abort(id);
    }
  }
  std::fputs(aborted ? " [stopped]\n" : "\n", stdout);
  if (!error.empty()) throw RequestError(error);
  return text;
}

/// A conversation has one request at a time.
LlmOptions for_one_request(LlmOptions options) {
  options.max_running_requests = 1;
  options.graph_max_batch_size = std::min(options.graph_max_batch_size, 1);
  return options;
}

int shell(const LlmOptions& options, const RankSetup& ranks) {
  const auto settings = [](SamplingParams s) {
    s.temperature = env_double("MINISGL_SHELL_TEMPERATURE", s.temperature);
    s.top_k = env_int("MINISGL_SHELL_TOP_K", s.top_k);
    s.top_p = env_double("MINISGL_SHELL_TOP_P", s.top_p);
    s.max_tokens = env_int("MINISGL_SHELL_MAX_TOKENS", 2048);
    validate(s);
    return s;
  };
  const SamplingParams ours{.temperature = 0.6};
  settings(ours);  // a bad variable is better said before a model is loaded
  LocalGenerator generator(options, ranks);
  const SamplingParams sampling = settings(generator.sampling_defaults().over(ours));
  log::set_level(log::Level::kWarning);  // from here on the terminal belongs to the conversation
  std::printf(
      "Talking to %s. /reset forgets the conversation, /exit or Ctrl-D leaves, Ctrl-C stops an "
      "answer.\n",
      generator.model_name().c_str());
  std::fflush(stdout);
  const InterruptGuard guard;
  Json history = Json::array();
  while (const std::optional<std::string> line = read_line()) {
    if (line->find_first_not_of(" \t") == std::string::npos) continue;
    if (*line == "/exit") break;
    if (*line == "/reset") {
      history.clear();
      history = Json::array();
      std::puts("The conversation is forgotten.");
      continue;
    }
    if (line->front() == '/') {
      std::printf("Unknown command %s: there are /reset and /exit.\n", line->c_str());
      continue;
    }
    history.push_back({{"role", "user"}, {"content", *line}});
    try {
      const std::string text = answer(generator, history, sampling);
      history.push_back({{"role", "assistant"}, {"content", text}});
    } catch (const RequestError& e) {
      history.erase(history.end() - 1);
      std::printf("%s\n", e.what());
      if (e.code() == "context_length_exceeded") std::puts("/reset starts a new conversation.");
    }
    std::fflush(stdout);
  }
  std::puts("Exiting shell...");
  return 0;
}

}  // namespace

Command add_shell(CLI::App& app) {
  auto options = std::make_shared<LlmOptions>();
  auto rank_flags = std::make_shared<RankFlags>();
  add_engine_flags(app, *options);
  add_rank_flags(app, *rank_flags);
  add_chat_flags(app, *options);
  app.footer(
      "MINISGL_SHELL_TEMPERATURE (0.6), MINISGL_SHELL_TOP_K (-1), MINISGL_SHELL_TOP_P (1.0) and\n"
      "MINISGL_SHELL_MAX_TOKENS (2048) in the environment set how it answers.");
  return [options, rank_flags] {
    const LlmOptions one = for_one_request(*options);
    return with_ranks(*rank_flags, one, [&](const RankSetup& ranks) { return shell(one, ranks); });
  };
}

}  // namespace minisgl::app
