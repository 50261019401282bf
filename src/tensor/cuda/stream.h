// A stream of a GPU. For files below folders named cuda/; all others use tensor/cuda/device.h.

#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <typeindex>

#include "tensor/cuda/copy_queue.h"
#include "tensor/stream.h"

namespace minisgl::cuda {

/// Makes `device` the calling thread's until the scope ends.
class DeviceScope {
 public:
  explicit DeviceScope(Device device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(Device device);
  ~CudaEvent() override;
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  void synchronize() override;
  bool reached() override;
  cudaEvent_t handle() const { return event_; }

 private:
  Device device_;
  cudaEvent_t event_ = nullptr;
};

/// See make_stream(). Not thread-safe, unlike a CPU's: one thread enqueues. Small copies wait for
/// the next thing that is enqueued, so that those of a step are one kernel (CopyQueue).
class CudaStream final : public Stream {
 public:
  CudaStream(Device device, bool deterministic);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  Device device() const override { return device_; }
  void submit(std::function<void()> step) override;
  void copy(void* dst, const void* src, std::size_t bytes) override;
  void copy_rows(Rows dst, ConstRows src, std::size_t row_bytes, std::size_t num_rows) override;
  std::unique_ptr<Event> make_event() override;
  void record(Event& event) override;
  void wait(Event& event) override;
  void synchronize() override;

  /// To enqueue something on; copies that wait are enqueued before it.
  cudaStream_t handle() {
    copies_.flush(stream_);
    return stream_;
  }
  int num_multiprocessors() const { return num_multiprocessors_; }
  /// Of one block, when it asks for it.
  std::int64_t max_shared_bytes() const { return max_shared_bytes_; }
  /// Ops that could choose between kernels by the number of rows must not.
  bool deterministic() const { return deterministic_; }

  /// True while what is enqueued is recorded for a graph instead of run.
  bool capturing() const;

  /// What an op keeps for this stream alone (a library's handle, what it has measured): made by
  /// T(stream) when it is first asked for, gone with the stream.
  template <class T>
  T& state() {
    std::shared_ptr<void>& slot = states_[std::type_index(typeid(T))];
    if (slot == nullptr) slot = std::make_shared<T>(*this);
    return *static_cast<T*>(slot.get());
  }

 private:
  bool queue(const CopyQueue::Rows& rows);

  Device device_;
  bool deterministic_ = false;
  int num_multiprocessors_ = 0;
  std::int64_t max_shared_bytes_ = 0;
  cudaStream_t stream_ = nullptr;
  CopyQueue copies_;
  std::map<std::type_index, std::shared_ptr<void>>
      states_;  // shared_ptr<void> knows how to destroy
};

/// `stream` as a GPU's; throws Error if it is one of a CPU. Not for a dry stream.
CudaStream& as_cuda(Stream& stream);

}  // namespace minisgl::cuda
