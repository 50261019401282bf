// The device layer on a GPU. Without one every test is skipped.

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "minisgl/error.h"
#include "tensor/cuda/device.h"
#include "tensor/tensor.h"
#include "testing/gpu.h"
#include "testing/random.h"

namespace minisgl {
namespace {

using testing_util::error_of;

class CudaDeviceTest : public testing_util::GpuTest {};

TEST_F(CudaDeviceTest, PropertiesAndFreeMemoryAreThoseOfADevice) {
  const cuda::DeviceProperties found = cuda::properties(kGpu);
  std::printf("GPU: %s, compute capability %d.%d, %d multiprocessors, %.1f MiB of L2\n",
              found.name.c_str(), found.compute_major, found.compute_minor,
              found.num_multiprocessors, static_cast<double>(found.l2_bytes) / (1 << 20));
  EXPECT_GE(found.compute_major, 8);
  EXPECT_GT(found.num_multiprocessors, 0);
  EXPECT_GE(found.max_shared_bytes, 48 << 10);
  const cuda::DeviceMemory memory = cuda::memory(kGpu);
  EXPECT_GT(memory.free_bytes, 0);
  EXPECT_LE(memory.free_bytes, memory.total_bytes);
}

TEST_F(CudaDeviceTest, ADeviceThatIsNotThereIsNamed) {
  const std::string error =
      error_of([] { cuda::properties({DeviceKind::kCuda, std::int8_t{100}}); });
  EXPECT_NE(error.find("there is no cuda:100: "), std::string::npos) << error;
  EXPECT_NE(error.find(" GPUs found"), std::string::npos) << error;
}

TEST_F(CudaDeviceTest, TooLargeABufferSaysHowMuchWasAskedForAndWhatIsFree) {
  const std::string error = error_of([] { Buffer(std::size_t{1} << 50, {.device = kGpu}); });
  EXPECT_NE(error.find("could not allocate 1125899906842624 bytes"), std::string::npos) << error;
  EXPECT_NE(error.find("GiB are free: cudaErrorMemoryAllocation"), std::string::npos) << error;
  Buffer after(1 << 20, {.device = kGpu});  // the error is not reported a second time
  EXPECT_EQ(after.size(), std::size_t{1} << 20);
}

TEST_F(CudaDeviceTest, ABufferIsZeroTakesMemoryAndGivesItBack) {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  const std::int64_t before = cuda::memory(kGpu).free_bytes;
  {
    Buffer buffer(kBytes, {.device = kGpu});
    EXPECT_EQ(buffer.device(), kGpu);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, 0U);
    EXPECT_LE(cuda::memory(kGpu).free_bytes, before - static_cast<std::int64_t>(kBytes));
    std::vector<std::uint64_t> host(kBytes / 8, 1);
    const auto stream = cuda::make_stream(kGpu);
    stream->copy(host.data(), buffer.data(), kBytes);
    stream->synchronize();
    EXPECT_EQ(std::accumulate(host.begin(), host.end(), std::uint64_t{0}), 0U);
    Buffer moved = std::move(buffer);
    EXPECT_EQ(moved.device(), kGpu);
    EXPECT_EQ(buffer.data(), nullptr);  // NOLINT: what a moved-from buffer is
  }
  EXPECT_GE(cuda::memory(kGpu).free_bytes, before - (16 << 20));
}

TEST_F(CudaDeviceTest, CopiesGoThereAndBackThroughPinnedMemoryInOrder) {
  constexpr std::size_t kCount = 1 << 20;
  Buffer staging(kCount * 4, {.pinned_for = kGpu});
  Buffer device(kCount * 4, {.device = kGpu});
  Buffer result(kCount * 4, {.pinned_for = kGpu});
  EXPECT_TRUE(staging.device().is_cpu());
  auto* in = reinterpret_cast<std::int32_t*>(staging.data());
  auto* out = reinterpret_cast<std::int32_t*>(result.data());
  const auto stream = cuda::make_stream(kGpu);
  for (int round = 0; round < 3; ++round) {
    std::iota(in, in + kCount, round);
    stream->copy(device.data(), in, kCount * 4);
    stream->copy(out, device.data(), kCount * 4);
    stream->synchronize();
    ASSERT_EQ(std::memcmp(in, out, kCount * 4), 0);
  }
}

TEST_F(CudaDeviceTest, RowsAreCopiedIntoWiderRows) {
  std::vector<std::int32_t> host(12);
  std::iota(host.begin(), host.end(), 1);
  Buffer device(4 * 5 * 4, {.device = kGpu});
  const auto stream = cuda::make_stream(kGpu);
  stream->copy_rows({device.data(), 5 * 4},
                    {reinterpret_cast<const std::byte*>(host.data()), 3 * 4}, 3 * 4, 4);
  std::vector<std::int32_t> wide(20);
  stream->copy(wide.data(), device.data(), wide.size() * 4);
  stream->synchronize();
  EXPECT_EQ(wide, (std::vector<std::int32_t>{1, 2, 3, 0, 0, 4,  5,  6,  0, 0,
                                             7, 8, 9, 0, 0, 10, 11, 12, 0, 0}));
}

TEST_F(CudaDeviceTest, SmallCopiesHappenAsIfOneAfterTheOther) {
  // Copies from anywhere to anywhere in one memory of the host and one of the GPU, of which the
  // host keeps a model; some of them are of rows.
  constexpr std::int64_t kWords = 512;
  Buffer pinned(kWords * 4, {.pinned_for = kGpu});
  Buffer device(kWords * 4, {.device = kGpu});
  const auto stream = cuda::make_stream(kGpu);
  testing_util::Random random(3);
  std::vector<std::int32_t> model(2 * kWords);
  auto* words = reinterpret_cast<std::int32_t*>(pinned.data());
  for (int round = 0; round < 200; ++round) {
    for (std::int64_t i = 0; i < kWords; ++i)
      words[i] = model[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(random.next());
    if (round == 0) std::fill(model.begin() + kWords, model.end(), 0);
    const auto at = [&](std::int64_t word) {
      return word < kWords ? pinned.data() + word * 4 : device.data() + (word - kWords) * 4;
    };
    for (int copy = 0; copy < 60; ++copy) {
      const std::int64_t width = random.between(1, 40);
      const std::int64_t rows = random.below(3) == 0 ? random.between(2, 4) : 1;
      const std::int64_t to_stride = width + random.below(5);
      const std::int64_t from_stride = width + random.below(5);
      const std::int64_t to_place = random.below(kWords - rows * to_stride);
      const std::int64_t from_place = random.below(kWords - rows * from_stride);
      // Between the two memories, or within the GPU's where they do not overlap.
      const bool to_device = random.below(4) != 0;
      const std::int64_t to = to_place + (to_device ? kWords : 0);
      bool from_device = !to_device || random.below(2) == 0;
      if (to_device && from_device && to_place < from_place + rows * from_stride &&
          from_place < to_place + rows * to_stride)
        from_device = false;
      const std::int64_t from = from_place + (from_device ? kWords : 0);
      if (rows == 1) {
        stream->copy(at(to), at(from), static_cast<std::size_t>(4 * width));
      } else {
        stream->copy_rows({at(to), static_cast<std::size_t>(4 * to_stride)},
                          {at(from), static_cast<std::size_t>(4 * from_stride)},
                          static_cast<std::size_t>(4 * width), static_cast<std::size_t>(rows));
      }
      for (std::int64_t row = 0; row < rows; ++row)
        std::copy_n(model.begin() + from + row * from_stride, width,
                    model.begin() + to + row * to_stride);
    }
    std::vector<std::int32_t> found(kWords);
    stream->copy(found.data(), device.data(), kWords * 4);
    stream->synchronize();
    for (std::int64_t i = 0; i < kWords; ++i) {
      ASSERT_EQ(words[i], model[static_cast<std::size_t>(i)]) << "host, round " << round;
      ASSERT_EQ(found[static_cast<std::size_t>(i)], model[static_cast<std::size_t>(kWords + i)])
          << "GPU, round " << round;
    }
  }
}

TEST_F(CudaDeviceTest, AnEventIsReachedAfterTheWorkBeforeItAndAnotherStreamWaitsForIt) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  Buffer a(kBytes, {.device = kGpu});
  Buffer b(kBytes, {.device = kGpu});
  Buffer ones(kBytes, {.pinned_for = kGpu});
  Buffer seen(kBytes, {.pinned_for = kGpu});
  std::memset(ones.data(), 1, kBytes);
  const auto first = cuda::make_stream(kGpu);
  const auto second = cuda::make_stream(kGpu);
  const auto event = first->make_event();
  event->synchronize();  // never recorded: nothing to wait for
  EXPECT_TRUE(event->reached());
  first->copy(a.data(), ones.data(), kBytes);
  first->copy(b.data(), a.data(), kBytes);
  first->record(*event);
  second->wait(*event);
  second->copy(seen.data(), b.data(), kBytes);
  second->synchronize();
  EXPECT_TRUE(event->reached());
  EXPECT_EQ(std::memcmp(seen.data(), ones.data(), kBytes), 0);
}

TEST_F(CudaDeviceTest, AStepRunsAtOnceOnTheCallersThread) {
  const auto stream = cuda::make_stream(kGpu);
  int steps = 0;
  stream->submit([&] { ++steps; });
  EXPECT_EQ(steps, 1);
  EXPECT_EQ(stream->device(), kGpu);
  EXPECT_FALSE(stream->dry());
}

TEST(CudaWithoutGpuTest, ADryStreamHasADeviceAndDropsItsWork) {
  const auto stream = cuda::make_dry_stream(kGpu);
  EXPECT_TRUE(stream->dry());
  EXPECT_EQ(stream->device(), kGpu);
  int value = 1;
  const int other = 2;
  stream->copy(&value, &other, sizeof(value));
  stream->synchronize();
  EXPECT_EQ(value, 1);
}

TEST(CudaWithoutGpuTest, WithoutADriverThereAreNoDevicesAndAReason) {
  if (cuda::num_devices() > 0) GTEST_SKIP() << "there is a GPU";
  EXPECT_NE(cuda::why_no_devices(), "");
  const std::string error = error_of([] { cuda::make_stream(kGpu); });
  EXPECT_NE(error.find("there is no cuda:0: 0 GPUs found, " + cuda::why_no_devices()),
            std::string::npos)
      << error;
}

}  // namespace
}  // namespace minisgl
