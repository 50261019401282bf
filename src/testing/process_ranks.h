// Ranks as processes, which is what they are in the product: the test program once more for each
// rank but the first. Linked by tests of layers from comm/ on, in builds with gloo.

#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/env.h"
#include "comm/rank_group.h"
#include "minisgl/error.h"

namespace minisgl::testing_util {

#ifdef MINISGL_HAS_GLOO
inline constexpr bool kHasGloo = true;
#else
inline constexpr bool kHasGloo = false;
#endif

inline constexpr const char* kRankVariable = "MINISGL_TEST_RANK";
inline constexpr const char* kPortVariable = "MINISGL_TEST_PORT";

/// Which rank this process is; 0 unless run_in_processes() of another one has started it.
inline int rank_of_process() { return static_cast<int>(env_int(kRankVariable, 0)); }

/// This program again, as rank `rank` of the current test and of no other.
class RankProcess {
 public:
  RankProcess(int rank, std::uint16_t port)
      : rank_(rank), output_(::memfd_create("output of a rank", MFD_CLOEXEC)) {
    const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
    std::vector<std::string> arguments{
        "/proc/self/exe",
        std::string("--gtest_filter=") + test.test_suite_name() + "." + test.name(),
        "--gtest_also_run_disabled_tests", "--gtest_color=no"};
    std::vector<std::string> environment{kRankVariable + ("=" + std::to_string(rank)),
                                         kPortVariable + ("=" + std::to_string(port))};
    // GTEST_*: files that this process writes, and parts of the tests that it leaves out.
    for (char** entry = environ; *entry != nullptr; ++entry)
      if (!std::string(*entry).starts_with("GTEST_")) environment.emplace_back(*entry);

    posix_spawn_file_actions_t files;
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&files, output_.get(), STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&files, output_.get(), STDERR_FILENO);
    const int error = ::posix_spawn(&process_, "/proc/self/exe", &files, nullptr,
                                    pointers_to(arguments).data(), pointers_to(environment).data());
    ::posix_spawn_file_actions_destroy(&files);
    if (error != 0) throw Error(name() + " cannot be started: " + std::strerror(error));
  }
  ~RankProcess() {
    if (!running_) return;
    ::kill(process_, SIGKILL);
    while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  /// Sees whether it has ended.
  bool running() {
    int status = 0;
    if (!running_ || ::waitpid(process_, &status, WNOHANG) != process_) return running_;
    running_ = false;
    good_ = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    end_ = name() + (WIFSIGNALED(status)
                         ? " was killed by signal " + std::to_string(WTERMSIG(status))
                         : " has ended with status " + std::to_string(WEXITSTATUS(status)));
    return false;
  }

  /// To be called while it runs; `why` is its end then: "had not ended after 60 s".
  void kill(const std::string& why) {
    ::kill(process_, SIGKILL);
    while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
    running_ = false;
    end_ = name() + " " + why + " and was killed";
  }

  bool good() const { return good_; }              ///< it has ended with status 0
  const std::string& end() const { return end_; }  ///< how it has ended; "" while it runs

  /// What it has written until now.
  std::string output() const {
    std::string text;
    char part[4096];
    for (;;) {
      const ssize_t bytes =
          ::pread(output_.get(), part, sizeof(part), static_cast<off_t>(text.size()));
      if (bytes <= 0) return text;
      text.append(part, static_cast<std::size_t>(bytes));
    }
  }

 private:
  std::string name() const {
    return "rank " + std::to_string(rank_) + " (process " + std::to_string(process_) + ")";
  }

  static std::vector<char*> pointers_to(std::vector<std::string>& strings) {
    std::vector<char*> pointers;
    for (std::string& text : strings) pointers.push_back(text.data());
    pointers.push_back(nullptr);
    return pointers;
  }

  const int rank_;
  FileDescriptor output_;
  pid_t process_ = -1;
  bool running_ = true;
  bool good_ = false;
  std::string end_;
};

/// The processes of ranks 1 to size - 1, and a thread that watches them. When one fails, the others
/// and rank 0 have kGrace to see it; when `limit` is over, they are killed. Should rank 0 not come
/// back even then, because its GPU waits for a rank that is gone, this process ends.
class RankProcesses {
 public:
  RankProcesses(int size, std::uint16_t port, std::chrono::milliseconds limit)
      : deadline_(Clock::now() + limit),
        why_("had not ended after " + std::to_string(limit.count() / 1000) + " s") {
    for (int rank = 1; rank < size; ++rank)
      ranks_.push_back(std::make_unique<RankProcess>(rank, port));
    watcher_ = std::thread([this] { watch(); });
  }
  ~RankProcesses() {
    if (watcher_.joinable()) finish(/*failed=*/true);
  }
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  /// How a rank has failed, "" if none has: RankGroup's `fault`. A rank that ends before all have
  /// met has left this test out.
  std::string fault() {
    const std::lock_guard lock(mutex_);
    for (const auto& rank : ranks_)
      if (!rank->running() && !(rank->good() && met_)) return rank->end();
    return "";
  }

  void have_met() { met_ = true; }

  /// Rank 0 has come back, or has failed. Waits for the others. Returns how some failed, and what
  /// they wrote; "" if none has.
  std::string finish(bool failed) {
    {
      const std::lock_guard lock(mutex_);
      finished_ = true;
      if (failed) hurry();
    }
    watcher_.join();
    return report();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kGrace = std::chrono::seconds(5);

  void hurry() {
    if (Clock::now() + kGrace >= deadline_) return;
    deadline_ = Clock::now() + kGrace;
    why_ = "did not end when another failed";
  }

  void watch() {
    constexpr auto kPoll = std::chrono::milliseconds(5);
    for (bool hurried = false;; std::this_thread::sleep_for(kPoll)) {
      const std::lock_guard lock(mutex_);
      bool running = false;
      for (const auto& rank : ranks_) {
        if (rank->running() && Clock::now() >= deadline_) rank->kill(why_);
        running |= rank->running();
        if (rank->running() || rank->good() || hurried) continue;
        hurried = true;
        hurry();
      }
      if (!running && finished_) return;
      if (running || Clock::now() < deadline_ + kGrace) continue;
      std::fprintf(stderr, "rank 0 does not come back\n%s", report().c_str());
      std::fflush(stdout);
      std::_Exit(1);
    }
  }

  std::string report() const {
    std::string text;
    for (const auto& rank : ranks_)
      if (!rank->good()) text += rank->end() + ", having written:\n" + rank->output() + "\n";
    return text;
  }

  std::vector<std::unique_ptr<RankProcess>> ranks_;
  std::atomic<bool> met_{false};
  std::mutex mutex_;  // guards ranks_ while there is a watcher, and the next three
  Clock::time_point deadline_;
  std::string why_;  // those that run then are killed
  bool finished_ = false;
  std::thread watcher_;
};

/// Runs the current test on `size` ranks: this process is rank 0, and starts the others, which
/// are this program again with this test alone; they come here in their turn, find rank 0 as those
/// of --tp do and call body(group) as well. What a test does around it, every rank does. All leave
/// together. The test fails when an expectation of any rank does or a rank throws, ends otherwise
/// or has not ended after `limit`; what such ranks wrote is part of the message. Once a test.
inline void run_in_processes(int size, const std::function<void(RankGroup&)>& body,
                             std::chrono::milliseconds limit = std::chrono::seconds(60)) {
  const auto run = [&](RankGroup& group) {
    body(group);
    if (!testing::Test::HasFatalFailure()) group.links().host->barrier();
  };
  if (const int rank = rank_of_process(); rank > 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto port = static_cast<std::uint16_t>(env_int(kPortVariable, 0));
    try {
      RankGroup group({.place = {.rank = rank, .size = size, .port = port}, .timeout = limit});
      run(group);
    } catch (const std::exception& e) {
      ADD_FAILURE() << "rank " << rank << ": " << e.what();
    }
    return;
  }
  FileDescriptor listener = listen_at("127.0.0.1", 0);
  RankProcesses others(size, port_of(listener), limit);
  std::string error;
  try {
    RankGroup group({.place = {.rank = 0, .size = size},
                     .timeout = limit,
                     .fault = [&others] { return others.fault(); }},
                    std::move(listener));
    others.have_met();
    run(group);
  } catch (const std::exception& e) {
    error = std::string("rank 0: ") + e.what() + "\n";
  }
  error += others.finish(/*failed=*/!error.empty() || testing::Test::HasFatalFailure());
  if (!error.empty()) ADD_FAILURE() << error;
}

}  // namespace minisgl::testing_util
