// A client's bytes, with or without TLS.

#pragma once

#include <boost/asio/async_result.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace minisgl {

/// A TCP socket, or TLS over one. Has what Asio asks of an AsyncReadStream and AsyncWriteStream:
/// one read and one write may be outstanding. Not thread-safe.
class ByteStream {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using executor_type = Socket::executor_type;  // NOLINT: Asio looks for this name

  /// `tls`: null for plain TCP; must outlive the stream otherwise.
  ByteStream(Socket socket, boost::asio::ssl::context* tls) : socket_(std::move(socket)) {
    if (tls != nullptr) tls_ = std::make_unique<Tls>(socket_, *tls);
  }
  ByteStream(const ByteStream&) = delete;  // tls_ refers to socket_
  ByteStream& operator=(const ByteStream&) = delete;

  executor_type get_executor() { return socket_.get_executor(); }
  Socket& socket() { return socket_; }
  /// "192.0.2.7", also if an IPv6 socket has an IPv4 peer; "?" when it has gone.
  std::string peer_address() const {
    namespace ip = boost::asio::ip;
    boost::system::error_code error;
    const ip::address address = socket_.remote_endpoint(error).address();
    if (error) return "?";
    if (address.is_v6() && address.to_v6().is_v4_mapped())
      return ip::make_address_v4(ip::v4_mapped, address.to_v6()).to_string();
    return address.to_string();
  }
  bool is_tls() const { return tls_ != nullptr; }

  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    auto begin = [this](auto handler, const Buffers& into) {
      if (tls_ != nullptr)
        tls_->async_read_some(into, std::move(handler));
      else
        socket_.async_read_some(into, std::move(handler));
    };
    return boost::asio::async_initiate<Token, void(boost::system::error_code, std::size_t)>(
        std::move(begin), token, buffers);
  }

  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    auto begin = [this](auto handler, const Buffers& from) {
      if (tls_ != nullptr)
        tls_->async_write_some(from, std::move(handler));
      else
        socket_.async_write_some(from, std::move(handler));
    };
    return boost::asio::async_initiate<Token, void(boost::system::error_code, std::size_t)>(
        std::move(begin), token, buffers);
  }

  /// For TLS only.
  template <class Token>
  auto async_handshake(Token&& token) {
    return tls_->async_handshake(boost::asio::ssl::stream_base::server, std::forward<Token>(token));
  }
  /// Says goodbye and waits for the peer's answer. For TLS only.
  template <class Token>
  auto async_shutdown(Token&& token) {
    return tls_->async_shutdown(std::forward<Token>(token));
  }

 private:
  using Tls = boost::asio::ssl::stream<Socket&>;

  Socket socket_;
  std::unique_ptr<Tls> tls_;
};

}  // namespace minisgl
