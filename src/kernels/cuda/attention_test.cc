// Attention on a GPU: the plain kernel against the oracle in double, the fast ones against the
// plain one on many random batches. Without a GPU every test is skipped.

#include "kernels/cuda/attention.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/attention_for_test.h"
#include "kernels/ref/reference.h"
#include "tensor/half.h"

namespace minisgl::kernels::attention_testing {
namespace {

TEST_F(GpuAttentionTest, ThePlainKernelIsTheOracleUpToRounding) {
  Random random(1);
  for (int round = 0; round < 40; ++round) {
    Case c = random_case(random, 150, 3);
    if (round % 4 == 0) c.head_dim = static_cast<std::int32_t>(8 * random.between(1, 32));
    SCOPED_TRACE(c.describe());
    const Problem p(c, random);
    Tensor expected(p.q.view().shape, DType::kF32);
    ref::paged_attention(
        p.args(widened(p.q), p.k, p.v, expected, p.cu_seqlens_q, p.cache_seqlens, p.page_table));
    const Results found = attend(p);
    expect_near(found.plain, expected, 0.004);
    expect_near(found.fast, expected, 0.012);
    expect_near(found.tiled, expected, 0.012);
  }
}

TEST_F(GpuAttentionTest, TheFastKernelsAreThePlainOneUpToRoundingOnAThousandRandomBatches) {
  Random random(2);
  for (int round = 0; round < 1000; ++round) {
    const Case c = random_case(random, round % 10 == 0 ? 2500 : 300, round % 7 == 0 ? 12 : 3);
    SCOPED_TRACE("round " + std::to_string(round) + ": " + c.describe());
    const Results found = attend(Problem(c, random));
    expect_near(found.fast, found.plain, 0.012);
    expect_near(found.tiled, found.plain, 0.012);
    if (HasFatalFailure()) return;
  }
}

TEST_F(GpuAttentionTest, OtherTypesAreThePlainKernelAndThatTheOracleUpToRounding) {
  struct Kind {
    DType type, kv_type;
    double plain, fast;  // tolerances: results are rounded, and so are the fast kernel's weights
  };
  for (const Kind kind : {Kind{DType::kBF16, DType::kF8E4M3, 0.004, 0.012},
                          Kind{DType::kF16, DType::kF16, 0.0006, 0.002},
                          Kind{DType::kF16, DType::kF8E4M3, 0.0006, 0.002}}) {
    Random random(8);
    for (int round = 0; round < 200; ++round) {
      const bool small = round % 5 == 0;
      Case c = random_case(random, small ? 120 : 500, small ? 3 : 8);
      c.type = kind.type;
      c.kv_type = kind.kv_type;
      SCOPED_TRACE("round " + std::to_string(round) + ": " + c.describe());
      const Problem p(c, random);
      const Results found = attend(p);
      expect_near(found.fast, found.plain, kind.fast);
      expect_near(found.tiled, found.plain, kind.fast);
      if (small) {
        const Tensor k = widened(p.k), v = widened(p.v);
        Tensor expected(p.q.view().shape, DType::kF32);
        ref::paged_attention(
            p.args(widened(p.q), k, v, expected, p.cu_seqlens_q, p.cache_seqlens, p.page_table));
        expect_near(found.plain, expected, kind.plain);
      }
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(GpuAttentionTest, TilesOfQueriesAreThePlainKernelUpToRoundingOnRandomBatches) {
  if (!gpu::takes_prefill_tiles(kGpu, 128, 16))
    GTEST_SKIP() << "this build or this GPU has no kernel that takes tiles";
  Random random(4);
  constexpr std::int32_t kPages[] = {8, 16, 32, 64, 128, 256, 384};
  for (int round = 0; round < 300; ++round) {
    Case c = random_case(random, round % 10 == 0 ? 3000 : 600, round % 7 == 0 ? 12 : 4);
    c.page_size = kPages[random.below(7)];
    c.window = 0;
    c.softcap = 0;
    // Decode rows come first, as in a step.
    std::stable_partition(c.sequences.begin(), c.sequences.end(),
                          [](const Sequence& s) { return s.queries == 1; });
    c.sequences.push_back({static_cast<std::int32_t>(random.between(2, 400)), 400});
    SCOPED_TRACE("round " + std::to_string(round) + ": " + c.describe());
    const Problem p(c, random);
    const Results found = attend(p);
    ASSERT_TRUE(found.has_tiles);
    expect_near(found.tiled, found.plain, 0.012);
    if (round % 25 == 0) expect_near(attend(p).tiled, found.tiled, 0);  // the counter is as it was
    if (HasFatalFailure()) return;
  }
}

TEST_F(GpuAttentionTest, ScoresBeyondWhatTheirMaskingMightAssumeAreNotTakenForMasked) {
  // Every score is far below -5e4, so that a key which is not seen must be less than any number.
  Case c;
  c.q_heads = c.kv_heads = 1;
  c.sequences = {{200, 300}};
  Random random(5);
  Problem p(c, random);
  for (std::int64_t i = 0; i < p.q.view().numel(); ++i)
    set_number(p.q, i, 40.0F + random.uniform());
  for (std::int64_t i = 0; i < p.k.view().numel(); ++i)
    set_number(p.k, i, -40.0F + 0.1F * random.uniform());
  const Results found = attend(p);
  expect_near(found.fast, found.plain, 0.03);
  expect_near(found.tiled, found.plain, 0.03);
}

TEST_F(GpuAttentionTest, DecodeIsSharedOutWhateverTheLengths) {
  Random random(6);
  for (int round = 0; round < 200; ++round) {
    Case c = random_case(random, 400, 2);
    c.window = round % 5 == 0 ? c.window : 0;
    c.sequences.clear();
    const std::int64_t count = random.between(1, round % 20 == 0 ? 300 : 40);
    for (std::int64_t i = 0; i < count; ++i)
      c.sequences.push_back(
          {1, static_cast<std::int32_t>(random.below(10) == 0 ? random.between(1, 40000 / count + 1)
                                                              : random.between(1, 200))});
    SCOPED_TRACE("round " + std::to_string(round) + ": " + std::to_string(count) + " sequences");
    const Results found = attend(Problem(c, random));
    expect_near(found.fast, found.plain, 0.012);
    if (HasFatalFailure()) return;
  }
}

TEST_F(GpuAttentionTest, ManySequencesAndLongOnesAreSharedOut) {
  Random random(3);
  for (const std::int32_t count : {1, 2, 64, 256}) {
    Case c;
    for (std::int32_t i = 0; i < count; ++i)
      c.sequences.push_back({1, static_cast<std::int32_t>(random.between(1, 20000 / count + 100))});
    SCOPED_TRACE(std::to_string(count) + " sequences");
    const Problem p(c, random);
    const Results first = attend(p);
    expect_near(first.fast, first.plain, 0.012);
    const Results second = attend(p);  // the tickets are as they were
    expect_near(second.fast, first.fast, 0);
  }
}

}  // namespace
}  // namespace minisgl::kernels::attention_testing
