// bench offline: how fast this machine computes prompts and answers.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "bench.h"
#include "llm/local_generator.h"
#include "llm/offline_workload.h"
#include "ranks.h"

namespace minisgl::app {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

struct Options {
  LlmOptions llm;
  RankFlags ranks;
  OfflineWorkload single;              ///< unless there are workloads
  std::vector<std::string> workloads;  ///< of parse_offline_workload()
  std::optional<double> temperature;
  int repeat = 3;
  bool json = false;
};

/// One pass over all prompts.
struct Pass {
  double seconds = 0;        ///< first submission to last token
  double first_seconds = 0;  ///< first submission to the last request's first token
  std::int64_t prompts = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t output_tokens = 0;

  double prefill_rate() const { return static_cast<double>(prompt_tokens) / first_seconds; }
  double decode_rate() const {
    return seconds > first_seconds
               ? static_cast<double>(output_tokens - prompts) / (seconds - first_seconds)
               : 0;
  }
  double output_rate() const { return static_cast<double>(output_tokens) / seconds; }
};

Pass run_pass(LocalGenerator& generator, std::vector<OfflineRequest> requests, double temperature) {
  std::mutex mutex;
  std::condition_variable changed;
  auto left = static_cast<std::int64_t>(requests.size());
  Pass pass{.prompts = left};
  std::string error;
  generator.flush_cache();
  const Clock::time_point start = Clock::now();
  const auto since_start = [&] {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  for (OfflineRequest& request : requests) {
    generator.submit({.prompt = std::move(request.prompt),
                      .sampling = {.temperature = temperature,
                                   .max_tokens = request.output_len,
                                   .ignore_eos = true}},
                     [&](GenerateUpdate update) {
                       const std::lock_guard lock(mutex);
                       if (update.completion_tokens == 1) pass.first_seconds = since_start();
                       if (update.finish == FinishReason::kNone) return;
                       pass.prompt_tokens += update.prompt_tokens;
                       pass.cached_tokens += update.cached_tokens;
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

/// A line of the table of steps.
struct StepLine {
  std::string name;
  StepGroup group;

  double ms() const { return 1e3 * group.seconds / static_cast<double>(group.steps); }
  double gb_per_s() const {
    return (group.work.read_bytes + group.work.write_bytes) / group.seconds / 1e9;
  }
  double tflop_per_s() const { return group.work.flops / group.seconds / 1e12; }
};

StepGroup operator-(const StepGroup& after, const StepGroup& before) {
  return {.steps = after.steps - before.steps,
          .rows = after.rows - before.rows,
          .seconds = after.seconds - before.seconds,
          .work = {.flops = after.work.flops - before.work.flops,
                   .read_bytes = after.work.read_bytes - before.work.read_bytes,
                   .write_bytes = after.work.write_bytes - before.work.write_bytes}};
}

struct Snapshot {
  EngineStats engine;
  StepGroups groups;
};

Snapshot snapshot(const LocalGenerator& generator) {
  return {.engine = generator.engine_stats(), .groups = generator.step_groups()};
}

/// What the engine did between two snapshots.
struct StepReport {
  std::vector<StepLine> lines;
  double seconds = 0;         ///< busy
  double graph_seconds = 0;   ///< in steps that replayed a graph
  double decode_seconds = 0;  ///< in steps without a prompt's token
  double decode_bytes = 0;
  std::int64_t rows = 0, padding_rows = 0;  ///< of replays

  StepReport(const Snapshot& before, const Snapshot& after) {
    seconds = after.engine.busy_seconds - before.engine.busy_seconds;
    add("prompts (with answers)", after.groups.prompts - before.groups.prompts);
    for (const bool graph : {true, false}) {
      for (std::size_t i = 0; i < StepGroups::kSizes; ++i) {
        const StepGroup group = graph ? after.groups.replayed[i] - before.groups.replayed[i]
                                      : after.groups.eager[i] - before.groups.eager[i];
        const std::size_t last = std::size_t{1} << i;
        const std::size_t first = i == 0 ? 1 : last / 2 + 1;
        const std::string rows =
            first == last ? fmt::format("{}", last) : fmt::format("{} to {}", first, last);
        add(fmt::format("{} {}{}", rows, last == 1 ? "answer" : "answers", graph ? ", graph" : ""),
            group);
        if (graph) graph_seconds += group.seconds;
        decode_seconds += group.seconds;
        decode_bytes += group.work.read_bytes + group.work.write_bytes;
      }
    }
    rows = after.engine.graphs.real_rows - before.engine.graphs.real_rows;
    padding_rows = after.engine.graphs.padding_rows - before.engine.graphs.padding_rows;
  }

  double graph_share() const { return seconds > 0 ? graph_seconds / seconds : 0; }
  double decode_gb_per_s() const {
    return decode_seconds > 0 ? decode_bytes / decode_seconds / 1e9 : 0;
  }

 private:
  void add(std::string name, const StepGroup& group) {
    if (group.steps > 0) lines.push_back({std::move(name), group});
  }
};

struct Result {
  OfflineWorkload workload;
  std::vector<Pass> passes;
  StepReport steps;
  double ready_seconds = 0;

  double prefill() const {
    return median(passes, [](const Pass& p) { return p.prefill_rate(); });
  }
  double decode() const {
    return median(passes, [](const Pass& p) { return p.decode_rate(); });
  }
  double output() const {
    return median(passes, [](const Pass& p) { return p.output_rate(); });
  }
  double seconds() const {
    return median(passes, [](const Pass& p) { return p.seconds; });
  }
};

void print_json(const Result& r) {
  const Pass& first = r.passes.front();
  Json runs = Json::array();
  for (const Pass& pass : r.passes)
    runs.push_back({{"seconds", pass.seconds},
                    {"prefill_tokens_per_s", pass.prefill_rate()},
                    {"output_tokens_per_s", pass.output_rate()}});
  Json steps = Json::array();
  for (const StepLine& line : r.steps.lines)
    steps.push_back({{"of", line.name},
                     {"steps", line.group.steps},
                     {"ms", line.ms()},
                     {"mean_rows",
                      static_cast<double>(line.group.rows) / static_cast<double>(line.group.steps)},
                     {"time_share", line.group.seconds / r.steps.seconds},
                     {"gb_per_s", line.gb_per_s()},
                     {"tflop_per_s", line.tflop_per_s()}});
  const Json result = {{"workload", r.workload.name()},
                       {"prompts", first.prompts},
                       {"prompt_tokens", first.prompt_tokens},
                       {"cached_tokens", first.cached_tokens},
                       {"output_tokens", first.output_tokens},
                       {"repeat", r.passes.size()},
                       {"seconds", r.seconds()},
                       {"prefill_tokens_per_s", r.prefill()},
                       {"decode_tokens_per_s", r.decode()},
                       {"output_tokens_per_s", r.output()},
                       {"ready_seconds", r.ready_seconds},
                       {"graph_time_share", r.steps.graph_share()},
                       {"graph_padding_rows", r.steps.padding_rows},
                       {"decode_gb_per_s", r.steps.decode_gb_per_s()},
                       {"runs", std::move(runs)},
                       {"steps", std::move(steps)}};
  std::puts(result.dump().c_str());
}

void print_text(const Result& r) {
  const Pass& first = r.passes.front();
  if (r.workload.offline256) {
    fmt::print("offline256: {} prompts, {} tokens, answers of {}; medians of {}\n", first.prompts,
               first.prompt_tokens, first.output_tokens, r.passes.size());
  } else {
    fmt::print("{} {} of {} tokens, answers of {}; medians of {}\n", first.prompts,
               first.prompts == 1 ? "prompt" : "prompts", r.workload.input_len,
               r.workload.output_len, r.passes.size());
  }
  fmt::print("  prefill  {:10.1f} tokens/s  (until every answer has begun)\n", r.prefill());
  if (r.decode() > 0) fmt::print("  decode   {:10.1f} tokens/s  (after that)\n", r.decode());
  fmt::print("  output   {:10.1f} tokens/s  (over the whole {:.2f} s)\n", r.output(), r.seconds());
  fmt::print("  {:<28} {:>7} {:>9} {:>6} {:>8} {:>9}\n", "steps of", "number", "ms each", "time",
             "GB/s", "TFLOP/s");
  for (const StepLine& line : r.steps.lines)
    fmt::print("  {:<28} {:>7} {:>9.3f} {:>4.0f} % {:>8.1f} {:>9.2f}\n", line.name,
               line.group.steps, line.ms(), 100 * line.group.seconds / r.steps.seconds,
               line.gb_per_s(), line.tflop_per_s());
  fmt::print("  {:.0f} % of the time in graphs", 100 * r.steps.graph_share());
  if (r.steps.rows > 0)
    fmt::print(", with {:.1f} % of padding", 100.0 * static_cast<double>(r.steps.padding_rows) /
                                                 static_cast<double>(r.steps.rows));
  fmt::print("; ready {:.2f} s after the start\n", r.ready_seconds);
}

Result measure(LocalGenerator& generator, const Options& o, const OfflineWorkload& workload,
               std::uint64_t& state, double ready_seconds) {
  constexpr double kOffline256Temperature = 0.6;
  const double temperature =
      o.temperature.value_or(workload.offline256 ? kOffline256Temperature : 0.0);
  const Snapshot before = snapshot(generator);
  std::vector<Pass> passes;
  for (int i = 0; i < o.repeat; ++i)
    passes.push_back(
        run_pass(generator, make_requests(workload, generator.vocab_size(), state), temperature));
  return {.workload = workload,
          .passes = std::move(passes),
          .steps = StepReport(before, snapshot(generator)),
          .ready_seconds = ready_seconds};
}

int bench_offline(const Options& o, const RankSetup& ranks) {
  std::vector<OfflineWorkload> workloads;
  for (const std::string& text : o.workloads) {
    workloads.push_back(parse_offline_workload(text));
    workloads.back().shared_len = o.single.shared_len;
  }
  if (workloads.empty()) workloads.push_back(o.single);
  log::set_level(log::Level::kWarning);
  LocalGenerator generator(o.llm, ranks);
  const double ready_seconds = seconds_since_start();
  std::uint64_t state = 0;
  for (const OfflineWorkload& workload : workloads) {
    OfflineWorkload warm_up = workload;
    warm_up.offline256 = false;
    warm_up.num_prompts = 1;
    warm_up.shared_len = 0;
    warm_up.output_len = std::min(workload.output_len, 8);
    run_pass(generator, make_requests(warm_up, generator.vocab_size(), state), 0);
    const Result result = measure(generator, o, workload, state, ready_seconds);
    o.json ? print_json(result) : print_text(result);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

Command add_bench_offline(CLI::App& app) {
  auto options = std::make_shared<Options>();
  add_engine_flags(app, options->llm);
  add_rank_flags(app, options->ranks);
  OfflineWorkload& single = options->single;
  const std::vector<CLI::Option*> numbers{
      app.add_option("--num-prompts", single.num_prompts, "Requests at once")
          ->check(whole_number_from(1))
          ->type_name("N")
          ->capture_default_str(),
      app.add_option("--input-len", single.input_len, "Tokens of each prompt")
          ->check(whole_number_from(1))
          ->type_name("N")
          ->capture_default_str(),
      app.add_option("--output-len", single.output_len, "Tokens of each answer")
          ->check(whole_number_from(1))
          ->type_name("N")
          ->capture_default_str()};
  CLI::Option* const workloads =
      app.add_option("--workload", options->workloads,
                     "In place of these numbers, one after the other: 64x512+257 (64 prompts of "
                     "512 tokens, answers of 257) or offline256 (mini-sglang's benchmark: 256 "
                     "prompts and answers of 100 to 1024, temperature 0.6)")
          ->type_name("NAME");
  for (CLI::Option* number : numbers) workloads->excludes(number);
  app.add_option("--shared-prefix-len", single.shared_len,
                 "Tokens that all prompts begin with; the first computed serve the others")
      ->check(whole_number_from(0))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--temperature", options->temperature, "0 (the default): greedy")
      ->check(number_from(0))
      ->type_name("X");
  app.add_option("--repeat", options->repeat, "Passes; the median counts")
      ->check(whole_number_from(1))
      ->type_name("N")
      ->capture_default_str();
  app.add_flag("--json", options->json, "Print one JSON object a workload, on a line of its own");
  return [options] {
    return with_ranks(options->ranks, options->llm,
                      [&](const RankSetup& ranks) { return bench_offline(*options, ranks); });
  };
}

}  // namespace minisgl::app
