#include "kernels/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "kernels/ref/reference.h"
#include "kernels/simd_testing.h"
#include "tensor/half.h"
#include "testing/random.h"

namespace minisgl::kernels {
namespace {

constexpr std::int64_t kSlots = 40;

std::vector<float> inv_freq(std::int64_t head_dim) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < head_dim / 2; ++i)
    values.push_back(static_cast<float>(
        std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim))));
  return values;
}

/// A step of random tokens, and a pool of its own.
struct Step {
  Step(std::int64_t tokens, std::int64_t q_heads, std::int64_t kv_heads, std::int64_t head_dim,
       bool norms, DType kv_dtype = DType::kF32)
      : qkv({tokens, (q_heads + 2 * kv_heads) * head_dim}, DType::kF32),
        positions({tokens}, DType::kI32),
        out_locs({tokens}, DType::kI32),
        table(make_rope_table(inv_freq(head_dim), 1000)),
        norm({2, head_dim}, DType::kF32),
        q({tokens, q_heads, head_dim}, DType::kF32),
        pool({2, kSlots, kv_heads, head_dim}, kv_dtype) {
    testing_util::Random random(tokens * 1000 + head_dim);
    for (std::int64_t i = 0; i < qkv.view().numel(); ++i)
      qkv.view().as<float>()[i] = random.uniform();
    for (std::int64_t i = 0; i < 2 * head_dim; ++i)
      norm.view().as<float>()[i] = random.uniform() + 1;
    for (std::int64_t i = 0; i < tokens; ++i) {
      positions.view().as<std::int32_t>()[i] = static_cast<std::int32_t>(random.below(1000));
      out_locs.view().as<std::int32_t>()[i] = static_cast<std::int32_t>((i * 7 + 3) % kSlots);
    }
    args = {.qkv = qkv,
            .positions = positions,
            .out_locs = out_locs,
            .rope_table = table,
            .q_norm = {},
            .k_norm = {},
            .norm_eps = 1e-6F,
            .q = q,
            .kv = {}};
    if (norms) {
      args.q_norm = norm.view().slice(0, 1).reshape({head_dim});
      args.k_norm = norm.view().slice(1, 2).reshape({head_dim});
    }
    args.kv = {.k = pool.view().data,
               .v = pool.view().slice(1, 2).data,
               .dtype = kv_dtype,
               .num_heads = static_cast<std::int32_t>(kv_heads),
               .head_dim = static_cast<std::int32_t>(head_dim),
               .slot_stride = kv_heads * head_dim,
               .head_stride = head_dim,
               .num_slots = kSlots};
  }

  Tensor qkv, positions, out_locs, table, norm, q, pool;
  RopeStoreArgs args;
};

class RopeTest : public SimdTest {
 protected:
  CpuStream stream_{2};
};

TEST_P(RopeTest, MatchesTheReferenceWithAndWithoutNorms) {
  struct Case {
    std::int64_t tokens, q_heads, kv_heads, head_dim;
    bool norms;
  };
  for (const Case& c :
       {Case{1, 9, 3, 64, false}, Case{33, 9, 3, 64, false}, Case{3, 4, 2, 128, true},
        Case{17, 2, 1, 8, true}, Case{5, 3, 3, 24, true}, Case{2, 8, 1, 256, false}}) {
    const Step step(c.tokens, c.q_heads, c.kv_heads, c.head_dim, c.norms);
    const Step expected(c.tokens, c.q_heads, c.kv_heads, c.head_dim, c.norms);
    qk_norm_rope_store(step.args, stream_);
    stream_.synchronize();
    ref::qk_norm_rope_store(expected.args);
    for (std::int64_t i = 0; i < step.q.view().numel(); ++i)
      ASSERT_NEAR(step.q.view().as<float>()[i], expected.q.view().as<float>()[i], 2e-6)
          << c.head_dim << " " << i;
    for (std::int64_t i = 0; i < step.pool.view().numel(); ++i)
      ASSERT_NEAR(step.pool.view().as<float>()[i], expected.pool.view().as<float>()[i], 2e-6)
          << c.head_dim << " " << i;
  }
}

// Oracle: the formula in double, dimension by dimension.
TEST_P(RopeTest, DimensionsBeyondThoseOfTheTableAreKeptAsTheyAre) {
  constexpr std::int64_t kTokens = 5, kQHeads = 3, kKvHeads = 2;
  for (const auto& [head_dim, rotated] :
       {std::pair<std::int64_t, std::int64_t>{24, 18}, {24, 24}, {96, 2}, {32, 0}}) {
    Step step(kTokens, kQHeads, kKvHeads, head_dim, false);
    const std::vector<float> frequencies = inv_freq(rotated);
    const Tensor table = make_rope_table(frequencies, 1000);
    step.args.rope_table = rotated == 0 ? TensorView() : table.view();
    qk_norm_rope_store(step.args, stream_);
    stream_.synchronize();
    const std::int64_t half = rotated / 2;
    for (std::int64_t token = 0; token < kTokens; ++token)
      for (std::int64_t head = 0; head < kQHeads + kKvHeads; ++head)
        for (std::int64_t d = 0; d < head_dim; ++d) {
          const float* x =
              step.qkv.view().as<float>() + (token * (kQHeads + 2 * kKvHeads) + head) * head_dim;
          double want = x[d];
          if (d < rotated) {
            const double angle = double{frequencies[static_cast<std::size_t>(d % half)]} *
                                 step.positions.view().as<std::int32_t>()[token];
            want =
                x[d] * std::cos(angle) + (d < half ? -x[d + half] : x[d - half]) * std::sin(angle);
          }
          const std::int32_t slot = step.out_locs.view().as<std::int32_t>()[token];
          const float got =
              head < kQHeads
                  ? step.q.view().as<float>()[(token * kQHeads + head) * head_dim + d]
                  : step.pool.view().as<float>()[(slot * kKvHeads + head - kQHeads) * head_dim + d];
          if (d < rotated) {
            ASSERT_NEAR(got, want, 1e-4) << head_dim << ", head " << head << ", dim " << d;
          } else {
            ASSERT_EQ(got, x[d]) << head_dim << ", head " << head << ", dim " << d;
          }
        }
    Step expected(kTokens, kQHeads, kKvHeads, head_dim, false);
    expected.args.rope_table = step.args.rope_table;
    ref::qk_norm_rope_store(expected.args);
    for (std::int64_t i = 0; i < step.q.view().numel(); ++i)
      ASSERT_NEAR(step.q.view().as<float>()[i], expected.q.view().as<float>()[i], 2e-6);
  }
}

TEST_P(RopeTest, ATableWiderThanTheHeadIsRejected) {
  Step step(3, 2, 1, 16, false);
  const Tensor table = make_rope_table(inv_freq(32), 10);
  step.args.rope_table = table;
  try {
    qk_norm_rope_store(step.args, stream_);
    FAIL() << "expected Error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("rope_table turns 32 dimensions; expected an even "
                                             "number up to head_dim=16"));
  }
}

TEST_P(RopeTest, NarrowKeysAndValuesAreTheExactOnesRoundedToNearestEven) {
  const Step exact(33, 9, 3, 80, true);
  qk_norm_rope_store(exact.args, stream_);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const Step narrow(33, 9, 3, 80, true, dtype);
    qk_norm_rope_store(narrow.args, stream_);
    stream_.synchronize();
    const float* from = exact.pool.view().as<float>();
    const auto* to = reinterpret_cast<const std::uint16_t*>(narrow.pool.view().data);
    for (std::int64_t i = 0; i < exact.pool.view().numel(); ++i)
      ASSERT_EQ(to[i], dtype == DType::kBF16 ? to_bf16(from[i]).bits : to_f16(from[i]).bits) << i;
    EXPECT_EQ(std::memcmp(narrow.q.view().data, exact.q.view().data, exact.q.view().bytes()), 0);
  }
}

TEST(RopeReferenceTest, RoundsAsTheKernelDoes) {
  const Step exact(5, 2, 1, 16, true), narrow(5, 2, 1, 16, true, DType::kBF16);
  ref::qk_norm_rope_store(exact.args);
  ref::qk_norm_rope_store(narrow.args);
  for (std::int64_t i = 0; i < exact.pool.view().numel(); ++i)
    ASSERT_EQ(narrow.pool.view().as<BFloat16>()[i].bits,
              to_bf16(exact.pool.view().as<float>()[i]).bits);
}

TEST_P(RopeTest, ATokenIsTheSameAloneAndAmongOthers) {
  const Step all(33, 9, 3, 64, true);
  const Step one(33, 9, 3, 64, true);
  qk_norm_rope_store(all.args, stream_);
  RopeStoreArgs args = one.args;
  args.qkv = args.qkv.slice(20, 21);
  args.positions = args.positions.slice(20, 21);
  args.out_locs = args.out_locs.slice(20, 21);
  args.q = args.q.slice(20, 21);
  qk_norm_rope_store(args, stream_);
  stream_.synchronize();
  EXPECT_EQ(std::memcmp(args.q.data, all.q.view().slice(20, 21).data, args.q.bytes()), 0);
}

TEST_P(RopeTest, TouchesOnlyTheSlotsItWasGiven) {
  const Step step(3, 2, 1, 16, false);
  qk_norm_rope_store(step.args, stream_);
  stream_.synchronize();
  for (std::int64_t slot = 0; slot < kSlots; ++slot) {
    float sum = 0;
    for (std::int64_t d = 0; d < 16; ++d)
      sum += std::abs(step.pool.view().as<float>()[slot * 16 + d]);
    EXPECT_EQ(sum != 0, slot == 3 || slot == 10 || slot == 17) << slot;
  }
}

TEST(RopeTableTest, AnglesAreRoundedToFloatBeforeTheCosine) {
  const std::vector<float> freq = {1.0F, 0.3F};
  const Tensor table = make_rope_table(freq, 30000, 0.5F);
  const float* row = table.view().as<float>() + 29999 * 4;
  const float angle = 29999.0F * 0.3F;
  EXPECT_EQ(row[1], static_cast<float>(std::cos(double{angle})) * 0.5F);
  EXPECT_EQ(row[3], static_cast<float>(std::sin(double{angle})) * 0.5F);
  EXPECT_EQ(row[0], static_cast<float>(std::cos(29999.0)) * 0.5F);
}

TEST_P(RopeTest, RejectsAPoolOfAnotherHeadDim) {
  Step step(3, 2, 1, 16, false);
  step.args.kv.head_dim = 32;
  try {
    qk_norm_rope_store(step.args, stream_);
    FAIL() << "expected Error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("q has head_dim=16 but the KV pool has 32"));
  }
}

INSTANTIATE_TEST_SUITE_P(AllSimd, RopeTest, testing::ValuesIn(available_simd()), simd_name);

}  // namespace
}  // namespace minisgl::kernels
