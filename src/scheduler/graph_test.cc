// Decode steps from (emulated) graphs, against golden results and against the same steps without.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <tuple>

#include "testing/golden.h"
#include "testing/random.h"
#include "testing/tiny_model.h"

namespace minisgl {
namespace {

using testing_util::Outcome;
using testing_util::Random;
using testing_util::RunConfig;
using testing_util::ScheduledRun;

std::filesystem::path tiny(const std::string& model) { return testing_util::tiny_model(model); }

/// Model, backend.
class GraphTest : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  std::filesystem::path model() const { return tiny(std::get<0>(GetParam())); }
  std::string backend() const { return std::get<1>(GetParam()); }
  /// `wanted`, or the smallest that the backend takes.
  std::int32_t page_size(std::int32_t wanted) const {
    return backend() == "trtllm" ? std::max(wanted, 16) : wanted;
  }
};
std::string name_of(const testing::TestParamInfo<GraphTest::ParamType>& info) {
  std::string name = std::get<0>(info.param) + "_" + std::get<1>(info.param);
  std::replace(name.begin(), name.end(), ',', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Models, GraphTest,
                         testing::Combine(testing::Values("qwen3", "llama"),
                                          testing::Values("fa", "fi", "trtllm", "fa,fi", "ref")),
                         name_of);

struct Work {
  std::vector<TokenId> prompt;
  std::int64_t max_tokens = 0;
};

std::vector<TokenId> random_prompt(Random& random, std::int64_t length) {
  std::vector<TokenId> ids;
  for (std::int64_t i = 0; i < length; ++i) ids.push_back(static_cast<TokenId>(random.below(600)));
  return ids;
}

std::vector<Outcome> run_all(ScheduledRun& run, const std::vector<Work>& work) {
  for (const Work& w : work) run.submit(w.prompt, {.max_tokens = w.max_tokens, .ignore_eos = true});
  run.finish();
  return run.outcomes();
}

void expect_same(const std::vector<Outcome>& expected, const std::vector<Outcome>& actual) {
  ASSERT_EQ(expected.size(), actual.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(expected[i].error, actual[i].error) << "request " << i;
    ASSERT_EQ(expected[i].tokens, actual[i].tokens) << "request " << i;
    ASSERT_EQ(expected[i].logits_hash, actual[i].logits_hash) << "request " << i;
  }
}

TEST_P(GraphTest, EveryDecodeStepIsReplayedAndGivesTheTokensOfTransformers) {
  const nlohmann::json golden = testing_util::read_json(model() / "golden.json");
  for (const bool overlap : {false, true})
    for (const bool check : {false, true}) {
      std::int64_t decode_steps = 0, other_steps = 0;
      RunConfig config{.threads = 2,
                       .page_size = page_size(1),
                       .attention = backend(),
                       .overlap = overlap,
                       .graph_max = 8,
                       .check_graphs = check};
      config.on_step = [&](const Engine&, const Batch& batch) {
        ++(batch.is_decode() ? decode_steps : other_steps);
      };
      ScheduledRun run(model(), config);
      EXPECT_EQ(run.engine().graphs()->batch_sizes(), (std::vector<std::int32_t>{1, 2, 4, 8}));
      testing_util::submit_golden(run, golden);
      run.finish();
      for (std::size_t i = 0; i < golden["prompts"].size(); ++i)
        EXPECT_EQ(run.outcomes()[i].tokens,
                  golden["prompts"][i]["greedy"].get<std::vector<TokenId>>());
      const GraphStats stats = run.engine().graphs()->stats();
      EXPECT_GE(decode_steps, 30);
      EXPECT_EQ(stats.replays, decode_steps);
      EXPECT_EQ(stats.eager_decode_steps, 0);
      EXPECT_EQ(stats.eager_steps, other_steps);
    }
}

TEST_P(GraphTest, LogitsAreThoseOfEagerStepsBitForBitForEveryNumberOfRows) {
  const std::vector<std::int32_t> sizes = {1, 2, 4, 8, 16};
  for (const std::int32_t rows : {1, 3, 5, 7, 9, 15, 16, 17}) {
    SCOPED_TRACE(std::to_string(rows) + " requests");
    Random random(static_cast<std::uint64_t>(rows));
    std::vector<Work> work;
    for (std::int32_t i = 0; i < rows; ++i)
      work.push_back({random_prompt(random, random.between(1, 40)), 6});
    RunConfig config{
        .threads = 2, .page_size = page_size(4), .prefill_budget = 4096, .attention = backend()};
    ScheduledRun eager(model(), config);
    config.graph_sizes = sizes;
    config.check_graphs = true;
    ScheduledRun replayed(model(), config);
    expect_same(run_all(eager, work), run_all(replayed, work));
    EXPECT_EQ(eager.engine().graphs(), nullptr) << "off on a CPU unless asked for";
    const GraphStats stats = replayed.engine().graphs()->stats();
    EXPECT_EQ(stats.replays, rows <= 16 ? 5 : 0) << "17 rows have no graph";
    EXPECT_EQ(stats.eager_decode_steps, rows <= 16 ? 0 : 5);
    const auto size = std::lower_bound(sizes.begin(), sizes.end(), rows);
    EXPECT_EQ(stats.padding_rows, size == sizes.end() ? 0 : 5 * (*size - rows));
  }
}

/// Of all pages but the dummy page.
std::uint64_t checksum(const Engine& engine) {
  const ExecutorLimits& limits = engine.limits();
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (std::int32_t i = 0; i < engine.kv().num_layers; ++i) {
    const KvView kv = engine.kv().layer(i);
    for (const std::byte* part : {kv.k, kv.v}) {
      const std::int64_t floats = limits.dummy_loc() * kv.slot_stride;
      for (std::int64_t f = 0; f < floats; ++f) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, part + f * 4, sizeof(bits));
        hash = (hash ^ bits) * 0x100000001B3U;
      }
    }
  }
  return hash;
}

bool dummy_page_is_untouched(const Engine& engine) {
  const KvView kv = engine.kv().layer(0);
  const auto* k =
      reinterpret_cast<const float*>(kv.k) + engine.limits().dummy_loc() * kv.slot_stride;
  return std::all_of(k, k + engine.limits().page_size * kv.slot_stride,
                     [](float value) { return value == 0; });
}

// 9 requests, of which one and then three more end early, in a pool that they fill to the last
// page.
TEST_P(GraphTest, ShrinkingBatchesLeaveEveryPageOfAFullPoolAsEagerStepsDo) {
  constexpr std::int32_t kPageSize = 16;
  Random random(11);
  std::vector<Work> work;
  std::int32_t num_pages = 0;
  for (int i = 0; i < 9; ++i) {
    const std::int64_t max_tokens = i == 2 ? 4 : i % 3 == 0 ? 9 : 14;
    // One token in the last page of a prompt: the answer needs no more pages, so all are in use
    // from the first step on. The first request has the first page alone.
    const std::int64_t full_pages = i == 0 ? 0 : random.between(0, 2);
    work.push_back({random_prompt(random, full_pages * kPageSize + 1), max_tokens});
    num_pages += static_cast<std::int32_t>(full_pages) + 1;
  }
  struct Seen {
    std::vector<std::uint64_t> checksums;
    std::vector<std::int32_t> rows;
    bool first_page = false, last_page = false, dummy_untouched = true;
  };
  const auto run_with = [&](std::vector<std::int32_t> sizes, Seen& seen) {
    RunConfig config{.threads = 2,
                     .page_size = kPageSize,
                     .num_pages = num_pages,
                     .prefill_budget = 4096,
                     .cache = "naive",
                     .attention = backend(),
                     .overlap = false,
                     .max_seq_len = 64,
                     .graph_sizes = std::move(sizes),
                     .check_graphs = true};
    config.on_step = [&](const Engine& engine, const Batch& batch) {
      check_padding(batch, engine.limits().dummy_loc());
      seen.checksums.push_back(checksum(engine));
      seen.dummy_untouched &= dummy_page_is_untouched(engine);
      if (!batch.is_decode()) return;
      seen.rows.push_back(batch.num_rows);
      for (std::int32_t i = 0; i < batch.num_rows; ++i) {
        const auto* locs = batch.inputs.out_locs.as<std::int32_t>();
        seen.first_page |= locs[i] < kPageSize;
        seen.last_page |= locs[i] >= (num_pages - 1) * kPageSize && locs[i] < num_pages * kPageSize;
      }
    };
    ScheduledRun run(model(), config);
    return run_all(run, work);
  };
  Seen eager, replayed;
  const auto expected = run_with({}, eager);
  const auto actual = run_with({1, 2, 4, 8, 16}, replayed);
  expect_same(expected, actual);
  EXPECT_EQ(eager.checksums, replayed.checksums) << "after each step";
  EXPECT_EQ(eager.rows, replayed.rows);
  std::vector<std::int32_t> shrinking = replayed.rows;
  shrinking.erase(std::unique(shrinking.begin(), shrinking.end()), shrinking.end());
  EXPECT_EQ(shrinking, (std::vector<std::int32_t>{9, 8, 5})) << "padded to 16, 8 and 8";
  EXPECT_TRUE(replayed.first_page) << "the first page is written by decode steps";
  EXPECT_TRUE(replayed.last_page) << "and so is the neighbour of the dummy page";
  EXPECT_TRUE(eager.dummy_untouched);
  EXPECT_FALSE(replayed.dummy_untouched) << "padding is kept in the dummy page";
}

TEST_P(GraphTest, AddressesOfAllBuffersStayThroughAHundredReplays) {
  RunConfig config{.page_size = page_size(1), .attention = backend(), .graph_max = 8};
  ScheduledRun run(model(), config);
  GraphRunner& graphs = *run.engine().graphs();
  const auto addresses = [&] {
    std::vector<std::pair<std::string, const void*>> all;
    for (const std::int32_t size : graphs.batch_sizes())
      for (const CapturedBuffer& buffer : graphs.captured_buffers(size))
        all.emplace_back(buffer.name, buffer.view.data);
    return all;
  };
  const auto before = addresses();
  ASSERT_GE(before.size(), 4U * 7) << "four sizes; four inputs, and three of the backend's";
  Random random(3);
  std::vector<Work> work;
  for (int i = 0; i < 7; ++i)
    work.push_back({random_prompt(random, random.between(1, 30)), 40 + 12 * i});
  run_all(run, work);
  EXPECT_GE(graphs.stats().replays, 100);
  EXPECT_EQ(before, addresses());
}

// The prefix cache, chunks, overlap and aborts around graphs; requests come and go.
TEST_P(GraphTest, RequestsThatComeAndGoGetTheSameBitsAsWithoutGraphs) {
  Random random(21);
  std::vector<Work> work;
  const std::vector<TokenId> shared = random_prompt(random, 50);
  for (int i = 0; i < 20; ++i) {
    std::vector<TokenId> prompt = random_prompt(random, random.between(1, 60));
    if (i % 3 == 0) prompt.insert(prompt.begin(), shared.begin(), shared.end());
    work.push_back({std::move(prompt), random.between(1, 25)});
  }
  std::vector<Outcome> alone;
  for (const Work& w : work) {
    ScheduledRun run(
        model(),
        {.page_size = page_size(1), .cache = "naive", .attention = backend(), .overlap = false});
    alone.push_back(run_all(run, {w}).front());
  }
  std::uint64_t seed = 0;
  for (const std::int32_t wanted_page_size : {1, 16})
    for (const bool overlap : {false, true}) {
      RunConfig config{.threads = 2,
                       .page_size = page_size(wanted_page_size),
                       .prefill_budget = 32,
                       .attention = backend(),
                       .overlap = overlap};
      config.num_pages = 2048 / config.page_size;
      config.max_running = 13;
      config.graph_max = 12;
      config.check_graphs = true;
      config.on_step = [overlap](const Engine& engine, const Batch& batch) {
        if (!overlap) check_padding(batch, engine.limits().dummy_loc());  // else the table goes on
      };
      SCOPED_TRACE(testing_util::describe(config));
      ScheduledRun run(model(), config);
      Random when(++seed);
      std::vector<bool> aborted(work.size(), false);
      for (std::size_t i = 0; i < work.size(); ++i) {
        run.submit(work[i].prompt, {.max_tokens = work[i].max_tokens, .ignore_eos = true});
        for (std::int64_t s = when.below(4); s > 0; --s) run.step();
        if (when.below(6) == 0) {
          const auto victim =
              static_cast<std::size_t>(when.below(static_cast<std::int64_t>(i) + 1));
          run.abort(victim);
          aborted[victim] = true;
        }
      }
      run.finish();
      for (std::size_t i = 0; i < work.size(); ++i) {
        if (aborted[i]) continue;
        ASSERT_EQ(alone[i].tokens, run.outcomes()[i].tokens) << "request " << i;
        ASSERT_EQ(alone[i].logits_hash, run.outcomes()[i].logits_hash) << "request " << i;
      }
      EXPECT_GT(run.engine().graphs()->stats().replays, 10);
      EXPECT_GT(run.engine().graphs()->stats().padding_rows, 0);
    }
}

TEST(GraphOptionsTest, GraphsAreOffByDefaultAndWithAMaximumOfZero) {
  ScheduledRun by_default(tiny("qwen3"), {});
  EXPECT_EQ(by_default.engine().graphs(), nullptr);
  ScheduledRun off(tiny("qwen3"), {.graph_max = 0});
  EXPECT_EQ(off.engine().graphs(), nullptr);
}

#ifndef NDEBUG
// What check_padding() finds, and that it asks the engine's own steps: engine/graph_checker_test.cc
// tests the rest.
TEST(GraphDebugTest, AStepWhoseRequestsTouchTheDummyPageOrRowIsRefused) {
  ScheduledRun run(tiny("qwen3"), {.graph_max = 4});
  Engine& engine = run.engine();
  const ExecutorLimits& limits = engine.limits();
  const auto error_of_step = [&](RowId row, TokenLoc loc) -> std::string {
    PageTable table(limits.max_rows, limits.max_seq_len, limits.dummy_loc());
    std::fill_n(table.row(row).begin(), 5, loc);
    Batch batch;
    batch.page_table = &table;
    batch.rows = {{row, 4, 5}};
    batch.num_rows = batch.num_decode = 1;
    batch.token_ids = {-1};
    batch.samples.resize(1);
    try {
      engine.launch(batch);
    } catch (const Error& e) {
      return e.what();
    }
    engine.collect(batch);
    return "no error";
  };
  const RowId dummy_row{limits.max_rows};
  EXPECT_EQ(error_of_step(RowId{0}, 3), "no error");
  EXPECT_NE(error_of_step(RowId{0}, limits.dummy_loc()).find("in the dummy page"),
            std::string::npos);
  EXPECT_NE(error_of_step(dummy_row, 3).find("the dummy row of the page table was written"),
            std::string::npos);
  EXPECT_NE(error_of_step(dummy_row, limits.dummy_loc()).find("is the dummy row"),
            std::string::npos);
}
#endif

TEST(GraphOptionsTest, ListedSizesMayBeLargerThanTheRequestsThatRunAtOnce) {
  Random random(4);
  std::vector<Work> work;
  for (int i = 0; i < 3; ++i) work.push_back({random_prompt(random, 9), 5});
  RunConfig config{.prefill_budget = 64, .max_running = 3};
  ScheduledRun eager(tiny("qwen3"), config);
  config.graph_sizes = {300};
  ScheduledRun replayed(tiny("qwen3"), config);
  expect_same(run_all(eager, work), run_all(replayed, work));
  EXPECT_EQ(replayed.engine().graphs()->stats().padding_rows, 4 * 297);
}

}  // namespace
}  // namespace minisgl
