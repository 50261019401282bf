// A replay allocates nothing, on no thread that takes part in it.

#include <gtest/gtest.h>

#include <filesystem>

#include "testing/count_allocations.h"
#include "testing/random.h"
#include "testing/scheduled_run.h"
#include "testing/tiny_model.h"

namespace minisgl {
namespace {

using testing_util::AllocationCounter;
using testing_util::ScheduledRun;

struct Counted {
  std::int64_t replays = 0;
  std::int64_t allocations = 0;
};

/// `allocate`: the test itself does, once in each replay.
Counted count_allocations(const std::string& model, const std::string& backend,
                          bool allocate = false) {
  Counted result;
  AllocationCounter counter;  // of the stream and the compute pool: this thread plans the next step
  ScheduledRun run(testing_util::tiny_model(model),
                   {.threads = 2, .page_size = 16, .attention = backend, .graph_max = 8});
  run.engine().graphs()->set_observer([&](ReplayPoint point, const Batch&) {
    if (point == ReplayPoint::kBegin) {
      counter.start();
      if (allocate) ::operator delete(::operator new(1));
    } else if (point == ReplayPoint::kEnd) {
      result.allocations += counter.stop();
      ++result.replays;
    }
  });
  testing_util::Random random(6);
  for (int i = 0; i < 7; ++i) {
    std::vector<TokenId> prompt;
    for (std::int64_t k = random.between(1, 40); k > 0; --k)
      prompt.push_back(static_cast<TokenId>(random.below(600)));
    run.submit(std::move(prompt), {.max_tokens = 20 + i, .ignore_eos = true});
  }
  run.finish();
  return result;
}

TEST(GraphAllocationTest, AReplayAllocatesNothing) {
  for (const char* model : {"qwen3", "llama", "qwen3_moe"})
    for (const char* backend : {"ref", "fa", "fi", "trtllm", "fa,fi"}) {
      const Counted counted = count_allocations(model, backend);
      EXPECT_GE(counted.replays, 20);
      EXPECT_EQ(counted.allocations, 0) << backend;
    }
}

TEST(GraphAllocationTest, TheCounterCounts) {
  const Counted counted = count_allocations("qwen3", "fa", /*allocate=*/true);
  EXPECT_EQ(counted.allocations, counted.replays);
}

}  // namespace
}  // namespace minisgl
