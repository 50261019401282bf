#include "kernels/cuda/flashinfer/hopper_product.cuh"

namespace minisgl::kernels::gpu {
namespace {

MINISGL_WGMMA(56);
MINISGL_WGMMA(80);
MINISGL_WGMMA(136);

constexpr HopperTile kTiles[] = {
    hopper_tile<192, 56, 1, 2>(), hopper_tile<192, 80, 2, 1>(),  hopper_tile<192, 136, 1, 2>(),
    hopper_tile<256, 80, 2, 1>(), hopper_tile<256, 136, 1, 2>(),
};

}  // namespace

std::span<const HopperTile> hopper_tiles_256() { return kTiles; }

}  // namespace minisgl::kernels::gpu
