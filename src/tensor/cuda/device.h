// GPUs: which there are, what they are, memory of theirs. No CUDA header is needed to use this.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tensor/cuda/build.h"
#include "tensor/device.h"
#include "tensor/stream.h"

namespace minisgl::cuda {

/// Number of GPUs that this process may use; 0 without a driver.
int num_devices();

/// Why num_devices() is 0, in CUDA's words: "no CUDA-capable device is detected"; "" when it is
/// not.
std::string why_no_devices();

struct DeviceProperties {
  std::string name;       ///< "NVIDIA H200"
  int compute_major = 0;  ///< 9 for Hopper
  int compute_minor = 0;
  int num_multiprocessors = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t max_shared_bytes = 0;  ///< of one block, when it asks for it
};

/// Throws Error if there is no such device, or if this build has no code for it.
DeviceProperties properties(Device device);

struct DeviceMemory {
  std::int64_t free_bytes = 0;
  std::int64_t total_bytes = 0;
};

/// Of the whole device, whoever uses it.
DeviceMemory memory(Device device);

/// Makes `device` the calling thread's: the one of work that names none. To be called by every
/// thread that uses another device than the first. Nothing for a CPU.
void make_current(Device device);

/// Zeroed memory of the device, aligned to 256 bytes. Waits until it is zero. Throws Error naming
/// the size and what is free if there is none.
std::byte* allocate(std::size_t bytes, Device device);
void release(std::byte* memory, Device device) noexcept;

/// Zeroed host memory that a device copies from and to without the CPU's help.
std::byte* allocate_pinned(std::size_t bytes);
void release_pinned(std::byte* memory) noexcept;

/// Copies between the host and a device, or within one; returns when it is done. Work of streams is
/// not waited for.
void copy_now(std::byte* dst, const std::byte* src, std::size_t bytes);
/// The same of `rows` rows of `bytes` each, which lie dst_stride and src_stride bytes apart.
void copy_rows_now(std::byte* dst, std::int64_t dst_stride, const std::byte* src,
                   std::int64_t src_stride, std::int64_t bytes, std::int64_t rows);

/// A stream of the device. Its submit() runs the step at once on the calling thread: what the step
/// enqueues is the work. A failed launch or copy throws Error where it is noticed, with CUDA's name
/// of the error. `deterministic`: a row's result of an op does not depend on the other rows,
/// whatever that costs.
std::unique_ptr<Stream> make_stream(Device device, bool deterministic = false);

/// A stream of that device which drops all work; needs no GPU.
std::unique_ptr<Stream> make_dry_stream(Device device);

}  // namespace minisgl::cuda
