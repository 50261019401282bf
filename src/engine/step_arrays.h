// The inputs of a step in one block of memory: what one copy brings to the device.

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/sampling.h"
#include "tensor/tensor.h"

namespace minisgl {

/// The arrays of a step, one after the other in a block of memory: on the host and, with the same
/// layout, on the device.
struct StepArrays {
  TensorView token_ids, positions, out_locs;  // [num_tokens] i32
  TensorView logit_rows, sample_rows;         // [num_samples] i32; sample_rows: page-table rows
  TensorView decode_rows;                     // [num_decode] i32: page-table rows
  kernels::SamplingRow* sampling = nullptr;   // [num_samples]
  std::int64_t bytes = 0;                     // of all of them
};

/// The arrays at `block`, which lies on `device` and is aligned to 64 bytes; each of them begins on
/// such a boundary. A null block gives the bytes that they take. Equal counts give equal offsets.
StepArrays lay_out(std::byte* block, std::int64_t tokens, std::int64_t samples, std::int64_t decode,
                   Device device = kCpu);

}  // namespace minisgl
