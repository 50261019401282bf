// Bytes from rank to rank, between their hosts' memories.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace minisgl {

/// A connection of each rank with each other. Used by one thread at a time.
class Transport {
 public:
  struct Send {
    int to = 0;
    std::span<const std::byte> data;
  };
  struct Receive {
    int from = 0;
    std::span<std::byte> data;
  };

  Transport(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Does all of it at once, and returns when it is done. What one rank sends to another must be
  /// what that one receives in its exchange of the same number, counted from the first; at most
  /// one message a call for each receiver and each sender; none is empty. Throws Error naming a
  /// rank that is gone or does not answer in time: the transport is then of no use any more.
  virtual void exchange(std::span<const Send> sends, std::span<const Receive> receives) = 0;

 private:
  int rank_;
  int size_;
};

}  // namespace minisgl
