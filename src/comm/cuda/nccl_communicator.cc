#include "comm/cuda/nccl_communicator.h"

#include <chrono>
#include <cstring>
#include <exception>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "comm/cuda/nccl.h"
#include "comm/cuda/one_shot.h"
#include "tensor/cuda/device.h"
#include "tensor/cuda/error.h"
#include "tensor/cuda/stream.h"

namespace minisgl {
namespace {

using cuda::check_cuda;
using gpu::check_nccl;
using gpu::nccl;
using gpu::OneShot;

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32: return ncclFloat32;
    case DType::kBF16: return ncclBfloat16;
    default: break;
  }
  check(false, "NCCL is asked to add up numbers of type ", name(dtype));
  return ncclFloat32;
}

/// Microseconds of one call of `enqueue`, recorded kCalls times in a graph; the best of some
/// replays.
template <class Enqueue>
double time_in_graph(cuda::CudaStream& stream, const Enqueue& enqueue) {
  constexpr int kCalls = 50;
  constexpr int kReplays = 5;
  enqueue();  // what is done only the first time
  stream.synchronize();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check_cuda(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeThreadLocal),
             "beginning to record sums");
  for (int i = 0; i < kCalls; ++i) enqueue();
  check_cuda(cudaStreamEndCapture(stream.handle(), &graph), "recording sums");
  check_cuda(cudaGraphInstantiate(&executable, graph, 0), "making a graph of sums");
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check_cuda(cudaEventCreate(&begin), "creating an event");
  check_cuda(cudaEventCreate(&end), "creating an event");
  float best_ms = 0;
  for (int i = 0; i <= kReplays; ++i) {
    check_cuda(cudaEventRecord(begin, stream.handle()), "recording an event");
    check_cuda(cudaGraphLaunch(executable, stream.handle()), "launching a graph of sums");
    check_cuda(cudaEventRecord(end, stream.handle()), "recording an event");
    stream.synchronize();
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin, end), "timing sums");
    if (i == 1 || (i > 1 && ms < best_ms)) best_ms = ms;  // the first is a warm-up
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(executable);  // before the communicator whose sums it holds
  cudaGraphDestroy(graph);
  return static_cast<double>(best_ms) * 1000 / kCalls;
}

class NcclCommunicator final : public GpuCommunicator {
 public:
  NcclCommunicator(HostGroup& host, Device device, ncclComm_t comm)
      : GpuCommunicator(host.rank(), host.size()), host_(host), device_(device), comm_(comm) {
    one_shot_ = OneShot::make(host, device);
    if (one_shot_ != nullptr) choose();
  }

  ~NcclCommunicator() override {
    const cuda::DeviceScope scope(device_);
    if (!aborted_) nccl().destroy(comm_);
    // The graphs are gone, so it ends, unless the GPU itself does not answer.
    constexpr std::chrono::seconds kLimit{5};
    if (aborting_.valid()) aborting_.wait_for(kLimit);
  }

  void all_reduce(TensorView x, Stream& stream) override {
    check(x.is_contiguous(), "all_reduce takes contiguous tensors");
    type_of(x.dtype);
    if (stream.dry() || x.numel() == 0) return;
    if (x.bytes() <= one_shot_bytes_ && OneShot::fits(x)) {
      one_shot_->all_reduce(x, cuda::as_cuda(stream).handle());
    } else {
      reduce_by_nccl(x, stream);
    }
  }

  void all_gather(TensorView x, TensorView parts, Stream& stream) override {
    check_tensor(parts, {size(), x.numel()}, x.dtype, "parts of all_gather");
    check(x.is_contiguous() && parts.is_contiguous(), "all_gather takes contiguous tensors");
    if (stream.dry() || x.numel() == 0) return;
    check_nccl(nccl().all_gather(x.data, parts.data, static_cast<std::size_t>(x.bytes()), ncclInt8,
                                 comm_, cuda::as_cuda(stream).handle()),
               "collecting from the ranks");
  }

  /// NCCL tells its kernels at once, and then waits for the end of the graphs that hold them, which
  /// are the caller's: so on a thread.
  void abort() noexcept override {
    if (one_shot_ != nullptr) one_shot_->abort();
    if (std::exchange(aborted_, true)) return;
    try {
      std::packaged_task<void()> task([device = device_, comm = comm_] {
        const cuda::DeviceScope scope(device);
        nccl().abort(comm);
      });
      aborting_ = task.get_future();
      std::thread(std::move(task)).detach();
    } catch (const std::exception& e) {
      log::error("the sums over the GPUs could not be broken off: {}", e.what());
    }
  }

  std::int64_t one_shot_bytes() const override { return one_shot_bytes_; }

  std::vector<SumTime> measure(std::int64_t most_bytes) override {
    const cuda::DeviceScope scope(device_);
    cuda::CudaStream stream(device_, /*deterministic=*/false);
    const Tensor memory({most_bytes / 2}, DType::kBF16, {.device = device_});
    std::vector<SumTime> times;
    constexpr std::int64_t kFirstBytes = 8 << 10;
    for (std::int64_t bytes = kFirstBytes; bytes <= most_bytes; bytes *= 2) {
      const TensorView x = memory.view().slice(0, bytes / 2);
      SumTime time{.bytes = bytes};
      host_.barrier();
      time.nccl_us = time_in_graph(stream, [&] { reduce_by_nccl(x, stream); });
      if (one_shot_ != nullptr && OneShot::fits(x)) {
        host_.barrier();
        time.one_shot_us =
            time_in_graph(stream, [&] { one_shot_->all_reduce(x, stream.handle()); });
      }
      times.push_back(time);
    }
    host_.barrier();
    return times;
  }

 private:
  void reduce_by_nccl(TensorView x, Stream& stream) {
    check_nccl(nccl().all_reduce(x.data, x.data, static_cast<std::size_t>(x.numel()),
                                 type_of(x.dtype), ncclSum, comm_, cuda::as_cuda(stream).handle()),
               "a sum over the ranks");
  }

  /// Up to which size the kernel wins: all must use it for the same sums.
  void choose() {
    std::int64_t most = 0;
    for (const SumTime& time : measure(OneShot::kMaxBytes)) {
      if (time.one_shot_us == 0 || time.one_shot_us >= time.nccl_us) break;
      most = time.bytes;
    }
    Message message(sizeof(most));
    std::memcpy(message.data(), &most, sizeof(most));
    host_.broadcast(message);
    check(message.size() == sizeof(most), "rank 0 sent no size of sums");
    std::memcpy(&most, message.data(), sizeof(most));
    one_shot_bytes_ = most;
    if (rank() == 0)
      log::info("Sums over {} GPUs: up to {} KB by our own kernel, larger ones by NCCL", size(),
                most >> 10);
  }

  HostGroup& host_;
  Device device_;
  ncclComm_t comm_;
  std::unique_ptr<OneShot> one_shot_;  // null: NCCL adds up everything
  std::int64_t one_shot_bytes_ = 0;
  bool aborted_ = false;
  std::future<void> aborting_;
};

}  // namespace

std::unique_ptr<GpuCommunicator> make_nccl_communicator(HostGroup& host, Device device,
                                                        std::chrono::milliseconds timeout) {
  nccl();  // whoever does not have it says so before the others wait
  ncclUniqueId id{};
  if (host.rank() == 0) check_nccl(nccl().get_unique_id(&id), "making an id for the ranks");
  Message message(sizeof(id));
  std::memcpy(message.data(), &id, sizeof(id));
  host.broadcast(message);
  check(message.size() == sizeof(id), "rank 0 has another version of NCCL");
  std::memcpy(&id, message.data(), sizeof(id));

  // On a thread: NCCL would wait without end for a rank that does not come.
  std::packaged_task<ncclComm_t()> task([id, device, rank = host.rank(), size = host.size()] {
    const cuda::DeviceScope scope(device);
    ncclComm_t comm = nullptr;
    check_nccl(nccl().init_rank(&comm, size, id, rank), "connecting the GPUs of the ranks");
    return comm;
  });
  std::future<ncclComm_t> connected = task.get_future();
  std::thread(std::move(task)).detach();
  if (connected.wait_for(timeout) != std::future_status::ready)
    throw Error("the GPUs of the ranks were not connected within " +
                std::to_string(timeout.count() / 1000) + " s (--distributed-timeout)");
  return std::make_unique<NcclCommunicator>(host, device, connected.get());
}

}  // namespace minisgl
