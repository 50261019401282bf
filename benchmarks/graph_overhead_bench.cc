// What an (emulated) graph costs on a CPU: a decode step padded to a captured size and replayed
// from fixed buffers, against the same step run directly. On a CPU there is no launch that it would
// save, so this is the price of padding and copies alone.
//
// Both kinds of step run in one engine, because where weights happen to lie in memory makes more
// difference between two engines than what is measured; its graphs are switched on and off.
//
//   graph_overhead_bench MODEL [THREADS [CONTEXT]]
//
// Prints, for each backend and number of rows, the medians of 30 interleaved pairs, and median and
// interquartile range of their ratios.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/log.h"
#include "base/math.h"
#include "engine/engine.h"

namespace minisgl {
namespace {

constexpr int kPairs = 30;
constexpr double kMinSeconds = 0.02;  // of one measurement
constexpr std::int32_t kMaxRows = 8;

using Clock = std::chrono::steady_clock;

constexpr std::int32_t kPageSize = 16;  // that every backend takes

struct Setting {
  std::string model;
  int threads = 0;
  std::int32_t context = 0;    // keys of every row
  std::int32_t num_pages = 0;  // holds the model's context, which a graph must be ready for
};

std::unique_ptr<Engine> make_engine(const Setting& s, const std::string& backend) {
  return std::make_unique<Engine>(load_model(s.model, {.num_threads = s.threads}),
                                  EngineConfig{.num_threads = s.threads,
                                               .attention_backend = backend,
                                               .page_size = kPageSize,
                                               .num_pages = s.num_pages,
                                               .max_running_requests = kMaxRows,
                                               .graph_max_batch_size = kMaxRows});
}

/// Decode steps of `rows` rows, all at the same position; from a graph or not.
class Steps {
 public:
  Steps(Engine& engine, std::int32_t rows, std::int32_t context, bool graph)
      : engine_(engine),
        graph_(graph),
        table_(kMaxRows, engine.limits().max_seq_len, engine.limits().dummy_loc()),
        rows_(rows),
        context_(context) {
    for (std::int32_t row = 0; row < rows; ++row)
      for (std::int32_t i = 0; i < context; ++i) table_.row(RowId{row})[i] = row * context + i;
  }

  void run_one() {
    Batch batch;
    batch.page_table = &table_;
    batch.num_rows = batch.num_decode = rows_;
    for (std::int32_t i = 0; i < rows_; ++i) {
      batch.rows.push_back({RowId{i}, context_ - 1, context_});
      batch.token_ids.push_back(-1);
      batch.samples.emplace_back().batch_row = i;
    }
    engine_.launch(batch);
    engine_.collect(batch);
  }

  double seconds_of(int steps) {
    engine_.graphs()->set_enabled(graph_);
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < steps; ++i) run_one();
    return std::chrono::duration<double>(Clock::now() - start).count() / steps;
  }

 private:
  Engine& engine_;
  bool graph_;
  PageTable table_;
  std::int32_t rows_, context_;
};

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

void compare(const Setting& s, const std::string& backend) {
  const auto engine = make_engine(s, backend);
  for (const std::int32_t rows : {1, 2, 3, 4, 8}) {
    Steps plain(*engine, rows, s.context, false), replayed(*engine, rows, s.context, true);
    const std::int64_t replays = engine->graphs()->stats().replays;
    const int steps = std::max(1, static_cast<int>(kMinSeconds / plain.seconds_of(3)));
    check(engine->graphs()->stats().replays == replays, "the steps to compare with were replayed");
    replayed.seconds_of(3);
    check(engine->graphs()->stats().replays == replays + 3, "the steps were not replayed");
    std::vector<double> plain_seconds, replayed_seconds, ratios;
    for (int pair = 0; pair < kPairs; ++pair) {  // which one goes first alternates
      if (pair % 2 == 0) plain_seconds.push_back(plain.seconds_of(steps));
      replayed_seconds.push_back(replayed.seconds_of(steps));
      if (pair % 2 != 0) plain_seconds.push_back(plain.seconds_of(steps));
      ratios.push_back(replayed_seconds.back() / plain_seconds.back());
    }
    const auto& sizes = engine->graphs()->batch_sizes();
    fmt::print("{:<8} {:>4} -> {:<4} {:>11.1f} {:>11.1f} {:>9.3f} {:>9.3f}\n", backend, rows,
               *std::lower_bound(sizes.begin(), sizes.end(), rows),
               quantile(plain_seconds, 0.5) * 1e6, quantile(replayed_seconds, 0.5) * 1e6,
               quantile(ratios, 0.5), quantile(ratios, 0.75) - quantile(ratios, 0.25));
    std::fflush(stdout);
  }
}

int run(int argc, char** argv) {
  if (argc < 2 || argc > 4) {
    fmt::print(stderr, "usage: {} MODEL [THREADS [CONTEXT]]\n", argv[0]);
    return 2;
  }
  log::set_level(log::Level::kWarning);
  Setting s{.model = argv[1],
            .threads = argc > 2 ? std::atoi(argv[2]) : available_processors(),
            .context = round_up(argc > 3 ? std::atoi(argv[3]) : 128, kPageSize)};
  const std::int64_t longest = read_model_config(s.model).max_position_embeddings;
  s.num_pages = std::max(kMaxRows * s.context, static_cast<std::int32_t>(longest)) / kPageSize;
  fmt::print("{}, {} threads, context {}, {} pairs\n", s.model, s.threads, s.context, kPairs);
  fmt::print("{:<8} {:>12} {:>11} {:>11} {:>9} {:>9}\n", "backend", "rows        ", "eager us",
             "graph us", "ratio", "IQR");
  for (const char* backend : {"ref", "fa", "fi", "trtllm", "fa,fi"}) compare(s, backend);
  return 0;
}

}  // namespace
}  // namespace minisgl

int main(int argc, char** argv) {
  try {
    return minisgl::run(argc, argv);
  } catch (const minisgl::Error& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 1;
  }
}
