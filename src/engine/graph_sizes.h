// Which batch sizes get a graph.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/device.h"

namespace minisgl {

struct GraphSizesInput {
  std::span<const std::int32_t> listed = {};  ///< if not empty: these, whatever else is said
  std::int32_t max_batch_size = -1;           ///< < 0: by the free memory; 0: no graphs
  std::int32_t max_rows = 0;                  ///< requests that run at once
  Device device;
  std::int64_t free_bytes = 0;  ///< of the device, before anything was allocated for the engine
};

/// Numbers of rows, ascending, each once; empty: no graphs.
///
/// 1, 2, 4, then the multiples of 8 up to the maximum, then the maximum itself where it is none of
/// them. Small batches are common in every size, so the steps between them are small; in a large
/// one up to seven rows of padding are a small part. A maximum that was not given is 256 with more
/// than 80 GiB of free memory, else 160; on a CPU there are no graphs then, since there is no
/// launch that they would save. No maximum is larger than max_rows, which no batch exceeds.
///
/// Throws Error naming the entry if a listed size is not positive.
/// Source: mini-sglang engine/graph.py _determine_cuda_graph_bs, whose list lacks a maximum that is
/// no multiple of 8 and has 1, 2, 4 below any.
std::vector<std::int32_t> graph_batch_sizes(const GraphSizesInput& input);

}  // namespace minisgl
