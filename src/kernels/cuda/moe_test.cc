// Mixtures of experts on a GPU against the CPU's routing and plain products. Without a GPU every
// test is skipped.

#include "kernels/moe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/cuda/ops.h"
#include "kernels/grouped_linear.h"
#include "tensor/half.h"
#include "testing/convert.h"
#include "testing/gpu.h"
#include "testing/random.h"

namespace minisgl::kernels {
namespace {

using testing_util::copy_to;

/// A routing and the memory that it is in.
struct Routed {
  Routed(std::int64_t tokens, std::int64_t chosen, std::int64_t num_experts, Device device)
      : experts({tokens, chosen}, DType::kI32, {.device = device}),
        weights({tokens, chosen}, DType::kF32, {.device = device}),
        rows({tokens, chosen}, DType::kI32, {.device = device}),
        order({tokens * chosen}, DType::kI32, {.device = device}),
        offsets({num_experts + 1}, DType::kI32, {.device = device}) {}
  Routing view() const { return {experts, weights, rows, order, offsets}; }
  Tensor experts, weights, rows, order, offsets;
};

/// f32 numbers that bf16 can hold.
Tensor random_tensor(const Shape& shape, std::uint64_t seed, float amplitude = 1) {
  Tensor tensor(shape, DType::kF32);
  testing_util::Random random(seed);
  for (std::int64_t i = 0; i < shape.numel(); ++i)
    tensor.view().as<float>()[i] = to_f32(to_bf16(random.uniform() * amplitude));
  return tensor;
}

class GpuMoeTest : public testing_util::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) stream_ = cuda::make_stream(kGpu);
  }
  std::vector<std::int32_t> ints(const Tensor& tensor) {
    const Tensor host = copy_to(tensor, kCpu, *stream_);
    const auto* at = host.view().as<std::int32_t>();
    return {at, at + host.view().numel()};
  }
  std::vector<float> floats(const Tensor& tensor) {
    const Tensor host = copy_to(tensor, kCpu, *stream_);
    std::vector<float> values;
    for (std::int64_t i = 0; i < host.view().numel(); ++i)
      values.push_back(testing_util::number_at(host, i));
    return values;
  }
  std::unique_ptr<Stream> stream_;
};

TEST_F(GpuMoeTest, RoutesAsTheCpuDoes) {
  CpuStream cpu(2);
  for (const std::int64_t num_experts : {4, 8, 33, 128, 200, 1024})
    for (const std::int64_t chosen : {1, 2, 4})
      for (const std::int64_t tokens : {1, 7, 300, 4000})
        for (const bool normalize : {false, true}) {
          SCOPED_TRACE(std::to_string(num_experts) + " experts, " + std::to_string(chosen) +
                       " chosen, " + std::to_string(tokens) + " tokens");
          Tensor logits = random_tensor({tokens, num_experts}, tokens + num_experts, 4);
          // Equal logits, and some that are out of the question.
          for (std::int64_t i = 0; i < num_experts; i += 3) logits.view().as<float>()[i] = 1.5F;
          logits.view().as<float>()[1] = -std::numeric_limits<float>::infinity();
          const Routed expected(tokens, chosen, num_experts, kCpu);
          route_tokens(logits, normalize, expected.view(), cpu);
          cpu.synchronize();
          const Routed found(tokens, chosen, num_experts, kGpu);
          route_tokens(copy_to(logits, kGpu, *stream_), normalize, found.view(), *stream_);
          EXPECT_EQ(ints(found.experts), ints(expected.experts));
          EXPECT_EQ(ints(found.rows), ints(expected.rows));
          EXPECT_EQ(ints(found.order), ints(expected.order));
          EXPECT_EQ(ints(found.offsets), ints(expected.offsets));
          const std::vector<float> weights = floats(found.weights);
          const std::vector<float> right = floats(expected.weights);
          for (std::size_t i = 0; i < right.size(); ++i)
            ASSERT_NEAR(weights[i], right[i], 1e-6) << i;
        }
}

TEST_F(GpuMoeTest, LogitsThatAreNotNumbersLeaveARoutingThatCanBeUsed) {
  Tensor logits({3, 8}, DType::kF32);
  std::fill_n(logits.view().as<float>(), 8, std::nanf(""));
  std::fill_n(logits.view().as<float>() + 8, 8, -std::numeric_limits<float>::infinity());
  logits.view().as<float>()[16] = std::nanf("");
  const Routed routed(3, 2, 8, kGpu);
  route_tokens(copy_to(logits, kGpu, *stream_), true, routed.view(), *stream_);
  const std::vector<std::int32_t> experts = ints(routed.experts);
  for (std::size_t t = 0; t < 3; ++t) {
    EXPECT_LT(experts[2 * t], experts[2 * t + 1]);
    EXPECT_GE(experts[2 * t], 0);
    EXPECT_LT(experts[2 * t + 1], 8);
  }
  EXPECT_EQ(ints(routed.offsets).back(), 6);
}

TEST_F(GpuMoeTest, EveryExpertMultipliesItsOwnRowsAndTheAnswersAreAddedUp) {
  ThreadPool pool(4);
  struct Case {
    std::int64_t num_experts, chosen, hidden, intermediate, tokens;
  };
  // Few and many rows for each expert, ragged sizes, and an expert that gets nearly all.
  for (const Case c :
       {Case{8, 2, 64, 32, 1}, Case{8, 2, 72, 40, 30}, Case{8, 2, 72, 136, 500},
        Case{128, 8, 256, 96, 5}, Case{128, 8, 256, 96, 6}, Case{16, 4, 520, 264, 333},
        Case{16, 4, 520, 264, 334}, Case{1, 1, 64, 64, 9}, Case{40, 3, 64, 200, 2000}}) {
    SCOPED_TRACE(std::to_string(c.num_experts) + " experts, " + std::to_string(c.tokens) +
                 " tokens");
    // Those with an odd number of tokens in f16, the others in bf16.
    const DType half = c.tokens % 2 != 0 ? DType::kF16 : DType::kBF16;
    PackedExperts gate(c.num_experts), up(c.num_experts);
    std::vector<Tensor> weights[2];
    for (std::int64_t e = 0; e < c.num_experts; ++e) {
      for (int i = 0; i < 2; ++i) {
        weights[i].push_back(random_tensor({c.intermediate, c.hidden}, 10 * e + i));
        (i == 0 ? gate : up).add(gpu::pack_matrix(weights[i].back(), {}, pool, kGpu, half));
      }
    }
    Tensor logits = random_tensor({c.tokens, c.num_experts}, 3, 4);
    for (std::int64_t t = 0; t < c.tokens; ++t)
      if (t % 4 != 0) logits.view().as<float>()[t * c.num_experts + c.num_experts / 2] = 9;
    const Routed routed(c.tokens, c.chosen, c.num_experts, kGpu);
    route_tokens(copy_to(logits, kGpu, *stream_), true, routed.view(), *stream_);
    const Tensor x = random_tensor({c.tokens * c.chosen, c.hidden}, 5);
    const Tensor gpu_x = copy_to(testing_util::converted(x, half), kGpu, *stream_);
    const std::vector<std::int32_t> offsets = ints(routed.offsets);
    for (const DType type : {DType::kF32, half}) {
      const Tensor y({c.tokens * c.chosen, 2 * c.intermediate}, type, {.device = kGpu});
      const std::vector<const PackedExperts*> both{&gate, &up};
      grouped_linear({.x = gpu_x, .offsets = routed.offsets, .weights = both, .y = y}, {},
                     *stream_);
      const std::vector<float> found = floats(y);
      const double relative = type == DType::kF32 ? 1e-5 : 0x1p-8;
      for (std::int64_t e = 0; e < c.num_experts; ++e)
        for (std::int64_t row = offsets[e]; row < offsets[e + 1]; ++row)
          for (std::int64_t n = 0; n < 2 * c.intermediate; ++n) {
            const float* w =
                weights[n / c.intermediate][e].view().as<float>() + n % c.intermediate * c.hidden;
            double sum = 0;
            for (std::int64_t k = 0; k < c.hidden; ++k)
              sum += double{w[k]} * x.view().as<float>()[row * c.hidden + k];
            ASSERT_NEAR(found[row * 2 * c.intermediate + n], sum, relative * std::abs(sum) + 1e-3)
                << "expert " << e << ", row " << row << ", column " << n;
          }
      const Tensor total({c.tokens, 2 * c.intermediate}, type, {.device = kGpu});
      combine_experts(y, routed.view(), total, *stream_);
      const std::vector<float> sums = floats(total);
      const std::vector<float> shares = floats(routed.weights);
      const std::vector<std::int32_t> rows = ints(routed.rows);
      for (std::int64_t t = 0; t < c.tokens; ++t)
        for (std::int64_t n = 0; n < 2 * c.intermediate; ++n) {
          double sum = 0;
          for (std::int64_t j = 0; j < c.chosen; ++j)
            sum += double{shares[t * c.chosen + j]} *
                   found[rows[t * c.chosen + j] * 2 * c.intermediate + n];
          ASSERT_NEAR(sums[t * 2 * c.intermediate + n], sum, relative * std::abs(sum) + 1e-4);
        }
    }
  }
}

}  // namespace
}  // namespace minisgl::kernels
