// Tiles of plain numbers: rows of a checkpoint become columns of a tile (pack.h, kFloat).

#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace minisgl::kernels::cpu {

/// rows[r] [cols] of `element_bytes` (2 or 4) each -> out [cols][32 rows]. A null row is padding:
/// its place in `out` is not written. `out` is aligned to 64 bytes; what is written may pass by the
/// caches, and is seen by other threads once the caller has synchronised with them.
void pack_float_tile(const std::byte* const* rows, std::int64_t cols, int element_bytes,
                     std::byte* out);

/// src [count] of `from` -> dst [count] of `to`, f32, f16 or bf16, rounded to nearest even. Returns
/// false if a finite number became infinite.
bool convert_row(DType from, const std::byte* src, std::int64_t count, DType to, std::byte* dst);

}  // namespace minisgl::kernels::cpu
