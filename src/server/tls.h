// The server's certificate.

#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>

namespace minisgl {

/// A context for TLS 1.2 and 1.3 with a certificate (PEM, with its chain) and its key (PEM). Throws
/// Error naming the file and what is wrong with it.
std::unique_ptr<boost::asio::ssl::context> make_tls_context(const std::string& certificate_file,
                                                            const std::string& key_file);

}  // namespace minisgl
