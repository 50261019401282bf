// Opens the module that holds gloo.

#pragma once

#include <chrono>
#include <memory>

#include "comm/rendezvous.h"
#include "comm/transport.h"

namespace minisgl {

/// A transport over TCP, by gloo; `timeout` is that of connecting and of every exchange. All ranks
/// of `rendezvous`, which outlives it, call it equally often. Throws Error naming a rank that goes
/// or does not answer, or if the module is not there (a build without gloo), naming where it was
/// looked for: beside the program, in lib/ beside its folder and in the folder above.
std::unique_ptr<Transport> connect_with_gloo(Rendezvous& rendezvous,
                                             std::chrono::milliseconds timeout);

}  // namespace minisgl
