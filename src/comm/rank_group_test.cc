#include "comm/rank_group.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <thread>

#include "comm/gloo_module.h"
#include "tensor/tensor.h"

namespace minisgl {
namespace {

using namespace std::chrono_literals;

/// Variables of a launcher, and no others, while it lives.
class Variables {
 public:
  explicit Variables(const std::map<std::string, std::string>& values) {
    unset();
    for (const auto& [name, value] : values) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Variables() { unset(); }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

 private:
  static void unset() {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE"})
      ::unsetenv(name);
  }
};

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(PlaceTest, AProcessWithoutVariablesHasNone) {
  const Variables none(std::map<std::string, std::string>{});
  EXPECT_FALSE(place_from_environment().has_value());
}

TEST(PlaceTest, TheVariablesOfALauncherAreAPlace) {
  const Variables set(
      {{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "10.0.0.7"}, {"MASTER_PORT", "29500"}});
  const std::optional<RankPlace> place = place_from_environment();
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->rank, 2);
  EXPECT_EQ(place->size, 4);
  EXPECT_EQ(place->address, "10.0.0.7");
  EXPECT_EQ(place->port, 29500);
  ::setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  EXPECT_EQ(place_from_environment()->port, 29501) << "torchrun listens at the port itself";
}

TEST(PlaceTest, VariablesThatMakeNoSenseAreNamed) {
  {
    const Variables set(std::map<std::string, std::string>{{"RANK", "1"}});
    EXPECT_NE(error_of([] { place_from_environment(); }).find("WORLD_SIZE is not"),
              std::string::npos);
  }
  {
    const Variables set(std::map<std::string, std::string>{{"RANK", "4"}, {"WORLD_SIZE", "4"}});
    EXPECT_EQ(error_of([] { place_from_environment(); }), "RANK is 4, not between 0 and 3");
  }
  {
    const Variables set(std::map<std::string, std::string>{{"RANK", "0"}, {"WORLD_SIZE", "2"}});
    EXPECT_NE(error_of([] { place_from_environment(); }).find("MASTER_PORT is not"),
              std::string::npos);
  }
}

/// Runs body(rank, port) on a thread each, with a listener of rank 0's.
void with_ranks(int size, const std::function<void(int, std::uint16_t, FileDescriptor)>& body) {
  FileDescriptor listener = listen_at("127.0.0.1", 0);
  const std::uint16_t port = port_of(listener);
  std::vector<std::thread> threads;
  for (int rank = 1; rank < size; ++rank) threads.emplace_back([&, rank] { body(rank, port, {}); });
  body(0, port, std::move(listener));
  for (std::thread& thread : threads) thread.join();
}

Message text(const std::string& what) {
  const auto* bytes = reinterpret_cast<const std::byte*>(what.data());
  return {bytes, bytes + what.size()};
}

TEST(RendezvousTest, AllGetTheMessagesOfAllInOrder) {
  with_ranks(3, [](int rank, std::uint16_t port, FileDescriptor listener) {
    if (rank == 1) std::this_thread::sleep_for(50ms);
    Rendezvous meeting({.rank = rank, .size = 3, .port = port, .timeout = 10s},
                       std::move(listener));
    for (int turn = 0; turn < 2; ++turn) {
      const std::string mine(static_cast<std::size_t>(rank * 1000 * turn), 'a');
      const std::vector<Message> all = meeting.exchange(text(mine + std::to_string(rank)));
      ASSERT_EQ(all.size(), 3U);
      for (int other = 0; other < 3; ++other)
        EXPECT_EQ(all[static_cast<std::size_t>(other)],
                  text(std::string(static_cast<std::size_t>(other * 1000 * turn), 'a') +
                       std::to_string(other)));
    }
    EXPECT_EQ(meeting.local_address(), "127.0.0.1");
  });
}

TEST(RendezvousTest, ARankMayStartBeforeTheFirst) {
  std::uint16_t port = 0;
  {
    const FileDescriptor free = listen_at("127.0.0.1", 0);
    port = port_of(free);
  }
  std::thread second([&] { Rendezvous({.rank = 1, .size = 2, .port = port, .timeout = 10s}); });
  std::this_thread::sleep_for(120ms);
  const Rendezvous first({.rank = 0, .size = 2, .port = port, .timeout = 10s});
  second.join();
}

TEST(RendezvousTest, RanksThatDoNotComeAreNamed) {
  FileDescriptor listener = listen_at("127.0.0.1", 0);
  const std::uint16_t port = port_of(listener);
  std::thread second([&] { Rendezvous({.rank = 1, .size = 4, .port = port, .timeout = 10s}); });
  const std::string error = error_of([&] {
    Rendezvous({.rank = 0, .size = 4, .port = port, .timeout = 1s}, std::move(listener));
  });
  second.join();
  EXPECT_EQ(error, "ranks that have not come: 2, 3 (after 1 s, --distributed-timeout)");
}

TEST(RendezvousTest, AFaultThatSomebodyFoundEndsTheWait) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(error_of([] {
              Rendezvous({.rank = 0, .size = 2, .port = 0, .timeout = 60s, .fault = [] {
                            return std::string("rank 1 has ended");
                          }});
            }),
            "rank 1 has ended");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
}

TEST(RendezvousTest, ARankOfAnotherGroupIsToldSo) {
  with_ranks(2, [](int rank, std::uint16_t port, FileDescriptor listener) {
    if (rank == 0) {
      const Rendezvous first({.rank = 0, .size = 2, .port = port, .timeout = 10s},
                             std::move(listener));
      return;
    }
    EXPECT_NE(error_of([&] {
                Rendezvous({.rank = 1, .size = 3, .port = port, .timeout = 10s});
              }).find("refused rank 1: rank 0 has a group of 2 ranks, not 3"),
              std::string::npos);
    Rendezvous({.rank = 1, .size = 2, .port = port, .timeout = 10s});
  });
}

#ifdef MINISGL_HAS_GLOO

TEST(RankGroupTest, RanksAddUpAndTellEachOtherThroughGloo) {
  with_ranks(3, [](int rank, std::uint16_t port, FileDescriptor listener) {
    RankGroup group({.place = {.rank = rank, .size = 3, .port = port}, .timeout = 20s},
                    std::move(listener));
    EXPECT_EQ(group.rank_on_host(), rank);
    group.connect_devices(kCpu);
    const RankLinks links = group.links();
    EXPECT_EQ(links.sharing_host, 3);
    Message message = rank == 0 ? text(std::string(2000, 'x')) : Message();
    links.host->broadcast(message);
    EXPECT_EQ(message, text(std::string(2000, 'x')));

    CpuStream stream(1);
    for (const std::int64_t count : {3, 40'000}) {
      const Tensor x({count}, DType::kF32);
      for (std::int64_t i = 0; i < count; ++i)
        x.view().as<float>()[i] = static_cast<float>(i % 100 + rank);
      for (int turn = 0; turn < 20; ++turn) {
        links.tensors->all_reduce(x, stream);
        stream.synchronize();
        for (std::int64_t i = 0; i < count; ++i) {
          ASSERT_EQ(x.view().as<float>()[i], static_cast<float>(3 * (i % 100) + 3));
          x.view().as<float>()[i] = static_cast<float>(i % 100 + rank);
        }
      }
    }
    links.host->barrier();
  });
}

TEST(RankGroupTest, ARankThatEndsAndOneThatHangsAreNamed) {
  with_ranks(3, [](int rank, std::uint16_t port, FileDescriptor listener) {
    const auto group = std::make_unique<RankGroup>(
        RankGroup::Options{.place = {.rank = rank, .size = 3, .port = port}, .timeout = 1s},
        std::move(listener));
    HostGroup& host = *group->links().host;
    if (rank == 1) {
      std::this_thread::sleep_for(2500ms);  // hangs
      return;
    }
    const auto begin = std::chrono::steady_clock::now();
    const std::string error = error_of([&] { host.barrier(); });
    // Of two waits, that of rank 0 or of rank 2 is first over; then its connections break.
    EXPECT_NE(error.find("rank"), std::string::npos) << error;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 3s);
    if (rank == 0) {
      EXPECT_NE(error.find("rank 1 did not answer within 1 s"), std::string::npos) << error;
    }
  });
}

/// A process that is rank 1 of two and takes in what rank 0 sends, until it is killed.
pid_t start_listening_rank(std::uint16_t port) {
  const pid_t process = ::fork();
  if (process != 0) return process;
  try {
    RankGroup group({.place = {.rank = 1, .size = 2, .port = port}, .timeout = 20s});
    for (Message message;;) group.links().host->broadcast(message);
  } catch (const Error&) {
    ::_exit(0);  // rank 0 was first
  }
}

bool has_ended(pid_t process) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == process;
}

/// While it lives, the other threads of this process stand still.
class Alone {
 public:
  Alone() {
    struct sigaction action{};
    action.sa_handler = [](int) {
      ++num_still;
      while (alone) std::this_thread::sleep_for(1ms);
    };
    ::sigaction(SIGUSR1, &action, nullptr);
    alone = true;
    num_still = 0;
    int num_others = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
      const pid_t thread = std::stoi(entry.path().filename());
      if (thread != ::gettid() && ::tgkill(::getpid(), thread, SIGUSR1) == 0) ++num_others;
    }
    // A sanitizer has threads that take no signals.
    for (int i = 0; i < 200 && num_still < num_others; ++i) std::this_thread::sleep_for(1ms);
  }
  ~Alone() { alone = false; }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

 private:
  static inline std::atomic<bool> alone{false};
  static inline std::atomic<int> num_still{0};
};

// Its connections are written to before gloo's thread has seen that they ended: that must be no
// SIGPIPE, and no message that is waited for in vain.
TEST(RankGroupTest, ARankThatDiesBeforeAMessageIsWrittenToItIsAnErrorSoon) {
  std::signal(SIGPIPE, SIG_DFL);  // whoever runs the tests may ignore it
  for (int turn = 0; turn < 2; ++turn) {
    FileDescriptor listener = listen_at("127.0.0.1", 0);
    const pid_t process = start_listening_rank(port_of(listener));
    ASSERT_GT(process, 0);
    RankGroup group({.place = {.rank = 0, .size = 2}, .timeout = 20s}, std::move(listener));
    EXPECT_EQ(group.fault(), "");
    Message message = text("a turn");
    for (int i = 0; i < 20; ++i) group.links().host->broadcast(message);
    std::this_thread::sleep_for(50ms);  // the rank waits for the next one

    std::optional<Alone> alone(std::in_place);
    ::kill(process, SIGKILL);
    while (!has_ended(process)) std::this_thread::sleep_for(1ms);
    const auto begin = std::chrono::steady_clock::now();
    std::thread others([&] {
      std::this_thread::sleep_for(20ms);  // the message is written
      alone.reset();
    });
    const std::string error = error_of([&] {
      for (;;) group.links().host->broadcast(message);
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s) << error;
    others.join();
    EXPECT_NE(error.find("rank 1"), std::string::npos) << error;
    EXPECT_EQ(group.fault(), "rank 1 is gone: its connection has ended");
    ::waitpid(process, nullptr, 0);
  }
}

TEST(RankGroupTest, ARankThatDiesWhileRanksConnectIsAnErrorSoon) {
  for (int turn = 0; turn < 25; ++turn) {
    FileDescriptor listener = listen_at("127.0.0.1", 0);
    const pid_t process = start_listening_rank(port_of(listener));
    ASSERT_GT(process, 0);
    std::thread killer([&] {
      std::this_thread::sleep_for(turn * 500us);
      ::kill(process, SIGKILL);
    });
    const auto begin = std::chrono::steady_clock::now();
    const std::string error = error_of([&] {
      RankGroup group({.place = {.rank = 0, .size = 2},
                       .timeout = 20s,
                       .fault = [&] { return has_ended(process) ? "rank 1 was killed" : ""; }},
                      std::move(listener));
      for (Message message = text("a turn");;) group.links().host->broadcast(message);
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s) << error;
    killer.join();
    ::waitpid(process, nullptr, 0);
    EXPECT_EQ(error, "rank 1 was killed");
  }
}

TEST(RankGroupTest, ARankThatHangsWhileRanksConnectIsGivenUpAfterTheTimeLimit) {
  for (int turn = 1; turn <= 3; ++turn) {
    FileDescriptor listener = listen_at("127.0.0.1", 0);
    const pid_t process = start_listening_rank(port_of(listener));
    ASSERT_GT(process, 0);
    std::thread stopper([&] {
      std::this_thread::sleep_for(turn * 2ms);
      ::kill(process, SIGSTOP);
    });
    const auto begin = std::chrono::steady_clock::now();
    const std::string error = error_of([&] {
      RankGroup group({.place = {.rank = 0, .size = 2}, .timeout = 1s}, std::move(listener));
      for (Message message = text("a turn");;) group.links().host->broadcast(message);
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 3s) << error;
    stopper.join();
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
    EXPECT_NE(error.find("--distributed-timeout"), std::string::npos) << error;
  }
}

#endif

}  // namespace
}  // namespace minisgl
