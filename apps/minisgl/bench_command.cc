// bench offline: how fast this machine computes prompts and answers.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/log.h"
#include "bench_sums.h"
#include "commands.h"
#include "llm/local_generator.h"
#include "ranks.h"

namespace minisgl::app {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  LlmOptions llm;
  RankFlags ranks;
  int num_prompts = 1;
  int input_len = 512;
  int output_len = 128;
  int repeat = 3;
  bool json = false;
};

/// One pass over all prompts.
struct Pass {
  double seconds = 0;        ///< first submission to last token
  double first_seconds = 0;  ///< first submission to the last request's first token
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;

  double prefill_rate() const { return static_cast<double>(prompt_tokens) / first_seconds; }
  double decode_rate(int prompts) const {
    return seconds > first_seconds
               ? static_cast<double>(output_tokens - prompts) / (seconds - first_seconds)
               : 0;
  }
  double output_rate() const { return static_cast<double>(output_tokens) / seconds; }
};

/// Different ids in every pass, or the prefix cache would answer: a fixed sequence of splitmix64.
std::vector<TokenId> random_prompt(int length, int vocab, std::uint64_t& state) {
  constexpr int kMaxId = 10'000;
  std::vector<TokenId> ids(length);
  for (TokenId& id : ids) {
    std::uint64_t z = (state += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    id =
        static_cast<TokenId>((z ^ (z >> 31)) % static_cast<std::uint64_t>(std::min(vocab, kMaxId)));
  }
  return ids;
}

Pass run_pass(LocalGenerator& generator, const Options& o, std::uint64_t& state) {
  std::vector<std::vector<TokenId>> prompts;
  for (int i = 0; i < o.num_prompts; ++i)
    prompts.push_back(random_prompt(o.input_len, generator.vocab_size(), state));
  std::mutex mutex;
  std::condition_variable changed;
  int left = o.num_prompts;
  Pass pass;
  std::string error;
  const Clock::time_point start = Clock::now();
  const auto since_start = [&] {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  for (auto& prompt : prompts) {
    generator.submit(
        {.prompt = std::move(prompt), .sampling = {.max_tokens = o.output_len, .ignore_eos = true}},
        [&](GenerateUpdate update) {
          const std::lock_guard lock(mutex);
          if (update.completion_tokens == 1) pass.first_seconds = since_start();
          if (update.finish == FinishReason::kNone) return;
          pass.prompt_tokens += update.prompt_tokens;
          pass.output_tokens += update.completion_tokens;
          pass.seconds = since_start();
          error += update.error;
          if (--left == 0) changed.notify_all();
        });
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return left == 0; });
  if (!error.empty()) throw Error(error);
  return pass;
}

template <class F>
double median(const std::vector<Pass>& passes, F&& value) {
  std::vector<double> values;
  for (const Pass& pass : passes) values.push_back(value(pass));
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

int bench_offline(const Options& o, const RankSetup& ranks) {
  log::set_level(log::Level::kWarning);
  LocalGenerator generator(o.llm, ranks);
  std::uint64_t state = 0;
  Options warm_up = o;
  warm_up.num_prompts = 1;
  warm_up.output_len = std::min(o.output_len, 8);
  run_pass(generator, warm_up, state);
  std::vector<Pass> passes;
  for (int i = 0; i < o.repeat; ++i) passes.push_back(run_pass(generator, o, state));

  const double prefill = median(passes, [](const Pass& p) { return p.prefill_rate(); });
  const double decode = median(passes, [&](const Pass& p) { return p.decode_rate(o.num_prompts); });
  const double output = median(passes, [](const Pass& p) { return p.output_rate(); });
  const double seconds = median(passes, [](const Pass& p) { return p.seconds; });
  if (o.json) {
    const nlohmann::ordered_json result = {{"prompts", o.num_prompts},
                                           {"prompt_tokens", passes[0].prompt_tokens},
                                           {"output_tokens", passes[0].output_tokens},
                                           {"repeat", o.repeat},
                                           {"seconds", seconds},
                                           {"prefill_tokens_per_s", prefill},
                                           {"decode_tokens_per_s", decode},
                                           {"output_tokens_per_s", output}};
    std::puts(result.dump().c_str());
    return 0;
  }
  fmt::print("{} {} of {} tokens, answers of {}; medians of {}\n", o.num_prompts,
             o.num_prompts == 1 ? "prompt" : "prompts", o.input_len, o.output_len, o.repeat);
  fmt::print("  prefill  {:10.1f} tokens/s  (until every answer has begun)\n", prefill);
  if (decode > 0) fmt::print("  decode   {:10.1f} tokens/s  (after that)\n", decode);
  fmt::print("  output   {:10.1f} tokens/s  (over the whole {:.2f} s)\n", output, seconds);
  return 0;
}

}  // namespace

Command add_bench(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.require_subcommand(1);
  CLI::App& offline =
      *app.add_subcommand("offline", "Random prompts, all at once, without a server");
  add_engine_flags(offline, options->llm);
  add_rank_flags(offline, options->ranks);
  offline.add_option("--num-prompts", options->num_prompts, "Requests at once")
      ->check(number_from(1))
      ->capture_default_str();
  offline.add_option("--input-len", options->input_len, "Tokens of each prompt")
      ->check(number_from(1))
      ->capture_default_str();
  offline.add_option("--output-len", options->output_len, "Tokens of each answer")
      ->check(number_from(1))
      ->capture_default_str();
  offline.add_option("--repeat", options->repeat, "Passes; the median counts")
      ->check(number_from(1))
      ->capture_default_str();
  offline.add_flag("--json", options->json, "Print one JSON object");
  CLI::App& sums = *app.add_subcommand("sums", "What ranks take to add up, by the size of the sum");
  const Command run_sums = add_bench_sums(sums);
  return [options, &sums, run_sums] {
    if (sums.parsed()) return run_sums();
    return with_ranks(options->ranks, options->llm,
                      [&](const RankSetup& ranks) { return bench_offline(*options, ranks); });
  };
}

}  // namespace minisgl::app
