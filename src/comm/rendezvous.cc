#include "comm/rendezvous.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include "minisgl/error.h"
#include "minisgl/version.h"

namespace minisgl {
namespace {

/// The first bytes of a connection. Ranks of another version would understand one another wrongly.
struct Hello {
  char magic[16] = {};
  char version[16] = {};
  std::int32_t rank = 0;
  std::int32_t size = 0;
};
constexpr std::string_view kMagic = "minisgl ranks 1";

Hello make_hello(int rank, int size) {
  Hello hello;
  hello.rank = rank;
  hello.size = size;
  const auto put = [](std::string_view text, auto& field) {
    std::copy_n(text.begin(), std::min(text.size(), sizeof(field) - 1), field);
  };
  put(kMagic, hello.magic);
  put(kVersion, hello.version);
  return hello;
}

/// Why rank 0 of `size` ranks, of which it has `peers`, cannot take this one; "" if it can.
std::string refusal(const Hello& hello, int size, const std::vector<FileDescriptor>& peers) {
  const Hello ours = make_hello(0, size);
  if (std::memcmp(hello.version, ours.version, sizeof(ours.version)) != 0)
    return "rank 0 is minisgl " + std::string(ours.version) + ", another version";
  if (hello.size != size)
    return "rank 0 has a group of " + std::to_string(size) + " ranks, not " +
           std::to_string(hello.size);
  if (hello.rank <= 0 || hello.rank >= size)
    return "there is no rank " + std::to_string(hello.rank) + " in a group of " +
           std::to_string(size);
  if (peers[static_cast<std::size_t>(hello.rank)].valid())
    return "there is a rank " + std::to_string(hello.rank) + " already";
  return "";
}

struct Addresses {
  explicit Addresses(const std::string& host, std::uint16_t port, bool passive) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = passive ? AI_PASSIVE : 0;
    const int status = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &first);
    if (status != 0)
      throw Error("the address of rank 0, \"" + host +
                  "\", is not known: " + ::gai_strerror(status));
  }
  ~Addresses() { ::freeaddrinfo(first); }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;
  addrinfo* first = nullptr;
};

void prepare(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

std::string own_address(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  char text[NI_MAXHOST] = {};
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), length, text, sizeof(text), nullptr, 0,
                    NI_NUMERICHOST) != 0)
    throw Error(std::string("a connection has no address: ") + std::strerror(errno));
  const std::string mapped = "::ffff:";  // IPv4 at a socket of IPv6
  std::string result = text;
  return result.starts_with(mapped) ? result.substr(mapped.size()) : result;
}

std::string rank_name(int rank) { return "rank " + std::to_string(rank); }

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileDescriptor listen_at(const std::string& address, std::uint16_t port) {
  const Addresses found(address, port, /*passive=*/true);
  std::string why;
  for (const addrinfo* at = found.first; at != nullptr; at = at->ai_next) {
    FileDescriptor fd(::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol));
    const int on = 1;
    if (fd.valid()) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (fd.valid() && ::bind(fd.get(), at->ai_addr, at->ai_addrlen) == 0 &&
        ::listen(fd.get(), SOMAXCONN) == 0)
      return fd;
    why = std::strerror(errno);
  }
  throw Error("rank 0 cannot listen at " + address + " port " + std::to_string(port) + ": " + why);
}

std::uint16_t port_of(const FileDescriptor& listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    throw Error(std::string("a listener has no port: ") + std::strerror(errno));
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

Rendezvous::Rendezvous(RendezvousOptions options, FileDescriptor listener)
    : options_(std::move(options)) {
  if (rank() != 0) {
    connect_to_first();
    return;
  }
  if (!listener.valid()) listener = listen_at(options_.address, options_.port);
  ::fcntl(listener.get(), F_SETFL, ::fcntl(listener.get(), F_GETFL) | O_NONBLOCK);
  accept_all(listener);
}

void Rendezvous::accept_all(const FileDescriptor& listener) {
  peers_.resize(static_cast<std::size_t>(size()));
  const auto missing = [&] {
    std::string list;
    for (int rank = 1; rank < size(); ++rank)
      if (!peers_[static_cast<std::size_t>(rank)].valid())
        list += (list.empty() ? "" : ", ") + std::to_string(rank);
    return list;
  };
  const Clock::time_point end = deadline();
  while (!missing().empty()) {
    wait(listener.get(), POLLIN, end, "ranks that have not come: " + missing());
    FileDescriptor fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd.valid()) continue;
    prepare(fd.get());
    try {
      Hello hello;
      read(fd.get(), &hello, sizeof(hello), "a caller");
      if (std::memcmp(hello.magic, make_hello(0, 0).magic, sizeof(hello.magic)) != 0)
        continue;  // somebody else
      const std::string why = refusal(hello, size(), peers_);
      write_message(fd.get(),
                    {reinterpret_cast<const std::byte*>(why.data()),
                     reinterpret_cast<const std::byte*>(why.data()) + why.size()},
                    "a caller");
      if (!why.empty()) continue;
      local_address_ = own_address(fd.get());
      peers_[static_cast<std::size_t>(hello.rank)] = std::move(fd);
    } catch (const Error&) {
      if (options_.fault && !options_.fault().empty()) throw;
      continue;  // a caller that went away
    }
  }
}

void Rendezvous::connect_to_first() {
  const Clock::time_point end = deadline();
  const std::string there =
      "rank 0 at " + options_.address + " port " + std::to_string(options_.port);
  const Addresses found(options_.address, options_.port, /*passive=*/false);
  constexpr auto kPause = std::chrono::milliseconds(50);
  std::string why = "no address";
  for (const addrinfo* at = found.first;; at = at->ai_next) {
    if (at == nullptr) {
      if (Clock::now() >= end)
        throw Error(std::string(there).append(" does not answer: ").append(why));
      std::this_thread::sleep_for(kPause);  // it may start later than we
      at = found.first;
    }
    FileDescriptor fd(::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol));
    if (!fd.valid()) continue;
    prepare(fd.get());
    if (::connect(fd.get(), at->ai_addr, at->ai_addrlen) != 0 && errno != EINPROGRESS) {
      why = std::strerror(errno);
      continue;
    }
    wait(fd.get(), POLLOUT, end, there + " does not answer");
    int error = 0;
    socklen_t length = sizeof(error);
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) {
      why = std::strerror(error);
      continue;
    }
    const Hello hello = make_hello(rank(), size());
    write(fd.get(), &hello, sizeof(hello), there);
    const Message answer = read_message(fd.get(), there);
    if (!answer.empty())
      throw Error(there + " refused rank " + std::to_string(rank()) + ": " +
                  std::string(reinterpret_cast<const char*>(answer.data()), answer.size()));
    local_address_ = own_address(fd.get());
    peers_.push_back(std::move(fd));
    return;
  }
}

std::vector<Message> Rendezvous::exchange(const Message& mine) {
  std::vector<Message> all(static_cast<std::size_t>(size()));
  if (rank() == 0) {
    all[0] = mine;
    for (std::size_t i = 1; i < all.size(); ++i)
      all[i] = read_message(peers_[i].get(), rank_name(static_cast<int>(i)));
    for (std::size_t i = 1; i < all.size(); ++i)
      for (const Message& message : all)
        write_message(peers_[i].get(), message, rank_name(static_cast<int>(i)));
    return all;
  }
  write_message(peers_[0].get(), mine, rank_name(0));
  for (Message& message : all) message = read_message(peers_[0].get(), rank_name(0));
  return all;
}

std::string Rendezvous::fault() const {
  if (options_.fault)
    if (std::string known = options_.fault(); !known.empty()) return known;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    pollfd entry{.fd = peers_[i].get(), .events = POLLRDHUP, .revents = 0};
    if (!peers_[i].valid() || ::poll(&entry, 1, 0) <= 0) continue;
    return rank_name(static_cast<int>(i)) + " is gone: its connection has ended";
  }
  return "";
}

/// In slices, so that a fault which somebody else has found ends it.
void Rendezvous::wait(int fd, short events, Clock::time_point deadline,
                      const std::string& what) const {
  constexpr int kSliceMs = 50;
  for (;;) {
    pollfd entry{.fd = fd, .events = events, .revents = 0};
    if (::poll(&entry, 1, kSliceMs) > 0) return;
    if (options_.fault)
      if (const std::string fault = options_.fault(); !fault.empty()) throw Error(fault);
    if (Clock::now() >= deadline)
      throw Error(what + " (after " + std::to_string(options_.timeout.count() / 1000) +
                  " s, --distributed-timeout)");
  }
}

/// Throws `what`, or what is known of the fault by then: a process's connections break a moment
/// before it is known how it ended.
void Rendezvous::fail(const std::string& what) const {
  constexpr auto kPause = std::chrono::milliseconds(10);
  for (int attempt = 0; options_.fault && attempt < 30; ++attempt) {
    if (const std::string fault = options_.fault(); !fault.empty()) throw Error(fault);
    std::this_thread::sleep_for(kPause);
  }
  throw Error(what);
}

void Rendezvous::write(int fd, const void* data, std::size_t bytes, const std::string& peer) const {
  const auto* at = static_cast<const char*>(data);
  const Clock::time_point end = deadline();
  while (bytes > 0) {
    const ssize_t done = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (done > 0) {
      at += done;
      bytes -= static_cast<std::size_t>(done);
    } else if (errno == EAGAIN || errno == EINTR) {
      wait(fd, POLLOUT, end, peer + " does not listen");
    } else {
      fail(peer + " is gone: " + std::strerror(errno));
    }
  }
}

void Rendezvous::read(int fd, void* data, std::size_t bytes, const std::string& peer) const {
  auto* at = static_cast<char*>(data);
  const Clock::time_point end = deadline();
  while (bytes > 0) {
    const ssize_t done = ::recv(fd, at, bytes, 0);
    if (done > 0) {
      at += done;
      bytes -= static_cast<std::size_t>(done);
    } else if (done < 0 && (errno == EAGAIN || errno == EINTR)) {
      wait(fd, POLLIN, end, peer + " does not answer");
    } else {
      fail(peer + " is gone: " + (done == 0 ? "it has ended" : std::strerror(errno)));
    }
  }
}

void Rendezvous::write_message(int fd, const Message& message, const std::string& peer) const {
  const std::uint64_t bytes = message.size();
  write(fd, &bytes, sizeof(bytes), peer);
  write(fd, message.data(), message.size(), peer);
}

Message Rendezvous::read_message(int fd, const std::string& peer) const {
  std::uint64_t bytes = 0;
  read(fd, &bytes, sizeof(bytes), peer);
  constexpr std::uint64_t kMost = 1 << 20;
  if (bytes > kMost) throw Error(peer + " sent what no rank sends");
  Message message(static_cast<std::size_t>(bytes));
  read(fd, message.data(), message.size(), peer);
  return message;
}

}  // namespace minisgl
