#include "engine/rank_watch.h"

#include <gtest/gtest.h>

#include <atomic>

#include "minisgl/error.h"

namespace minisgl {
namespace {

using namespace std::chrono_literals;

/// Sums that wait for a rank which is gone, until they are broken off.
class EndlessSums final : public Communicator {
 public:
  EndlessSums() : Communicator(0, 2) {}
  void all_reduce(TensorView /*x*/, Stream& /*stream*/) override {}
  void all_gather(TensorView /*x*/, TensorView /*parts*/, Stream& /*stream*/) override {}
  void abort() noexcept override { ++aborts; }

  void wait() const {
    while (aborts == 0) std::this_thread::sleep_for(1ms);
  }

  std::atomic<int> aborts = 0;
};

std::string fault_of(const RankWatch& watch) {
  try {
    watch.check();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(RankWatchTest, ACallThatTakesTooLongIsBrokenOff) {
  EndlessSums sums;
  RankWatch watch(sums, 1000ms, nullptr);
  const auto begin = std::chrono::steady_clock::now();
  {
    const RankWatch::Call call(&watch);
    sums.wait();  // or the test hangs
  }
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 1000ms);
  EXPECT_EQ(fault_of(watch),
            "a step was not done within 1 s (--distributed-timeout): a rank does not answer");
}

TEST(RankWatchTest, ARankThatFailsEndsTheCallAtOnce) {
  EndlessSums sums;
  std::atomic<bool> killed = false;
  RankWatch watch(sums, 60s, [&] { return killed ? "rank 1 was killed" : ""; });
  const RankWatch::Call call(&watch);
  EXPECT_EQ(fault_of(watch), "");
  killed = true;
  sums.wait();  // or the test hangs for a minute
  EXPECT_EQ(fault_of(watch), "rank 1 was killed");
}

TEST(RankWatchTest, ManyShortCallsAndLongPausesAreNoFault) {
  EndlessSums sums;
  RankWatch watch(sums, 200ms, nullptr);
  const auto end = std::chrono::steady_clock::now() + 500ms;
  while (std::chrono::steady_clock::now() < end) const RankWatch::Call call(&watch);
  std::this_thread::sleep_for(500ms);
  const RankWatch::Call of_one_rank(nullptr);
  EXPECT_EQ(fault_of(watch), "");
  EXPECT_EQ(sums.aborts, 0);
}

TEST(RankWatchTest, NothingIsBrokenOffTwice) {
  EndlessSums sums;
  RankWatch watch(sums, 0ms, nullptr);
  const RankWatch::Call call(&watch);
  sums.wait();
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(sums.aborts, 1);
}

}  // namespace
}  // namespace minisgl
