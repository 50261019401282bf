#include "comm/gloo/module.h"

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "minisgl/error.h"

namespace minisgl {
namespace {

/// gloo's board of addresses, over the rendezvous: what one rank pins up, all see. gloo pins on all
/// ranks in one order, so that every pin can be an exchange.
class Board final : public gloo::rendezvous::Store {
 public:
  explicit Board(Rendezvous& rendezvous) : rendezvous_(rendezvous) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    Message message(key.size() + 1 + data.size());
    std::memcpy(message.data(), key.c_str(), key.size() + 1);
    if (!data.empty()) std::memcpy(message.data() + key.size() + 1, data.data(), data.size());
    for (const Message& pinned : rendezvous_.exchange(message)) {
      const auto* text = reinterpret_cast<const char*>(pinned.data());
      const std::string name(text, ::strnlen(text, pinned.size()));
      if (name.size() + 1 > pinned.size()) throw Error("a rank's address cannot be read");
      entries_[name] = {text + name.size() + 1, text + pinned.size()};
    }
  }
  std::vector<char> get(const std::string& key) override {
    wait({key});
    return entries_[key];
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys)
      if (!entries_.contains(key)) throw Error("gloo looks for an address that no rank has sent");
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);
  }

 private:
  Rendezvous& rendezvous_;
  std::map<std::string, std::vector<char>> entries_;
};

class GlooTransport final : public Transport {
 public:
  GlooTransport(Rendezvous& rendezvous, std::chrono::milliseconds timeout)
      : Transport(rendezvous.rank(), rendezvous.size()),
        timeout_(timeout),
        fault_(rendezvous.options().fault) {
    gloo::transport::tcp::attr where;
    where.hostname = rendezvous.local_address();
    std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(where);
    context_ = std::make_shared<gloo::rendezvous::Context>(rank(), size());
    context_->setTimeout(timeout);
    Board board(rendezvous);
    try {
      context_->connectFullMesh(board, device);
    } catch (const gloo::Exception& e) {
      explain("the ranks cannot be connected with each other", e.what());
    }
  }

  void exchange(std::span<const Send> sends, std::span<const Receive> receives) override {
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
        incoming[i]->waitRecv(timeout_);
      }
      for (std::size_t i = 0; i < outgoing.size(); ++i) {
        other = sends[i].to;
        outgoing[i]->waitSend(timeout_);
      }
    } catch (const std::exception& e) {
      const std::string name = "rank " + std::to_string(other);
      if (std::chrono::steady_clock::now() - begin >= timeout_)
        explain(name + " did not answer within " + std::to_string(timeout_.count() / 1000) +
                    " s (--distributed-timeout)",
                e.what());
      explain("the connection to " + name + " broke", e.what());
    }
  }

 private:
  /// Throws what is known of a fault: what whoever watches the processes says, if anything.
  [[noreturn]] void explain(const std::string& what, const std::string& gloo_says) const {
    // A process's connections break a moment before it is known how it ended.
    constexpr auto kPause = std::chrono::milliseconds(10);
    for (int attempt = 0; fault_ && attempt < 30; ++attempt) {
      if (const std::string fault = fault_(); !fault.empty()) throw Error(fault);
      std::this_thread::sleep_for(kPause);
    }
    // gloo's message begins with a place in its source: "[.../pair.cc:598] ".
    const std::size_t place = gloo_says.find("] ");
    throw Error(what + ": " +
                (place == std::string::npos ? gloo_says : gloo_says.substr(place + 2)));
  }

  std::chrono::milliseconds timeout_;
  std::function<std::string()> fault_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::uint64_t slot_ = 0;
};

}  // namespace
}  // namespace minisgl

extern "C" __attribute__((visibility("default"))) minisgl::Transport* minisgl_connect_gloo(
    minisgl::Rendezvous& rendezvous, std::chrono::milliseconds timeout) {
  return new minisgl::GlooTransport(rendezvous, timeout);
}
