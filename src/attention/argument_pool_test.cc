#include "attention/argument_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <semaphore>

#include "attention/backend_for_test.h"

namespace minisgl {
namespace {

using testing::HasSubstr;

TEST(ArgumentPoolTest, ArraysOfABlockTravelTogetherAndDoNotOverlap) {
  const auto pool = std::make_shared<ArgumentPool>(256, kCpu);
  CpuStream stream(1);
  const ArgumentPool::Lease block = pool->lend();
  const auto a = block->add({3}), b = block->add({2, 5});
  const TensorView c = block->add_on_device({7});
  std::iota(a.host.begin(), a.host.end(), 1);
  std::iota(b.host.begin(), b.host.end(), 100);
  std::fill_n(c.as<std::int32_t>(), 7, -1);
  block->upload(stream);
  stream.synchronize();
  EXPECT_THAT(values_of(a.device), testing::ElementsAre(1, 2, 3));
  EXPECT_EQ(values_of(b.device).front(), 100);
  EXPECT_EQ(values_of(b.device).back(), 109);
  EXPECT_THAT(values_of(c), testing::Each(-1)) << "not part of the copy";
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.device.data) % 64, 0U);
  EXPECT_THAT(error_of([&] { block->add({1}); }), HasSubstr("arrays that are copied come before"));
  EXPECT_THAT(error_of([&] { block->add_on_device({300}); }),
              HasSubstr("shape [300] do not fit into a block of 256"));
}

// The copy out of a block's staging runs when the stream comes to it, long after prepare_metadata()
// returned. A block that was lent again before that would be written by this thread and read by the
// copy at once: the results here would be those of a later step, and thread sanitizer reports it.
TEST(ArgumentPoolTest, ABlockIsNotLentAgainBeforeItsCopyRan) {
  constexpr std::int32_t kSteps = 300;
  constexpr std::int64_t kNumbers = 64;
  const auto pool = std::make_shared<ArgumentPool>(kNumbers, kCpu);
  struct InFlight {
    ArgumentPool::Lease block;
    std::unique_ptr<Event> done;
  };
  std::vector<std::int32_t> arrived;  // written by the stream alone, until it is synchronised
  CpuStream stream(1);
  std::deque<InFlight> in_flight;
  for (std::int32_t step = 0; step < kSteps; ++step) {
    if (in_flight.size() == 2) {
      // As the engine does: a step's metadata goes when the step was reached.
      in_flight.front().done->synchronize();
      in_flight.pop_front();
    }
    InFlight next{pool->lend(), stream.make_event()};
    const auto array = next.block->add({kNumbers});
    std::fill(array.host.begin(), array.host.end(), step);
    next.block->upload(stream);
    stream.submit([&arrived, view = array.device] {
      const auto* values = view.as<std::int32_t>();
      arrived.push_back(std::all_of(values, values + kNumbers,
                                    [&](std::int32_t value) { return value == values[0]; })
                            ? values[0]
                            : -1);
    });
    stream.record(*next.done);
    in_flight.push_back(std::move(next));
  }
  stream.synchronize();
  std::vector<std::int32_t> expected(kSteps);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(arrived, expected);
  EXPECT_EQ(pool->num_blocks(), 2U) << "blocks are used again";
}

TEST(ArgumentPoolTest, EveryBackendKeepsTheArgumentsOfAStepThatHasNotBegun) {
  for (const char* name : {"ref", "fa", "fi", "trtllm", "fa,fi"}) {
    World world(16);
    CpuStream stream(2);
    const auto backend = make_attention_backend(name, world.shape);
    world.batch.rows = {{RowId{0}, 30, 31}, {RowId{1}, 3, 40}};
    world.batch.num_rows = 2;
    world.batch.num_decode = 1;
    const std::vector<float> expected = attend(*backend, world, 0, stream);

    std::binary_semaphore gate(0);
    stream.submit([&] { gate.acquire(); });  // what was enqueued before the step goes on for long
    const auto first = backend->prepare_metadata(world.batch, stream);
    const std::vector<BatchRow> rows = world.batch.rows;
    world.batch.rows = {{RowId{4}, 9, 10}, {RowId{5}, 0, 77}};
    const auto second = backend->prepare_metadata(world.batch, stream);
    gate.release();
    world.batch.rows = rows;
    EXPECT_EQ(attend_with(*backend, *first, world, 0, stream), expected) << name;
  }
}

}  // namespace
}  // namespace minisgl
