// The greatest of a block's numbers.

#pragma once

namespace minisgl::kernels::gpu {

/// A number and whose it is; of equal ones the lower id is better.
struct Best {
  float value;
  int id;
};

__device__ inline Best better(Best a, Best b) {
  return b.value > a.value || (b.value == a.value && b.id < a.id) ? b : a;
}

/// The best of a block's, in every thread. `shared` has room for 32, and may be used again after
/// the block's threads have met.
__device__ inline Best block_best(Best mine, Best* shared) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2)
    mine = better(mine, {__shfl_xor_sync(~0U, mine.value, d), __shfl_xor_sync(~0U, mine.id, d)});
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane == 0) shared[threadIdx.x / 32] = mine;
  __syncthreads();
  mine = shared[lane < static_cast<int>(blockDim.x) / 32 ? lane : 0];
#pragma unroll
  for (int d = 16; d > 0; d /= 2)
    mine = better(mine, {__shfl_xor_sync(~0U, mine.value, d), __shfl_xor_sync(~0U, mine.id, d)});
  return mine;
}

}  // namespace minisgl::kernels::gpu
