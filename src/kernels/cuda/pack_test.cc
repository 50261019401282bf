// Weights on their way to a GPU, and made there. Without a GPU every test is skipped.

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

#include "kernels/cuda/ops.h"
#include "kernels/gather.h"
#include "kernels/split_mix.h"
#include "tensor/half.h"
#include "testing/convert.h"
#include "testing/gpu.h"
#include "testing/random.h"

namespace minisgl::kernels {
namespace {

using GpuWeightsTest = testing_util::GpuTest;
using testing_util::converted;

/// [6, 64] numbers that bf16 can hold.
Tensor random_weight() {
  Tensor tensor({6, 64}, DType::kF32);
  testing_util::Random random(15);
  for (std::int64_t i = 0; i < tensor.view().numel(); ++i)
    tensor.view().as<float>()[i] = to_f32(to_bf16(random.uniform()));
  return tensor;
}

TEST_F(GpuWeightsTest, RandomNumbersAreThoseThatTheSeedSays) {
  constexpr std::uint64_t kSeed = 0x123456789ABCDEFU;
  Tensor choices({1 << 16}, DType::kBF16);
  for (int i = 0; i < 1 << 16; ++i)
    choices.view().as<BFloat16>()[i] = std::bit_cast<BFloat16>(static_cast<std::uint16_t>(i));
  const Tensor out({3, 5'000'003}, DType::kBF16, {.device = kGpu});
  gpu::fill_random_now(out, copied_to(choices, kGpu), kSeed);
  const Tensor found = copied_to(out, kCpu);
  const auto* numbers = reinterpret_cast<const std::uint16_t*>(found.view().data);
  for (std::int64_t i = 0; i < found.view().numel(); ++i)
    ASSERT_EQ(numbers[i], (split_mix(kSeed, i / 4) >> (16 * (i % 4)) & 0xFFFF)) << i;
}

TEST_F(GpuWeightsTest, ThoseThatLieInTheGpuAlreadyAreCopiedRowByRow) {
  ThreadPool pool(1);
  const Tensor weight = converted(random_weight(), DType::kBF16);
  const Tensor there = copied_to(weight, kGpu);
  const PackedMatrix packed =
      gpu::pack_matrix(there.view().slice(1, 5).columns(16, 48), {}, pool, kGpu);
  ASSERT_EQ(packed.rows(), 4);
  ASSERT_EQ(packed.cols(), 32);
  const Tensor found =
      copied_to({const_cast<std::byte*>(packed.data()), {4, 32}, DType::kBF16, kGpu}, kCpu);
  for (int row = 0; row < 4; ++row)
    EXPECT_EQ(
        std::memcmp(found.view().data + row * 64, weight.view().data + (row + 1) * 128 + 32, 64),
        0);
}

TEST_F(GpuWeightsTest, ThoseOfEveryTypeAndOrderAreRoundedToBf16) {
  ThreadPool pool(2);
  const auto stream = cuda::make_stream(kGpu);
  const Tensor weight = random_weight();
  const std::vector<std::int32_t> order{5, 3, 1, 0, 2, 4};
  Tensor ids({8}, DType::kI32);
  for (int i = 0; i < 8; ++i) ids.view().as<std::int32_t>()[i] = i < 7 ? i : -1;
  const Tensor gpu_ids = copied_to(ids, kGpu);
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const PackedMatrix packed = gpu::pack_matrix(converted(weight, type), order, pool, kGpu);
    for (const DType out : {DType::kF32, DType::kBF16}) {
      const Tensor y({8, 64}, out, {.device = kGpu});
      embedding(gpu_ids, packed, y, *stream);
      stream->synchronize();
      const Tensor found = converted(copied_to(y, kCpu), DType::kF32);
      for (int row = 0; row < 8; ++row)
        for (int d = 0; d < 64; ++d)
          ASSERT_EQ(found.view().as<float>()[row * 64 + d],
                    row < 6 ? weight.view().as<float>()[order[row] * 64 + d] : 0.0F)
              << "ids outside of the table give zeros";
    }
  }
}

}  // namespace
}  // namespace minisgl::kernels
