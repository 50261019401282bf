#include "tensor/cuda/stream.h"

#include "base/check.h"
#include "tensor/cuda/device.h"
#include "tensor/cuda/error.h"

namespace minisgl::cuda {
namespace {

/// Has the device of a GPU and does nothing.
class DryStream final : public Stream {
 public:
  explicit DryStream(Device device) : device_(device) {}
  Device device() const override { return device_; }
  bool dry() const override { return true; }
  void submit(std::function<void()> step) override { step(); }
  void copy(void*, const void*, std::size_t) override {}
  void copy_rows(Rows, ConstRows, std::size_t, std::size_t) override {}
  std::unique_ptr<Event> make_event() override { return std::make_unique<NoEvent>(); }
  void record(Event&) override {}
  void wait(Event&) override {}
  void synchronize() override {}

 private:
  struct NoEvent final : Event {
    void synchronize() override {}
    bool reached() override { return true; }
  };
  Device device_;
};

}  // namespace

DeviceScope::DeviceScope(Device device) {
  check_cuda(cudaGetDevice(&before_), "asking for the current GPU");
  changed_ = before_ != device.index;
  if (changed_) check_cuda(cudaSetDevice(device.index), "choosing ", to_string(device));
}

DeviceScope::~DeviceScope() {
  if (changed_) cudaSetDevice(before_);
}

CudaEvent::CudaEvent(Device device) : device_(device) {
  const DeviceScope scope(device);
  check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "creating an event on ",
             to_string(device));
}

CudaEvent::~CudaEvent() { cudaEventDestroy(event_); }

void CudaEvent::synchronize() {
  check_cuda(cudaEventSynchronize(event_), "waiting for work on ", to_string(device_));
}

bool CudaEvent::reached() {
  const cudaError_t state = cudaEventQuery(event_);
  if (state == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  check_cuda(state, "asking for work on ", to_string(device_));
  return true;
}

CudaStream::CudaStream(Device device, bool deterministic)
    : device_(device), deterministic_(deterministic) {
  const DeviceProperties found = properties(device);
  num_multiprocessors_ = found.num_multiprocessors;
  max_shared_bytes_ = found.max_shared_bytes;
  const DeviceScope scope(device);
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream on ",
             to_string(device));
}

CudaStream::~CudaStream() {
  states_.clear();
  cudaStreamDestroy(stream_);
}

bool CudaStream::capturing() const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream_, &status), "asking whether a stream is captured");
  return status != cudaStreamCaptureStatusNone;
}

void CudaStream::submit(std::function<void()> step) {
  const DeviceScope scope(device_);
  step();
}

/// Adds a copy to those that wait, unless it has to be enqueued by itself.
bool CudaStream::queue(const CopyQueue::Rows& rows) {
  if (capturing()) return false;
  if (copies_.add(rows)) return true;
  if (copies_.empty()) return false;
  copies_.flush(stream_);
  return copies_.add(rows);
}

void CudaStream::copy(void* dst, const void* src, std::size_t bytes) {
  if (bytes == 0) return;
  const auto size = static_cast<std::int64_t>(bytes);
  if (queue(
          {static_cast<std::byte*>(dst), static_cast<const std::byte*>(src), size, size, size, 1}))
    return;
  check_cuda(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream_), "copying ", bytes,
             " bytes on ", to_string(device_));
}

void CudaStream::copy_rows(Rows dst, ConstRows src, std::size_t row_bytes, std::size_t num_rows) {
  if (row_bytes == 0 || num_rows == 0) return;
  if (queue({dst.data, src.data, static_cast<std::int64_t>(dst.stride_bytes),
             static_cast<std::int64_t>(src.stride_bytes), static_cast<std::int64_t>(row_bytes),
             static_cast<std::int64_t>(num_rows)}))
    return;
  check_cuda(cudaMemcpy2DAsync(dst.data, dst.stride_bytes, src.data, src.stride_bytes, row_bytes,
                               num_rows, cudaMemcpyDefault, stream_),
             "copying ", num_rows, " rows of ", row_bytes, " bytes on ", to_string(device_));
}

std::unique_ptr<Event> CudaStream::make_event() { return std::make_unique<CudaEvent>(device_); }

void CudaStream::record(Event& event) {
  check_cuda(cudaEventRecord(static_cast<CudaEvent&>(event).handle(), handle()),
             "recording an event on ", to_string(device_));
}

void CudaStream::wait(Event& event) {
  check_cuda(cudaStreamWaitEvent(handle(), static_cast<CudaEvent&>(event).handle()),
             "waiting for an event on ", to_string(device_));
}

void CudaStream::synchronize() {
  check_cuda(cudaStreamSynchronize(handle()), "waiting for work on ", to_string(device_));
}

CudaStream& as_cuda(Stream& stream) {
  check(!stream.device().is_cpu() && !stream.dry(), "expected a stream of a GPU, not one of ",
        to_string(stream.device()));
  return static_cast<CudaStream&>(stream);
}

void make_current(Device device) {
  if (!device.is_cpu()) check_cuda(cudaSetDevice(device.index), "choosing ", to_string(device));
}

std::unique_ptr<Stream> make_stream(Device device, bool deterministic) {
  return std::make_unique<CudaStream>(device, deterministic);
}

std::unique_ptr<Stream> make_dry_stream(Device device) {
  return std::make_unique<DryStream>(device);
}

}  // namespace minisgl::cuda
