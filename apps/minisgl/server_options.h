// The flags of serve that are about HTTP.

#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "minisgl/server.h"

namespace minisgl::app {

/// What the flags say; server_options() makes options of it.
struct ServerFlags {
  ServerOptions server;
  std::string log_format = "text";
  std::string api_key_file;
  int num_workers = 0;  ///< 0: the server's own default
};

void add_server_flags(CLI::App& app, ServerFlags& flags);

/// Reads the file of keys. Throws Error when it cannot be read, or holds none.
ServerOptions server_options(const ServerFlags& flags);

}  // namespace minisgl::app
