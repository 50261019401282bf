#include "kernels/cuda/flashinfer/hopper_product.cuh"

namespace minisgl::kernels::gpu {
namespace {

MINISGL_WGMMA(32);
MINISGL_WGMMA(48);
MINISGL_WGMMA(56);
MINISGL_WGMMA(64);
MINISGL_WGMMA(80);
MINISGL_WGMMA(112);
MINISGL_WGMMA(136);

constexpr HopperTile kTiles[] = {
    hopper_tile<128, 32, 1, 4, 2>(), hopper_tile<128, 32, 4, 1, 2>(),
    hopper_tile<128, 48, 1, 2, 2>(), hopper_tile<128, 64, 2, 1, 2>(),
    hopper_tile<128, 56, 1, 2>(),    hopper_tile<128, 80, 2, 1>(),
    hopper_tile<128, 112, 1, 2>(),   hopper_tile<128, 136, 1, 2>(),
};

}  // namespace

std::span<const HopperTile> hopper_tiles_128() { return kTiles; }

}  // namespace minisgl::kernels::gpu
