#include "comm/gloo/module.h"

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <signal.h>  // NOLINT: pthread_sigmask is not in <csignal>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "minisgl/error.h"

namespace minisgl {
namespace {

/// For the calling thread, and threads that it makes meanwhile: a connection whose other end has
/// gone is an error to handle, and no SIGPIPE, which would end the process before anybody is told.
/// gloo writes to its connections without asking for that.
class NoPipeSignals {
 public:
  NoPipeSignals() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignals() {
    if (sigismember(&before_, SIGPIPE) == 1) return;
    constexpr timespec kNoTime{};
    while (!was_pending_ && sigtimedwait(&pipe_, nullptr, &kNoTime) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoPipeSignals(const NoPipeSignals&) = delete;
  NoPipeSignals& operator=(const NoPipeSignals&) = delete;

 private:
  sigset_t pipe_{}, before_{};
  bool was_pending_ = false;
};

class GlooTransport final : public Transport {
 public:
  GlooTransport(Rendezvous& rendezvous, std::chrono::milliseconds timeout)
      : Transport(rendezvous.rank(), rendezvous.size()),
        timeout_(timeout),
        rendezvous_(rendezvous) {
    const NoPipeSignals quiet;  // the device's thread writes too
    gloo::transport::tcp::attr where;
    where.hostname = rendezvous.local_address();
    const std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(where);
    context_ = device->createContext(rank(), size());
    context_->setTimeout(timeout);
    connect(exchange_addresses());
    watch_ = std::jthread([this](const std::stop_token& stop) { watch_waits(stop); });
  }

  void exchange(std::span<const Send> sends, std::span<const Receive> receives) override {
    const NoPipeSignals quiet;
    const std::uint64_t slot = slot_++;
    std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> incoming, outgoing;
    int other = -1;
    const auto begin = std::chrono::steady_clock::now();
    try {
      for (const Receive& receive : receives) {
        other = receive.from;
        incoming.push_back(context_->createUnboundBuffer(receive.data.data(), receive.data.size()));
        incoming.back()->recv(receive.from, slot);
      }
      for (const Send& send : sends) {
        other = send.to;
        outgoing.push_back(context_->createUnboundBuffer(const_cast<std::byte*>(send.data.data()),
                                                         send.data.size()));
        outgoing.back()->send(send.to, slot);
      }
      for (std::size_t i = 0; i < incoming.size(); ++i) {
        other = receives[i].from;
        wait(*incoming[i], /*sends=*/false);
      }
      for (std::size_t i = 0; i < outgoing.size(); ++i) {
        other = sends[i].to;
        wait(*outgoing[i], /*sends=*/true);
      }
    } catch (const std::exception& e) {
      if (std::chrono::steady_clock::now() - begin >= timeout_)
        explain(no_answer(other), e.what(), /*attempts=*/1);
      explain("the connection to " + rank_name(other) + " broke", e.what());
    }
  }

 private:
  /// Where each rank waits for this one.
  std::vector<std::vector<char>> exchange_addresses() {
    // What a rank sends: the addresses at which it waits for each other one, all of one length.
    Message mine;
    std::size_t length = 0;
    for (int other = 0; other < size(); ++other) {
      std::vector<char> address;
      if (other != rank()) address = context_->createPair(other)->address().bytes();
      length = std::max(length, address.size());
      const auto* bytes = reinterpret_cast<const std::byte*>(address.data());
      mine.insert(mine.end(), bytes, bytes + address.size());
    }
    const std::vector<Message> all = rendezvous_.exchange(mine);
    std::vector<std::vector<char>> addresses(all.size());
    for (int other = 0; other < size(); ++other) {
      if (other == rank()) continue;
      const Message& theirs = all[static_cast<std::size_t>(other)];
      if (theirs.size() != mine.size()) throw Error("a rank's address cannot be read");
      const auto at = static_cast<std::size_t>(rank() < other ? rank() : rank() - 1) * length;
      const auto* text = reinterpret_cast<const char*>(theirs.data()) + at;
      addresses[static_cast<std::size_t>(other)] = {text, text + length};
    }
    return addresses;
  }

  /// gloo waits for a rank that went away before it connected, and for five times the timeout:
  /// another thread ends that wait.
  void connect(const std::vector<std::vector<char>>& addresses) {
    std::atomic<bool> given_up{false};
    std::string fault;  // the watch's until it has ended
    std::jthread watch([&](const std::stop_token& stop) {
      constexpr auto kPoll = std::chrono::milliseconds(10);
      const auto end = std::chrono::steady_clock::now() + timeout_;
      while (!stop.stop_requested()) {
        std::this_thread::sleep_for(kPoll);
        if (fault.empty()) fault = rendezvous_.fault();
        if (fault.empty() && std::chrono::steady_clock::now() < end) continue;
        given_up = true;
        for (int other = 0; other < size(); ++other)
          if (other != rank()) context_->getPair(other)->close();  // connect() returns
      }
    });
    int connecting = 0;
    std::string why;
    try {
      for (int other = 0; other < size() && !given_up; ++other) {
        if (other == rank()) continue;
        connecting = other;
        context_->getPair(other)->connect(addresses[static_cast<std::size_t>(other)]);
      }
    } catch (const std::exception& e) {  // gloo has several kinds
      why = e.what();
    }
    watch.request_stop();
    watch.join();
    if (!fault.empty()) explain(fault, "");
    if (given_up) explain(no_answer(connecting), why, /*attempts=*/1);
    if (!why.empty()) explain("the connection to " + rank_name(connecting) + " failed", why);
  }

  static std::string rank_name(int rank) { return "rank " + std::to_string(rank); }

  /// Throws what it waits for fails of.
  void wait(gloo::transport::UnboundBuffer& buffer, bool sends) {
    {
      const std::lock_guard lock(mutex_);
      waiting_ = {.buffer = &buffer, .sends = sends};
      ++num_waits_;
    }
    struct Waited {
      ~Waited() {
        const std::lock_guard lock(transport->mutex_);
        transport->waiting_ = {};
      }
      GlooTransport* transport;
    } const waited{this};
    const bool done = sends ? buffer.waitSend(timeout_) : buffer.waitRecv(timeout_);
    if (!done) throw Error(rendezvous_.fault());
  }

  /// gloo tells those who wait that a connection broke, but not when their message is on its way:
  /// partly received, or written to a connection that was gone already. They would wait for as long
  /// as a rank that hangs may take, so this ends the waits that go on when a rank is known to have
  /// failed.
  void watch_waits(const std::stop_token& stop) {
    using Clock = std::chrono::steady_clock;
    constexpr auto kPoll = std::chrono::milliseconds(50);
    // Ranks end one after the other: a connection that has ended is no fault of a wait which the
    // last messages of that rank are about to end.
    constexpr auto kLastMessages = std::chrono::milliseconds(500);
    const std::function<std::string()>& known = rendezvous_.options().fault;
    std::uint64_t watched = 0;
    Clock::time_point since;
    for (; !stop.stop_requested(); std::this_thread::sleep_for(kPoll)) {
      {
        const std::lock_guard lock(mutex_);
        if (waiting_.buffer == nullptr || watched != num_waits_) since = Clock::now();
        watched = num_waits_;
        if (waiting_.buffer == nullptr) continue;
      }
      if (rendezvous_.fault().empty()) {
        since = Clock::now();
        continue;
      }
      if (Clock::now() - since < kLastMessages && (!known || known().empty())) continue;
      const std::lock_guard lock(mutex_);
      if (watched != num_waits_ || waiting_.buffer == nullptr) continue;
      if (waiting_.sends)
        waiting_.buffer->abortWaitSend();
      else
        waiting_.buffer->abortWaitRecv();
    }
  }

  std::string no_answer(int other) const {
    return rank_name(other) + " did not answer within " + std::to_string(timeout_.count() / 1000) +
           " s (--distributed-timeout)";
  }

  /// Throws what is known of a fault: what whoever watches the processes says, if anything.
  [[noreturn]] void explain(const std::string& what, const std::string& gloo_says,
                            int attempts = 30) const {
    // A process's connections break a moment before it is known how it ended.
    constexpr auto kPause = std::chrono::milliseconds(10);
    const std::function<std::string()>& fault = rendezvous_.options().fault;
    for (int attempt = 0; fault && attempt < attempts; ++attempt) {
      if (const std::string text = fault(); !text.empty()) throw Error(text);
      std::this_thread::sleep_for(kPause);
    }
    if (gloo_says.empty()) throw Error(what);
    // gloo's message begins with a place in its source: "[.../pair.cc:598] ".
    const std::size_t place = gloo_says.find("] ");
    throw Error(what + ": " +
                (place == std::string::npos ? gloo_says : gloo_says.substr(place + 2)));
  }

  std::chrono::milliseconds timeout_;
  Rendezvous& rendezvous_;
  std::shared_ptr<gloo::transport::Context> context_;
  std::uint64_t slot_ = 0;

  /// What the thread in exchange() waits for.
  struct Waiting {
    gloo::transport::UnboundBuffer* buffer = nullptr;  ///< null: nothing
    bool sends = false;
  };
  std::mutex mutex_;  // guards the next two
  Waiting waiting_;
  std::uint64_t num_waits_ = 0;
  std::jthread watch_;  // the last: it ends before what it looks at
};

}  // namespace
}  // namespace minisgl

extern "C" __attribute__((visibility("default"))) minisgl::Transport* minisgl_connect_gloo(
    minisgl::Rendezvous& rendezvous, std::chrono::milliseconds timeout) {
  return new minisgl::GlooTransport(rendezvous, timeout);
}
