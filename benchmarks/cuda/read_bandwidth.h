// How fast a GPU's memory can be read.

#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace minisgl {

/// Reads `bytes` (a multiple of 16) once and does nothing else. `sink`: 4 bytes that are hardly
/// ever written. Enqueued.
void read_memory(const void* data, std::int64_t bytes, std::uint32_t* sink, cudaStream_t stream);

}  // namespace minisgl
