// bench graphs: what a decode step costs when it is padded to a graph that has more rows, and so
// which list of sizes is worth its capture.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/math.h"
#include "bench.h"
#include "llm/local_generator.h"

namespace minisgl::app {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;
using Sizes = std::vector<std::int32_t>;

struct Options {
  LlmOptions llm;
  std::int32_t context = 512;
  bool json = false;
};

/// A way to choose the sizes that get a graph.
struct List {
  std::string name;
  Sizes sizes;  ///< ascending, up to the maximum
};

/// first, first + step, ..., last.
void append(Sizes& sizes, std::int32_t first, std::int32_t last, std::int32_t step) {
  for (std::int32_t size = first; size <= last; size += step) sizes.push_back(size);
}

/// Ascending, each once, none larger than `max`, which is the last.
Sizes tidy(Sizes sizes, std::int32_t max) {
  sizes.push_back(max);
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  sizes.erase(std::upper_bound(sizes.begin(), sizes.end(), max), sizes.end());
  return sizes;
}

std::vector<List> candidates(std::int32_t max) {
  std::vector<List> lists(5);
  lists[0].name = "1, 2, 4, 8, ... doubled";
  for (std::int32_t size = 1; size <= max; size *= 2) lists[0].sizes.push_back(size);
  lists[1] = {"1, 2, 4, 8, multiples of 16", {1, 2, 4, 8}};
  append(lists[1].sizes, 16, max, 16);
  lists[2] = {"1, 2, 4, multiples of 8", {1, 2, 4}};
  append(lists[2].sizes, 8, max, 8);
  lists[3].name = "1 to 8, then four for each doubling";
  append(lists[3].sizes, 1, 8, 1);
  for (std::int32_t size = 8; size <= max; size *= 2)
    append(lists[3].sizes, size, 2 * size, size / 4);
  lists[4].name = "1 to 16, then multiples of 8";
  append(lists[4].sizes, 1, 16, 1);
  append(lists[4].sizes, 24, max, 8);
  for (List& list : lists) list.sizes = tidy(std::move(list.sizes), max);
  return lists;
}

Sizes sizes_of_all(const std::vector<List>& lists, std::int32_t max) {
  Sizes all;
  for (const List& list : lists) all.insert(all.end(), list.sizes.begin(), list.sizes.end());
  return tidy(std::move(all), max);
}

/// Numbers of rows to measure: each size that some list has, and the next number after it, for
/// which the padding is largest.
Sizes rows_to_measure(const Sizes& sizes) {
  Sizes rows;
  for (const std::int32_t size : sizes) {
    rows.push_back(size);
    rows.push_back(size + 1);
  }
  return tidy(std::move(rows), sizes.back());
}

std::int32_t size_for(const Sizes& sizes, std::int32_t rows) {
  return *std::lower_bound(sizes.begin(), sizes.end(), rows);
}

/// Decode steps of an engine whose rows all have `context` keys, two in flight as the scheduler
/// has them.
class Steps {
 public:
  Steps(Engine& engine, std::int32_t context)
      : engine_(engine),
        context_(context),
        table_(engine.limits().max_rows, engine.limits().max_seq_len, engine.limits().dummy_loc()) {
    const std::int64_t row_tokens = round_up(context, engine.limits().page_size);
    for (std::int32_t row = 0; row < engine.limits().max_rows; ++row)
      for (std::int32_t i = 0; i < context; ++i)
        table_.row(RowId{row})[i] = static_cast<TokenLoc>(row * row_tokens + i);
  }

  /// Median time of a step of `rows` rows in the graph of `size` rows; 0: without a graph. The rows
  /// of padding are in the batch as rows of one token, which is what they cost.
  double seconds(std::int32_t rows, std::int32_t size) {
    engine_.graphs()->set_enabled(size > 0);
    size_ = std::max(rows, size);
    constexpr int kWarmUp = 3, kSamples = 3, kMinSteps = 8, kMaxSteps = 200;
    constexpr double kMinSeconds = 0.01;  // of one sample
    const double once = run(rows, kWarmUp) / kWarmUp;
    const int steps = std::clamp(static_cast<int>(kMinSeconds / once), kMinSteps, kMaxSteps);
    std::array<double, kSamples> samples{};
    for (double& sample : samples) sample = run(rows, steps) / steps;
    std::sort(samples.begin(), samples.end());
    return samples[kSamples / 2];
  }

 private:
  double run(std::int32_t rows, int steps) {
    const Clock::time_point start = Clock::now();
    std::array<Batch, 2> batches;
    for (int i = 0; i < steps; ++i) {
      fill(batches[i % 2], rows);
      engine_.launch(batches[i % 2]);
      if (i > 0) engine_.collect(batches[(i - 1) % 2]);
    }
    engine_.collect(batches[(steps - 1) % 2]);
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  void fill(Batch& batch, std::int32_t rows) {
    batch = Batch{};
    batch.page_table = &table_;
    batch.num_rows = batch.num_decode = size_;
    for (std::int32_t i = 0; i < size_; ++i) {
      if (i < rows)
        batch.rows.push_back({RowId{i}, context_ - 1, context_});
      else
        batch.rows.push_back({table_.dummy_row(), 0, 1});
      batch.token_ids.push_back(-1);
      batch.samples.emplace_back().batch_row = i;
    }
  }

  Engine& engine_;
  std::int32_t context_;
  std::int32_t size_ = 0;  // rows of the batch, padding included
  PageTable table_;
};

/// Times of steps by (rows, rows of the graph).
using Times = std::map<std::pair<std::int32_t, std::int32_t>, double>;

struct Band {
  std::int32_t first, last;
};
constexpr std::array kBands{Band{1, 8}, Band{9, 32}, Band{33, 128}, Band{129, 1 << 20}};

/// How much longer than in the smallest graph of any list a step takes, on average over the rows
/// of a band; below 0 only by noise.
double extra_share(const List& list, const Sizes& all, const Times& times, Band band) {
  double sum = 0;
  int count = 0;
  for (const auto& [key, seconds] : times) {
    const auto [rows, size] = key;
    if (rows < band.first || rows > band.last || size != size_for(list.sizes, rows)) continue;
    sum += seconds / times.at({rows, size_for(all, rows)}) - 1;
    ++count;
  }
  return count == 0 ? 0 : sum / count;
}

struct Measured {
  Times replayed;
  std::map<std::int32_t, double> eager;  ///< by rows
};

Measured measure(Engine& engine, std::int32_t context, const std::vector<List>& lists,
                 const Sizes& all, std::FILE* table) {
  Steps steps(engine, context);
  Measured measured;
  fmt::print(table, "{:>5} {:>10}   in a graph of: us\n", "rows", "eager us");
  for (const std::int32_t rows : rows_to_measure(all)) {
    Sizes sizes{size_for(all, rows)};
    for (const List& list : lists) sizes.push_back(size_for(list.sizes, rows));
    const std::int32_t largest = *std::max_element(sizes.begin(), sizes.end());
    sizes = tidy(std::move(sizes), largest);
    const bool is_size = sizes.front() == rows;
    if (is_size) measured.eager[rows] = steps.seconds(rows, 0);
    fmt::print(table, "{:>5} {:>10}  ", rows,
               is_size ? fmt::format("{:.1f}", 1e6 * measured.eager[rows]) : "");
    for (const std::int32_t size : sizes) {
      const double seconds = steps.seconds(rows, size);
      measured.replayed[{rows, size}] = seconds;
      fmt::print(table, " {}: {:.1f} ", size, 1e6 * seconds);
    }
    fmt::print(table, "\n");
    std::fflush(table);
  }
  return measured;
}

void print_lists(const Measured& measured, const std::vector<List>& lists, const Sizes& all,
                 std::int32_t max, std::FILE* table) {
  fmt::print(table,
             "\nTime beyond that in the smallest graph of any list, %, by rows\n{:<38} {:>6}",
             "list", "graphs");
  std::vector<Band> bands;
  for (const Band& band : kBands)
    if (band.first <= max) bands.push_back({band.first, std::min(band.last, max)});
  for (const Band& band : bands)
    fmt::print(table, " {:>9}", fmt::format("{}-{}", band.first, band.last));
  fmt::print(table, "\n");
  for (const List& list : lists) {
    fmt::print(table, "{:<38} {:>6}", list.name, list.sizes.size());
    for (const Band& band : bands)
      fmt::print(table, " {:>9.1f}", 100 * extra_share(list, all, measured.replayed, band));
    fmt::print(table, "\n");
  }
}

void print_json(const Measured& measured, const std::vector<List>& lists, const Sizes& all,
                std::int32_t context) {
  Json result = {{"context", context}, {"graphs", all.size()}};
  for (const auto& [key, seconds] : measured.replayed)
    result["steps"].push_back({{"rows", key.first}, {"graph", key.second}, {"us", 1e6 * seconds}});
  for (const auto& [rows, seconds] : measured.eager)
    result["eager"].push_back({{"rows", rows}, {"us", 1e6 * seconds}});
  for (const List& list : lists) {
    Json extra = Json::array();
    for (const Band& band : kBands)
      if (band.first <= all.back())
        extra.push_back({{"from_rows", band.first},
                         {"percent", 100 * extra_share(list, all, measured.replayed, band)}});
    result["lists"].push_back(
        {{"list", list.name}, {"graphs", list.sizes.size()}, {"extra", std::move(extra)}});
  }
  std::puts(result.dump().c_str());
}

int bench_graphs(const Options& given) {
  LlmOptions llm = given.llm;
  const std::int32_t max = llm.graph_max_batch_size > 0
                               ? std::min(llm.graph_max_batch_size, llm.max_running_requests)
                               : llm.max_running_requests;
  const std::vector<List> lists = candidates(max);
  const Sizes all = sizes_of_all(lists, max);
  llm.graph_batch_sizes = all;
  llm.max_running_requests = max;
  const std::unique_ptr<Engine> engine = open_engine(llm);  // logs what capturing took
  log::set_level(log::Level::kWarning);
  const ExecutorLimits& limits = engine->limits();
  check(engine->graphs() != nullptr, "the attention backend ", engine->attention_backend(),
        " cannot be captured in a graph");
  check(given.context <= limits.max_seq_len, "--context ", given.context,
        " is longer than the context of ", limits.max_seq_len, " tokens");
  const std::int64_t pages =
      max * round_up<std::int64_t>(given.context, limits.page_size) / limits.page_size;
  check(pages <= limits.num_pages, max, " rows of ", given.context, " tokens need ", pages,
        " pages, but there is memory for ", limits.num_pages,
        ": choose a smaller --context or --cuda-graph-max-bs");

  // The table goes where it does not disturb the JSON.
  std::FILE* const table = given.json ? stderr : stdout;
  const Measured measured = measure(*engine, given.context, lists, all, table);
  print_lists(measured, lists, all, max, table);
  if (given.json) print_json(measured, lists, all, given.context);
  return 0;
}

}  // namespace

Command add_bench_graphs(CLI::App& app) {
  auto options = std::make_shared<Options>();
  add_engine_flags(app, options->llm);
  app.add_option("--context", options->context, "Keys of each row")
      ->check(whole_number_from(1))
      ->type_name("N")
      ->capture_default_str();
  app.add_flag("--json", options->json, "Print one JSON object, and the tables on standard error");
  return [options] { return bench_graphs(*options); };
}

}  // namespace minisgl::app
