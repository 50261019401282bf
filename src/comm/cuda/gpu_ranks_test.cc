// Ranks on GPUs: needs two. They are processes, as in the product: within one process, what a rank
// allocates waits for the other's GPU, whose kernel may wait for the first rank's numbers.

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "comm/cuda/nccl_communicator.h"
#include "comm/cuda/one_shot.h"
#include "tensor/cuda/device.h"
#include "tensor/cuda/error.h"
#include "tensor/cuda/stream.h"
#include "tensor/half.h"
#include "testing/gpu.h"
#include "testing/process_ranks.h"
#include "testing/random.h"

namespace minisgl {
namespace {

class GpuRanksTest : public testing_util::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (cuda::num_devices() < 2) GTEST_SKIP() << "there is one GPU only";
    if (!testing_util::kHasGloo) GTEST_SKIP() << "there is no gloo in this build";
  }

  /// body(rank, communicator, stream) for two ranks, on a GPU each.
  static void run(const std::function<void(int, GpuCommunicator&, cuda::CudaStream&)>& body) {
    testing_util::run_in_processes(2, [&](RankGroup& group) {
      const Device device{DeviceKind::kCuda, static_cast<std::int8_t>(group.rank())};
      cuda::make_current(device);
      HostGroup& host = *group.links().host;
      const auto communicator = make_nccl_communicator(host, device, group.timeout());
      cuda::CudaStream stream(device, /*deterministic=*/false);
      body(group.rank(), *communicator, stream);
      if (HasFatalFailure()) {
        communicator->abort();  // the other rank may be gone: nothing waits for it
      } else {
        host.barrier();
      }
    });
  }

  static Tensor on_device(const std::vector<float>& values, DType dtype, Device device) {
    const Tensor host({static_cast<std::int64_t>(values.size())}, dtype);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::kF32) {
        host.view().as<float>()[i] = values[i];
      } else {
        host.view().as<BFloat16>()[i] = to_bf16(values[i]);
      }
    }
    return copied_to(host, device);
  }

  static std::vector<float> on_host(TensorView tensor) {
    const Tensor host = copied_to(tensor, kCpu);
    std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = tensor.dtype == DType::kF32 ? host.view().as<float>()[i]
                                              : to_f32(host.view().as<BFloat16>()[i]);
    return values;
  }
};

/// What rank `rank` brings: whole numbers, whose sums are exact.
std::vector<float> whole_numbers(int rank, std::int64_t count) {
  testing_util::Random random(static_cast<std::uint64_t>(rank) + 1);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(random.between(-60, 60));
  return values;
}

TEST_F(GpuRanksTest, SumsAreRightInEverySizeAndTypeManyTimesInARow) {
  run([](int rank, GpuCommunicator& sums, cuda::CudaStream& stream) {
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      for (const std::int64_t count : {8, 1000, 5120, 5120 * 16, 300'000, 4'000'000}) {
        std::vector<float> expected = whole_numbers(0, count);
        const std::vector<float> other = whole_numbers(1, count);
        for (std::size_t i = 0; i < other.size(); ++i) expected[i] += other[i];
        for (int turn = 0; turn < 5; ++turn) {
          const Tensor x = on_device(whole_numbers(rank, count), dtype, stream.device());
          sums.all_reduce(x, stream);
          stream.synchronize();
          ASSERT_EQ(on_host(x), expected) << count << " of " << name(dtype) << ", turn " << turn;
        }
      }
    }
  });
}

TEST_F(GpuRanksTest, OurKernelAndNcclAreMeasured) {
  run([](int rank, GpuCommunicator& sums, cuda::CudaStream&) {
    const std::vector<SumTime> times = sums.measure(64 << 10);
    ASSERT_EQ(times.size(), 4U);
    for (const SumTime& time : times) {
      EXPECT_GT(time.nccl_us, 0);
      if (rank == 0)
        std::printf("[ %lld KB ] nccl %.1f us, one-shot %.1f us\n",
                    static_cast<long long>(time.bytes >> 10), time.nccl_us, time.one_shot_us);
    }
  });
}

/// What `enqueue` enqueues, as a graph. To be destroyed before its communicator.
template <class Enqueue>
cudaGraphExec_t recorded(cuda::CudaStream& stream, const Enqueue& enqueue) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cuda::check_cuda(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeThreadLocal),
                   "recording");
  enqueue();
  cuda::check_cuda(cudaStreamEndCapture(stream.handle(), &graph), "recording");
  cuda::check_cuda(cudaGraphInstantiate(&executable, graph, 0), "recording");
  cudaGraphDestroy(graph);
  return executable;
}

// Source of these numbers: mini-sglang's test of its communicator.
TEST_F(GpuRanksTest, AThousandSumsInAGraphAreReplayed) {
  run([](int, GpuCommunicator& sums, cuda::CudaStream& stream) {
    for (const std::int64_t count : {4096, 8192 * 512}) {
      const Tensor zeros = on_device(std::vector<float>(static_cast<std::size_t>(count)),
                                     DType::kBF16, stream.device());
      sums.all_reduce(zeros, stream);
      stream.synchronize();
      const cudaGraphExec_t graph = recorded(stream, [&] {
        for (int i = 0; i < 1024; ++i) sums.all_reduce(zeros, stream);
      });
      for (int i = 0; i < 3; ++i)
        cuda::check_cuda(cudaGraphLaunch(graph, stream.handle()), "replaying");
      stream.synchronize();
      EXPECT_EQ(on_host(zeros), std::vector<float>(static_cast<std::size_t>(count)));
      cudaGraphExecDestroy(graph);
    }
  });
}

TEST_F(GpuRanksTest, PartsAreCollectedInTheOrderOfTheRanks) {
  run([](int rank, GpuCommunicator& sums, cuda::CudaStream& stream) {
    const Tensor x = on_device(whole_numbers(rank, 1001), DType::kF32, stream.device());
    const Tensor parts({2, 1001}, DType::kF32, {.device = stream.device()});
    sums.all_gather(x, parts, stream);
    stream.synchronize();
    for (int other = 0; other < 2; ++other)
      EXPECT_EQ(on_host(parts.view().slice(other, other + 1).reshape({1001})),
                whole_numbers(other, 1001));
  });
}

TEST_F(GpuRanksTest, AnAbortedGroupDoesNotWaitForTheRankThatIsGone) {
  run([](int rank, GpuCommunicator& sums, cuda::CudaStream& stream) {
    if (rank == 1) return;
    const Tensor x = on_device(whole_numbers(rank, 5120), DType::kBF16, stream.device());
    sums.all_reduce(x, stream);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    sums.abort();
    stream.synchronize();  // or the test hangs
  });
}

// An engine's graphs live until it ends, which is after it has told its clients of the fault.
TEST_F(GpuRanksTest, SumsOfAGraphAreBrokenOffWhileItLives) {
  run([](int rank, GpuCommunicator& sums, cuda::CudaStream& stream) {
    const Tensor x = on_device(whole_numbers(rank, 4'000'000), DType::kBF16, stream.device());
    sums.all_reduce(x, stream);  // by NCCL, which makes its connections now
    stream.synchronize();
    const cudaGraphExec_t graph = recorded(stream, [&] { sums.all_reduce(x, stream); });
    if (rank == 0) {
      cuda::check_cuda(cudaGraphLaunch(graph, stream.handle()), "replaying");
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      sums.abort();
      stream.synchronize();  // or the test hangs
    }
    cudaGraphExecDestroy(graph);
  });
}

}  // namespace
}  // namespace minisgl
