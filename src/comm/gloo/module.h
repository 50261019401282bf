// The border of the module that holds gloo: a library which is opened when there are several ranks,
// so that a program with one needs no gloo.

#pragma once

#include <chrono>

#include "comm/rendezvous.h"
#include "comm/transport.h"

namespace minisgl {

/// Connects all ranks of `rendezvous`, each with each. `timeout`: of connecting, and of every
/// exchange. The caller owns the result, and keeps `rendezvous` as long. Throws Error.
using ConnectGloo = Transport*(Rendezvous& rendezvous, std::chrono::milliseconds timeout);
constexpr const char* kConnectGlooSymbol = "minisgl_connect_gloo";
constexpr const char* kGlooModuleName = "minisgl_gloo.so";

}  // namespace minisgl
