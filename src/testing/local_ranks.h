// Ranks as threads of one process: transports through memory.

#pragma once

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/cpu_communicator.h"
#include "comm/host_group.h"
#include "comm/rank_group.h"
#include "comm/transport.h"
#include "minisgl/error.h"

namespace minisgl::testing_util {

/// Where messages lie until they are fetched.
class LocalMail {
 public:
  explicit LocalMail(int size) : size_(size) {}
  int size() const { return size_; }

  void put(int from, int to, std::span<const std::byte> data) {
    {
      const std::lock_guard lock(mutex_);
      boxes_[{from, to}].emplace_back(data.begin(), data.end());
    }
    changed_.notify_all();
  }

  void take(int from, int to, std::span<std::byte> data) {
    std::unique_lock lock(mutex_);
    std::deque<Message>& box = boxes_[{from, to}];
    constexpr auto kTimeout = std::chrono::seconds(60);
    const bool came =
        changed_.wait_for(lock, kTimeout, [&] { return !box.empty() || closed_[from]; });
    if (!came || box.empty())
      throw Error("rank " + std::to_string(from) + (came ? " is gone" : " does not answer"));
    if (box.front().size() != data.size())
      throw Error("rank " + std::to_string(to) + " expects " + std::to_string(data.size()) +
                  " bytes of rank " + std::to_string(from) + ", which sent " +
                  std::to_string(box.front().size()));
    std::memcpy(data.data(), box.front().data(), data.size());
    box.pop_front();
  }

  /// What waits for `rank` fails from now on.
  void close(int rank) {
    {
      const std::lock_guard lock(mutex_);
      closed_[rank] = true;
    }
    changed_.notify_all();
  }

 private:
  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::deque<Message>> boxes_;
  std::map<int, bool> closed_;
};

class LocalTransport final : public Transport {
 public:
  LocalTransport(int rank, std::shared_ptr<LocalMail> mail)
      : Transport(rank, mail->size()), mail_(std::move(mail)) {}
  ~LocalTransport() override { mail_->close(rank()); }

  void exchange(std::span<const Send> sends, std::span<const Receive> receives) override {
    for (const Send& send : sends) mail_->put(rank(), send.to, send.data);
    for (const Receive& receive : receives) mail_->take(receive.from, rank(), receive.data);
  }

 private:
  std::shared_ptr<LocalMail> mail_;
};

/// One rank's connections, on a thread of this process.
struct LocalRank {
  LocalRank(int rank, const std::shared_ptr<LocalMail>& messages,
            const std::shared_ptr<LocalMail>& sums)
      : host(std::make_unique<LocalTransport>(rank, messages)),
        tensors(std::make_unique<LocalTransport>(rank, sums)) {}
  RankLinks links(int size) { return {.host = &host, .tensors = &tensors, .sharing_host = size}; }
  HostGroup host;
  CpuCommunicator tensors;
};

/// Calls body(rank, links) for each of `size` ranks, each on a thread of its own; rethrows the
/// first exception (of the lowest rank) when all have ended.
inline void run_ranks(int size, const std::function<void(int, LocalRank&)>& body) {
  const auto messages = std::make_shared<LocalMail>(size);
  const auto sums = std::make_shared<LocalMail>(size);
  std::vector<std::exception_ptr> faults(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      LocalRank local(rank, messages, sums);
      try {
        body(rank, local);
      } catch (...) {
        faults[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& fault : faults)
    if (fault != nullptr) std::rethrow_exception(fault);
}

}  // namespace minisgl::testing_util
