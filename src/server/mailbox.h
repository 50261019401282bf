// How other threads wake connections.

#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>
#include <mutex>
#include <vector>

namespace minisgl {

class Connection;

/// Collects the connections that have something to do and wakes the I/O thread once for all of
/// them: a step of 256 answers must not cost 256 wake-ups.
class Mailbox {
 public:
  explicit Mailbox(boost::asio::io_context& io) : io_(io) {}

  /// Calls connection->on_update() on the I/O thread, soon. Any thread.
  void push(std::weak_ptr<Connection> connection);

 private:
  void deliver();

  boost::asio::io_context& io_;
  std::mutex mutex_;  // guards waiting_
  std::vector<std::weak_ptr<Connection>> waiting_;
  std::vector<std::weak_ptr<Connection>> delivering_;  // I/O thread; kept for its memory
};

}  // namespace minisgl
