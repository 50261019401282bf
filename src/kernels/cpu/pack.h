// How a PackedMatrix lies in memory.
//
// kRows: the rows as in the file, one after the other. What the plain kernels read.
//
// kInt4, kInt8, kFloat: tiles of 32 rows, what the vector kernels read: one strictly sequential
// stream, in which the rows of a tile lie in the lanes of a vector. A tile is a sequence of groups
// of 32 (or 16) k; the number of rows is padded to whole tiles with zeros. A group is
//   scales  [32 rows] f16 or f32; then the minima likewise, if the type has them; kFloat: neither
//   codes   kInt4: for each 8 k, [32 rows] 32-bit words, whose nibble j (lowest first) is k = j
//           kInt8: [k][32 rows] signed bytes
//           kFloat: [k][32 rows] f32, f16 or bf16; the last group may be shorter
// All parts are multiples of 64 bytes. Inline scales and one stream per thread: with the scales
// apart, or two tiles read at once, the measured read bandwidth halves.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/linear.h"
#include "kernels/simd.h"

namespace minisgl::kernels::cpu {

constexpr int kTileRows = 32;

enum class ScaleType : std::uint8_t { kNone, kF16, kF32 };

/// The layout of the tiles of one type. Data only: files built for different instruction sets read
/// it, and must not share inline functions (linear_tile_loops.h).
struct TileLayout {
  Packing packing = Packing::kFloat;
  DType dtype = DType::kF32;  ///< of the source
  int group = 32;             ///< consecutive k that share a scale
  int code_bits = 32;
  ScaleType scale = ScaleType::kNone;
  bool has_min = false;
  alignas(16) std::array<std::int8_t, 16> numbers{};  ///< kInt4: what a code stands for
  std::int64_t scale_bytes = 0;   ///< of the scales and minima at the head of a group
  std::int64_t column_bytes = 0;  ///< of the codes of 32 rows at one k
  std::int64_t group_bytes = 0;   ///< of a whole group
};

/// The layout of `type` in tiles. Throws Error if no weight can have this type.
TileLayout tile_layout(DType type);

/// Bytes of one tile. Only kFloat can have a last group that is not whole.
std::int64_t tile_bytes(const TileLayout& layout, std::int64_t cols);

/// What pack_matrix() makes for this instruction set.
Packing packing_for(DType type, Simd simd);

/// Row `row` of `matrix` as f32, bit for bit as dequantize_row() of the source row. out [cols].
void read_row(const PackedMatrix& matrix, std::int64_t row, float* out);

}  // namespace minisgl::kernels::cpu
