#include "comm/host_group.h"

#include <gtest/gtest.h>

#include "testing/local_ranks.h"
#include "testing/random.h"

namespace minisgl {
namespace {

using testing_util::LocalRank;
using testing_util::run_ranks;

Message message_of(std::size_t bytes, std::uint64_t seed) {
  testing_util::Random random(seed);
  Message message(bytes);
  for (std::byte& byte : message) byte = static_cast<std::byte>(random.below(256));
  return message;
}

TEST(HostGroupTest, EveryRankGetsWhatTheFirstBroadcasts) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, HostGroup::kShortBytes,
                                  HostGroup::kShortBytes + 1, std::size_t{100'000}}) {
    run_ranks(3, [&](int rank, LocalRank& local) {
      for (std::uint64_t turn = 0; turn < 3; ++turn) {
        Message message = rank == 0 ? message_of(bytes, turn) : message_of(7, 99);
        local.host.broadcast(message);
        EXPECT_EQ(message, message_of(bytes, turn)) << bytes << " bytes, rank " << rank;
      }
    });
  }
}

TEST(HostGroupTest, MessagesAreCollectedInTheOrderOfTheRanks) {
  // Short, long and empty ones side by side.
  const std::vector<std::size_t> sizes{10, 3000, 0};
  run_ranks(3, [&](int rank, LocalRank& local) {
    const auto mine = static_cast<std::size_t>(rank);
    const std::vector<Message> all = local.host.all_gather(message_of(sizes[mine], mine));
    ASSERT_EQ(all.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(all[i], message_of(sizes[i], i));
  });
}

TEST(HostGroupTest, ABarrierHoldsAllUntilTheLastHasCome) {
  std::atomic<int> arrived{0};
  run_ranks(4, [&](int rank, LocalRank& local) {
    if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ++arrived;
    local.host.barrier();
    EXPECT_EQ(arrived.load(), 4);
  });
}

TEST(HostGroupTest, ARankThatIsGoneIsNamed) {
  try {
    run_ranks(2, [&](int rank, LocalRank& local) {
      if (rank == 0) local.host.barrier();
    });
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "rank 1 is gone");
  }
}

}  // namespace
}  // namespace minisgl
