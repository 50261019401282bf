// Graphs of a GPU.

#pragma once

#include <memory>

#include "engine/graph_runner.h"
#include "tensor/cuda/build.h"

namespace minisgl {

/// Records what the forward pass enqueues, by stream capture. The context's stream must be one of a
/// GPU, and the pass must have run once before: what is done only the first time (a product that is
/// measured, a library that is opened) cannot be recorded. Memory comes from the context's scratch
/// arena, which all graphs share. Throws Error if something cannot be recorded.
std::unique_ptr<Graph> record_cuda_graph(GraphRecording recording);

}  // namespace minisgl
