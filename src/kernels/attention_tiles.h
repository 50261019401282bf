// How attention cuts the keys of a sequence. Constants alone: also seen by code that is compiled
// once per instruction set, which must not see inline functions.

#pragma once

#include <cstdint>

namespace minisgl::kernels {

/// Keys are walked in tiles of 64 positions and combined in splits of 512, both counted from
/// position 0, in ascending order, whatever the number of queries. A token's output is then bitwise
/// the same in prefill, in any chunk, and in decode.
constexpr std::int32_t kAttentionTile = 64;
constexpr std::int32_t kAttentionSplit = 512;

}  // namespace minisgl::kernels
