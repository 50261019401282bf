#include "kernels/cuda/flashinfer/hopper_product.cuh"

namespace minisgl::kernels::gpu {
namespace {

MINISGL_WGMMA(32);
MINISGL_WGMMA(40);
MINISGL_WGMMA(48);
MINISGL_WGMMA(56);
MINISGL_WGMMA(80);
MINISGL_WGMMA(136);

constexpr HopperTile kTiles[] = {
    hopper_tile<64, 32, 1, 4, 2>(), hopper_tile<64, 32, 2, 1, 2>(), hopper_tile<64, 32, 4, 1, 2>(),
    hopper_tile<64, 40, 1, 1, 2>(), hopper_tile<64, 48, 1, 2, 2>(), hopper_tile<64, 56, 1, 1, 2>(),

    hopper_tile<64, 40, 1, 1>(),    hopper_tile<64, 48, 1, 2>(),    hopper_tile<64, 56, 1, 1>(),
    hopper_tile<64, 80, 2, 1>(),    hopper_tile<64, 136, 1, 2>(),
};

}  // namespace

std::span<const HopperTile> hopper_tiles_64() { return kTiles; }

}  // namespace minisgl::kernels::gpu
