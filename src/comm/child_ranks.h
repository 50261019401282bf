// Further processes of this program, one for each rank but the first.

#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace minisgl {

/// Starts them and watches them. They have this process's arguments, with RANK, WORLD_SIZE,
/// MASTER_ADDR and MASTER_PORT in their environment; they read nothing from standard input, and
/// SIGINT and SIGTERM wait (rank 0 decides when a group ends). The kernel kills them when this
/// process ends, however it does. To be made, and destroyed, by the main thread.
class ChildRanks {
 public:
  /// Ranks 1 to size - 1, which find rank 0 at `port` of this host. Throws Error if a process
  /// cannot be started.
  ChildRanks(int size, std::uint16_t port);
  /// Kills what is left.
  ~ChildRanks();
  ChildRanks(const ChildRanks&) = delete;
  ChildRanks& operator=(const ChildRanks&) = delete;

  /// Which rank has ended, and how: "rank 1 (process 4711) was killed by signal 9 (Killed)"; ""
  /// while all run, or have ended well. Any thread.
  std::string fault() const;

  /// From now on they are to end. Waits for it, and kills those that have not after `timeout`.
  /// Returns what went wrong; "" if all have ended with status 0.
  std::string wait_for_end(std::chrono::milliseconds timeout);

 private:
  struct Child {
    int rank = 0;
    pid_t process = -1;
    bool running = true;
    std::string end = {};  ///< how it ended, unless well
    std::thread watcher;
  };

  void watch(Child& child);

  mutable std::mutex mutex_;  // guards the children's `running` and `end`, fault_ and stopping_
  std::vector<std::unique_ptr<Child>> children_;
  std::string fault_;
  bool stopping_ = false;
};

}  // namespace minisgl
