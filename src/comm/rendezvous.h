// How the ranks of a group find each other: over TCP, at an address that all of them were told.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/host_group.h"

namespace minisgl {

/// An open file descriptor; closed with its scope.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// Listens at `address`:`port`; 0: any free port. Throws Error if that cannot be done.
FileDescriptor listen_at(const std::string& address, std::uint16_t port);
/// The port that a socket listens at.
std::uint16_t port_of(const FileDescriptor& listener);

struct RendezvousOptions {
  int rank = 0;
  int size = 1;
  std::string address = "127.0.0.1";  ///< where rank 0 listens: a name or a number
  std::uint16_t port = 0;
  std::chrono::milliseconds timeout{60'000};
  /// Asked while waiting; what it returns, unless empty, ends the wait as an Error.
  std::function<std::string()> fault = {};
};

/// A star: rank 0 in the middle. All that is exchanged before there is a real transport.
class Rendezvous {
 public:
  /// Waits until all ranks are there. Rank 0 takes `listener`, or listens itself when there is
  /// none; the others try to connect until time is over. Throws Error naming the ranks that did not
  /// come, or why rank 0 refused this one.
  explicit Rendezvous(RendezvousOptions options, FileDescriptor listener = {});

  /// The messages of all ranks, in their order. All ranks call it equally often.
  std::vector<Message> exchange(const Message& mine);

  /// Why a rank is known to have failed: what options().fault says, or whose connection has ended;
  /// rank 0 sees all ranks, the others rank 0. "" while there is nothing. Any thread.
  std::string fault() const;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const RendezvousOptions& options() const { return options_; }
  /// The number of the network address by which this rank reaches rank 0, or is reached by others.
  const std::string& local_address() const { return local_address_; }

 private:
  using Clock = std::chrono::steady_clock;
  void accept_all(const FileDescriptor& listener);
  void connect_to_first();
  void write(int fd, const void* data, std::size_t bytes, const std::string& peer) const;
  void read(int fd, void* data, std::size_t bytes, const std::string& peer) const;
  void write_message(int fd, const Message& message, const std::string& peer) const;
  Message read_message(int fd, const std::string& peer) const;
  void wait(int fd, short events, Clock::time_point deadline, const std::string& what) const;
  [[noreturn]] void fail(const std::string& what) const;
  Clock::time_point deadline() const { return Clock::now() + options_.timeout; }

  RendezvousOptions options_;
  std::string local_address_;
  std::vector<FileDescriptor> peers_;  // rank 0: of each rank; the others: rank 0 alone
};

}  // namespace minisgl
