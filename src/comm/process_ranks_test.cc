// Ranks that are processes, and the means by which tests run them.

#include "testing/process_ranks.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <thread>

#include "tensor/tensor.h"

#ifdef MINISGL_HAS_GLOO

namespace minisgl {
namespace {

using namespace std::chrono_literals;
using testing_util::rank_of_process;
using testing_util::run_in_processes;

Message own_process() {
  const pid_t process = ::getpid();
  const auto* bytes = reinterpret_cast<const std::byte*>(&process);
  return {bytes, bytes + sizeof(process)};
}

class ProcessRanksTest : public testing::TestWithParam<int> {};

TEST_P(ProcessRanksTest, RanksOfDifferentProcessesAddUp) {
  const int size = GetParam();
  int calls = 0;
  run_in_processes(size, [&](RankGroup& group) {
    ++calls;
    EXPECT_EQ(group.rank(), rank_of_process());
    EXPECT_EQ(group.size(), size);
    group.connect_devices(kCpu);
    const RankLinks links = group.links();
    EXPECT_EQ(links.sharing_host, size);
    std::set<pid_t> processes;
    for (const Message& message : links.host->all_gather(own_process())) {
      pid_t process = 0;
      ASSERT_EQ(message.size(), sizeof(process));
      std::memcpy(&process, message.data(), sizeof(process));
      processes.insert(process);
    }
    EXPECT_EQ(processes.size(), static_cast<std::size_t>(size));

    CpuStream stream(1);
    const Tensor x({1000}, DType::kF32);
    for (std::int64_t i = 0; i < 1000; ++i)
      x.view().as<float>()[i] = static_cast<float>(i + group.rank());
    links.tensors->all_reduce(x, stream);
    stream.synchronize();
    const float of_ranks = static_cast<float>(size * (size - 1)) / 2;
    for (std::int64_t i = 0; i < 1000; ++i)
      ASSERT_EQ(x.view().as<float>()[i], static_cast<float>(size * i) + of_ranks);
  });
  EXPECT_EQ(calls, 1);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ProcessRanksTest, testing::Values(2, 3));

/// Of two ranks; the expectation that the test fails is rank 0's alone.
void expect_failure(const std::string& message, const std::function<void(RankGroup&)>& body,
                    std::chrono::milliseconds limit = 60s) {
  const auto begin = std::chrono::steady_clock::now();
  if (rank_of_process() > 0) return run_in_processes(2, body, limit);
  EXPECT_NONFATAL_FAILURE(run_in_processes(2, body, limit), message);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
}

TEST(ProcessRanksFailureTest, AnExpectationOfAnotherRankFailsTheTest) {
  expect_failure("what rank 1 saw", [](RankGroup& group) {
    if (group.rank() == 1) ADD_FAILURE() << "what rank " << group.rank() << " saw";
  });
}

TEST(ProcessRanksFailureTest, ARankThatThrowsFailsTheTest) {
  expect_failure("rank 1: it is too dark", [](RankGroup& group) {
    if (group.rank() == 1) throw Error("it is too dark");
  });
}

TEST(ProcessRanksFailureTest, WhatTheFirstRankThrowsFailsTheTest) {
  expect_failure("rank 0: it is too bright", [](RankGroup& group) {
    if (group.rank() == 0) throw Error("it is too bright");
  });
}

TEST(ProcessRanksFailureTest, ARankThatDiesIsNamed) {
  expect_failure("was killed by signal 9", [](RankGroup& group) {
    if (group.rank() == 1) std::raise(SIGKILL);
  });
}

TEST(ProcessRanksFailureTest, ARankThatLeavesTheTestOutIsNamed) {
  if (rank_of_process() > 0) GTEST_SKIP() << "this is what the test is about";
  expect_failure("has ended with status 0", [](RankGroup&) {});
}

TEST(ProcessRanksFailureTest, ARankThatHangsIsKilled) {
  expect_failure(
      "had not ended after 1 s and was killed",
      [](RankGroup& group) {
        if (group.rank() == 1) std::this_thread::sleep_for(60s);
      },
      1s);
}

}  // namespace
}  // namespace minisgl

#endif
