#include "server/tls.h"

#include <fmt/format.h>
#include <openssl/ssl.h>

#include <cstring>
#include <fstream>

#include "minisgl/error.h"

namespace minisgl {
namespace {

namespace ssl = boost::asio::ssl;

void check_readable(const std::string& file, const char* flag) {
  const std::ifstream stream(file);
  if (!stream) throw Error(fmt::format("cannot read {} {}: {}", flag, file, std::strerror(errno)));
}

/// Clients that also speak HTTP/2 are told that we do not.
int choose_protocol(SSL*, const unsigned char** chosen, unsigned char* chosen_size,
                    const unsigned char* offered, unsigned int offered_size, void*) {
  constexpr unsigned char kProtocols[] = "\x08http/1.1";
  unsigned char* found = nullptr;
  if (SSL_select_next_proto(&found, chosen_size, kProtocols, sizeof kProtocols - 1, offered,
                            offered_size) != OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_NOACK;
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

std::unique_ptr<ssl::context> make_tls_context(const std::string& certificate_file,
                                               const std::string& key_file) {
  check_readable(certificate_file, "--tls-cert");
  check_readable(key_file, "--tls-key");
  auto context = std::make_unique<ssl::context>(ssl::context::tls_server);
  // A client that renegotiates costs the server ten times what it costs itself.
  context->set_options(ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1 | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_alpn_select_cb(context->native_handle(), choose_protocol, nullptr);
  // Idle connections then hold no buffers: 32 KiB each.
  SSL_CTX_set_mode(context->native_handle(), SSL_MODE_RELEASE_BUFFERS);
  boost::system::error_code error;
  context->use_certificate_chain_file(certificate_file, error);
  if (error)
    throw Error(fmt::format("--tls-cert {} holds no certificate in PEM form: {}", certificate_file,
                            error.message()));
  context->use_private_key_file(key_file, ssl::context::pem, error);
  if (error)
    throw Error(fmt::format("--tls-key {} holds no private key of {} in PEM form: {}", key_file,
                            certificate_file, error.message()));
  return context;
}

}  // namespace minisgl
