// A replay allocates nothing. This file replaces operator new of the whole test program by one that
// counts, but only where and while a replay runs.

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "testing/random.h"
#include "testing/scheduled_run.h"
#include "testing/tiny_model.h"

namespace {

thread_local bool counting = false;  // on the executor's thread, inside of a replay
thread_local std::int64_t allocations = 0;

void* counted(std::size_t size) {
  if (counting) ++allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void* counted(std::size_t size, std::align_val_t alignment) {
  if (counting) ++allocations;
  const auto align = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(align, (size + align - 1) / align * align)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted(size, alignment);
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return counted(size, alignment);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace minisgl {
namespace {

using testing_util::RunConfig;
using testing_util::ScheduledRun;

struct Counted {
  std::int64_t replays = 0;
  std::int64_t of_refreshing = 0;  // copy_from() and prepare_for_replay()
  std::int64_t of_replays = 0;     // the whole
};

Counted count_allocations(const std::string& model, const std::string& backend,
                          bool allocate = false) {
  Counted result;
  ScheduledRun run(testing_util::tiny_model(model),
                   {.threads = 2, .page_size = 16, .attention = backend, .graph_max = 8});
  run.engine().graphs()->set_observer([&](ReplayPoint point, const Batch&) {
    switch (point) {
      case ReplayPoint::kBegin:
        allocations = 0;
        counting = true;
        if (allocate) std::free(counted(1));
        return;
      case ReplayPoint::kRefreshed: result.of_refreshing += allocations; return;
      case ReplayPoint::kEnd:
        counting = false;
        result.of_replays += allocations;
        ++result.replays;
        return;
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
    for (const char* backend : {"fa", "fi", "trtllm", "fa,fi"}) {
      const Counted counted = count_allocations(model, backend);
      EXPECT_GE(counted.replays, 20);
      EXPECT_EQ(counted.of_replays, 0) << backend;
    }
}

TEST(GraphAllocationTest, RefreshingAllocatesNothingWhateverTheKernelDoes) {
  const Counted counted =
      count_allocations("qwen3", "ref");  // whose kernel, the plain one, allocates
  EXPECT_GE(counted.replays, 20);
  EXPECT_EQ(counted.of_refreshing, 0);
}

TEST(GraphAllocationTest, TheCounterCounts) {
  const Counted counted = count_allocations("qwen3", "fa", /*allocate=*/true);
  EXPECT_EQ(counted.of_replays, counted.replays);
}

}  // namespace
}  // namespace minisgl
