#include "tensor/cuda/device.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "tensor/cuda/error.h"
#include "tensor/cuda/stream.h"

namespace minisgl::cuda {
namespace {

/// Its attributes tell whether this build has code for a device.
__global__ void probe() {}

double gib(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

cudaError_t count_devices(int& count) {
  count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess) return error;
  cudaGetLastError();
  count = 0;
  return error;
}

}  // namespace

int num_devices() {
  int count = 0;
  count_devices(count);
  return count;
}

std::string why_no_devices() {
  int count = 0;
  const cudaError_t error = count_devices(count);
  return error == cudaSuccess ? "" : cudaGetErrorString(error);
}

DeviceProperties properties(Device device) {
  int count = 0;
  const cudaError_t error = count_devices(count);
  check(!device.is_cpu() && device.index >= 0 && device.index < count, "there is no ",
        to_string(device), ": ", count, " GPUs found",
        error == cudaSuccess ? "" : std::string(", ") + cudaGetErrorString(error));
  cudaDeviceProp found{};
  check_cuda(cudaGetDeviceProperties(&found, device.index), "asking what ", to_string(device),
             " is");
  const DeviceScope scope(device);
  cudaFuncAttributes code{};
  check_cuda(cudaFuncGetAttributes(&code, probe), "this build has no code for ", to_string(device),
             ", ", found.name, " of compute capability ", found.major, ".", found.minor,
             "; build with another MINISGL_CUDA_ARCHITECTURES");
  return {.name = found.name,
          .compute_major = found.major,
          .compute_minor = found.minor,
          .num_multiprocessors = found.multiProcessorCount,
          .l2_bytes = found.l2CacheSize,
          .max_shared_bytes = static_cast<std::int64_t>(found.sharedMemPerBlockOptin)};
}

DeviceMemory memory(Device device) {
  const DeviceScope scope(device);
  std::size_t free = 0;
  std::size_t total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "asking for the free memory of ", to_string(device));
  return {static_cast<std::int64_t>(free), static_cast<std::int64_t>(total)};
}

std::byte* allocate(std::size_t bytes, Device device) {
  const DeviceScope scope(device);
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  if (error == cudaErrorMemoryAllocation) {
    std::size_t free = 0;
    std::size_t total = 0;
    cudaMemGetInfo(&free, &total);
    check_cuda(error, "out of memory: could not allocate ", bytes, " bytes (", gib(bytes),
               " GiB) on ", to_string(device), ", where ", gib(free), " of ", gib(total),
               " GiB are free");
  }
  check_cuda(error, "allocating ", bytes, " bytes on ", to_string(device));
  // On the legacy stream, which other streams do not wait for: so wait here.
  cudaError_t zeroed = cudaMemset(memory, 0, bytes);
  if (zeroed == cudaSuccess) zeroed = cudaStreamSynchronize(cudaStreamLegacy);
  if (zeroed != cudaSuccess) cudaFree(memory);
  check_cuda(zeroed, "zeroing ", bytes, " bytes on ", to_string(device));
  return static_cast<std::byte*>(memory);
}

void release(std::byte* memory, Device device) noexcept {
  int before = 0;
  cudaGetDevice(&before);
  cudaSetDevice(device.index);
  cudaFree(memory);
  cudaSetDevice(before);
}

std::byte* allocate_pinned(std::size_t bytes) {
  void* memory = nullptr;
  check_cuda(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "allocating ", bytes,
             " bytes of pinned host memory");
  std::memset(memory, 0, bytes);
  return static_cast<std::byte*>(memory);
}

void release_pinned(std::byte* memory) noexcept { cudaFreeHost(memory); }

void copy_now(std::byte* dst, const std::byte* src, std::size_t bytes) {
  copy_rows_now(dst, static_cast<std::int64_t>(bytes), src, static_cast<std::int64_t>(bytes),
                static_cast<std::int64_t>(bytes), 1);
}

void copy_rows_now(std::byte* dst, std::int64_t dst_stride, const std::byte* src,
                   std::int64_t src_stride, std::int64_t bytes, std::int64_t rows) {
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  cudaError_t error = rows == 1 || (dst_stride == bytes && src_stride == bytes)
                          ? cudaMemcpy(dst, src, size(rows * bytes), cudaMemcpyDefault)
                          : cudaMemcpy2D(dst, size(dst_stride), src, size(src_stride), size(bytes),
                                         size(rows), cudaMemcpyDefault);
  // A copy within the device may still run when it returns.
  if (error == cudaSuccess) error = cudaStreamSynchronize(cudaStreamLegacy);
  check_cuda(error, "copying ", rows * bytes, " bytes from or to a GPU");
}

}  // namespace minisgl::cuda
