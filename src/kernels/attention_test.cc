#include "kernels/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/attention_for_test.h"
#include "kernels/cpu/table.h"
#include "kernels/simd_testing.h"

namespace minisgl::kernels {
namespace {

using testing_util::Random;

void expect_near(const std::vector<float>& actual, const std::vector<float>& expected,
                 const char* what) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], 3e-6) << what << " " << i;
}

class AttentionTest : public SimdTest {
 protected:
  CpuStream one_{1};
  CpuStream three_{3};
};

TEST_P(AttentionTest, MatchesTheReferenceForEveryShapeOfHead) {
  for (const Heads heads :
       {Heads{9, 3, 64}, Heads{4, 2, 32}, Heads{4, 4, 8}, Heads{14, 2, 64}, Heads{8, 1, 128},
        Heads{3, 1, 24}, Heads{5, 5, 40}, Heads{2, 2, 256}, Heads{6, 2, 80}, Heads{7, 1, 96}}) {
    const Sequences sequences(heads, {130, 1, 64, 65}, 16);
    const std::vector<Sequences::Row> rows = {{0, 97, 130}, {1, 0, 1}, {2, 63, 64}, {3, 0, 65}};
    expect_near(sequences.attend(rows, three_), sequences.attend(rows, three_, How::kOracle),
                ("head_dim " + std::to_string(heads.dim)).c_str());
  }
}

TEST_P(AttentionTest, MatchesTheReferenceAtTheBordersOfTilesAndSplits) {
  const Sequences sequences({3, 1, 16}, {1100}, 1);
  for (const std::int32_t length :
       {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 511, 512, 513, 576, 577, 1024, 1025, 1100}) {
    const std::vector<Sequences::Row> rows = {{0, length - 1, length}};
    expect_near(sequences.attend(rows, one_), sequences.attend(rows, one_, How::kOracle), "decode");
    const std::vector<Sequences::Row> chunk = {{0, std::max(0, length - 40), length}};
    expect_near(sequences.attend(chunk, three_), sequences.attend(chunk, three_, How::kOracle),
                "extend");
  }
}

/// Token-by-token decode of a 700-token sequence: what every chunking must equal, bit for bit.
std::vector<float> decode_all(const Sequences& sequences, std::int64_t seq, std::int32_t length,
                              CpuStream& stream) {
  std::vector<float> all;
  for (std::int32_t i = 0; i < length; ++i) {
    const std::vector<float> one = sequences.attend({{seq, i, i + 1}}, stream);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

TEST_P(AttentionTest, EveryChunkingPageSizeAndThreadCountGivesTheSameBitsAsDecode) {
  constexpr std::int32_t kLength = 700;
  const Sequences scattered({9, 3, 64}, {kLength}, 1);
  const std::vector<float> expected = decode_all(scattered, 0, kLength, one_);
  const Sequences pages({9, 3, 64}, {kLength}, 16);
  const Sequences big_pages({9, 3, 64}, {kLength}, 256, {.heads_apart = true});
  Random random(5);
  for (int trial = 0; trial < 9; ++trial) {
    const Sequences& sequences = trial % 3 == 0 ? scattered : trial % 3 == 1 ? pages : big_pages;
    CpuStream& stream = trial % 2 == 0 ? one_ : three_;
    std::int32_t begin = 0;
    while (begin < kLength) {
      const std::int64_t most = trial == 0 ? kLength : trial < 4 ? 300 : 40;
      const auto end = trial == 0 ? kLength
                                  : static_cast<std::int32_t>(std::min<std::int64_t>(
                                        kLength, begin + random.between(1, most)));
      const std::vector<float> actual = sequences.attend({{0, begin, end}}, stream);
      ASSERT_EQ(std::memcmp(actual.data(), expected.data() + begin * sequences.token_floats(),
                            actual.size() * sizeof(float)),
                0)
          << "tokens " << begin << " to " << end << ", trial " << trial;
      begin = end;
    }
  }
}

TEST_P(AttentionTest, ARowDoesNotDependOnItsNeighboursInTheBatch) {
  const Sequences sequences({14, 2, 40}, {700, 1300, 3, 64, 520}, 16);
  Random random(6);
  for (int trial = 0; trial < 6; ++trial) {
    std::vector<Sequences::Row> rows;
    for (std::int64_t seq = 0; seq < 5; ++seq) {
      const std::int32_t length = std::vector<std::int32_t>{700, 1300, 3, 64, 520}[seq];
      const auto end = static_cast<std::int32_t>(random.between(1, length));
      rows.push_back({seq,
                      random.below(2) == 0 ? end - 1 : static_cast<std::int32_t>(random.below(end)),
                      end});
    }
    const std::vector<float> together = sequences.attend(rows, three_);
    const float* at = together.data();
    for (const Sequences::Row& row : rows) {
      const std::vector<float> alone = sequences.attend({row}, one_);
      ASSERT_EQ(std::memcmp(at, alone.data(), alone.size() * sizeof(float)), 0)
          << "sequence " << row.seq;
      at += alone.size();
    }
  }
}

TEST_P(AttentionTest, AWorkspaceForOneThreadGivesTheSameBits) {
  const Sequences sequences({9, 3, 64}, {1600}, 16);
  const std::vector<float> shared = sequences.attend({{0, 1599, 1600}}, three_);
  const std::vector<float> alone = sequences.attend({{0, 1599, 1600}}, one_);
  EXPECT_EQ(std::memcmp(shared.data(), alone.data(), alone.size() * sizeof(float)), 0);
}

TEST_P(AttentionTest, AQuerySeesItsLastKeysAloneWhenThereIsAWindow) {
  Sequences sequences({6, 2, 40}, {1100, 130}, 16);
  for (const std::int32_t window : {1, 63, 64, 65, 512, 700, 5000}) {
    sequences.window_tokens = window;
    for (const std::vector<Sequences::Row>& rows :
         {std::vector<Sequences::Row>{{0, 1099, 1100}, {1, 64, 65}},
          {{0, 1000, 1100}, {1, 0, 130}},
          {{0, 500, 600}}}) {
      const std::vector<float> expected = sequences.attend(rows, one_, How::kOracle);
      for (CpuStream* stream : {&one_, &three_})
        expect_near(sequences.attend(rows, *stream), expected,
                    ("window " + std::to_string(window)).c_str());
    }
  }
}

TEST_P(AttentionTest, KeysOutsideTheWindowMayHoldAnything) {
  for (const std::int32_t window : {1, 40, 64, 600}) {
    Sequences clean({9, 3, 64}, {1300}, 16);
    Sequences poisoned({9, 3, 64}, {1300}, 16);
    clean.window_tokens = poisoned.window_tokens = window;
    // The first of the 20 queries sees key 1280 - window + 1 first.
    poisoned.poison(0, 0, 1281 - window);
    const std::vector<Sequences::Row> rows = {{0, 1280, 1300}};
    for (const How how : {How::kPaged, How::kRagged}) {
      const std::vector<float> expected = clean.attend(rows, three_, how);
      const std::vector<float> actual = poisoned.attend(rows, three_, how);
      ASSERT_EQ(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)), 0)
          << "window " << window;
    }
  }
}

TEST_P(AttentionTest, TheSoftCapBoundsTheScores) {
  Sequences sequences({6, 2, 64}, {600}, 16);
  for (const float cap : {0.5F, 5.0F, 50.0F}) {
    sequences.softcap = cap;
    const std::vector<Sequences::Row> rows = {{0, 560, 600}};
    expect_near(sequences.attend(rows, three_), sequences.attend(rows, three_, How::kOracle),
                ("cap " + std::to_string(cap)).c_str());
  }
}

TEST_P(AttentionTest, TheHyperbolicTangentOfTheSoftCapIsRightInTheLastPlaces) {
  std::vector<float> x = {0.0F, -0.0F, 0.625F, 1e-30F, 1e30F, -1e30F, 0.62499997F};
  for (int i = -2000; i <= 2000; ++i) x.push_back(static_cast<float>(i) * 0.00517F);
  std::vector<float> y = x;
  cpu_kernels().softcap(y.data(), static_cast<std::int64_t>(y.size()), 1.0F);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = std::tanh(double{x[i]});
    ASSERT_NEAR(y[i], expected, std::abs(expected) * 3 * 0x1p-24 + 1e-44) << x[i];
  }
}

TEST_P(AttentionTest, NarrowKeysAndValuesAreWidenedWithoutLossForEverySizeOfHead) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const std::int32_t dim : {8, 24, 32, 64, 80, 96, 128, 256}) {
      const Sequences sequences({6, 2, dim}, {600, 70}, 16, {.dtype = dtype});
      const std::vector<Sequences::Row> rows = {{0, 599, 600}, {1, 50, 70}};
      expect_near(sequences.attend(rows, three_), sequences.attend(rows, three_, How::kOracle),
                  (std::string(name(dtype)) + " head_dim " + std::to_string(dim)).c_str());
    }
  }
}

TEST_P(AttentionTest, NarrowKeysAndValuesGiveNearlyTheResultOfExactOnes) {
  for (const std::int32_t dim : {32, 64, 80, 96, 128, 256}) {
    const Sequences exact({6, 2, dim}, {600, 70}, 16, {.amplitude = 1.5});
    const Sequences narrow({6, 2, dim}, {600, 70}, 16, {.dtype = DType::kBF16, .amplitude = 1.5});
    const std::vector<Sequences::Row> rows = {{0, 599, 600}, {1, 50, 70}};
    const std::vector<float> expected = exact.attend(rows, one_, How::kOracle);
    const std::vector<float> actual = narrow.attend(rows, one_);
    // Values lie in [-1, 1): the largest of 70 * dim is 1 but for a little.
    for (std::size_t i = 0; i < actual.size(); ++i)
      ASSERT_NEAR(actual[i], expected[i], 8e-3) << "head_dim " << dim << ", element " << i;
  }
}

TEST_P(AttentionTest, AllWaysToComputeGiveTheSameBits) {
  struct Case {
    Heads heads;
    DType dtype;
    std::int32_t page_size, window;
    float softcap;
  };
  Random random(8);
  for (const Case& c :
       {Case{{9, 3, 64}, DType::kF32, 16, 0, 0}, Case{{4, 4, 8}, DType::kF32, 1, 70, 0},
        Case{{8, 1, 128}, DType::kBF16, 4, 0, 0}, Case{{3, 1, 24}, DType::kF16, 16, 600, 5},
        Case{{6, 2, 80}, DType::kBF16, 64, 520, 0}, Case{{2, 2, 96}, DType::kF32, 32, 1, 2}}) {
    const std::vector<std::int32_t> lengths = {1300, 600, 90};
    Sequences sequences(c.heads, lengths, c.page_size, {.dtype = c.dtype});
    sequences.window_tokens = c.window;
    sequences.softcap = c.softcap;
    for (int trial = 0; trial < 2; ++trial) {
      std::vector<Sequences::Row> rows;
      for (std::int64_t seq = 0; seq < 3; ++seq) {
        const auto end = static_cast<std::int32_t>(random.between(1, lengths[seq]));
        rows.push_back(
            {seq, std::max(0, end - static_cast<std::int32_t>(random.between(1, 30))), end});
      }
      const std::vector<float> expected = sequences.attend(rows, one_, How::kInOrder);
      for (const How how : {How::kPaged, How::kRagged})
        for (CpuStream* stream : {&one_, &three_}) {
          const std::vector<float> actual = sequences.attend(rows, *stream, how);
          for (std::size_t i = 0; i < actual.size(); ++i)
            ASSERT_EQ(actual[i], expected[i]) << "head_dim " << c.heads.dim << ", element " << i
                                              << ", way " << static_cast<int>(how);
        }
    }
  }
}

TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  const Sequences sequences({1, 1, 8}, {100}, 1);
  const std::vector<float> out = sequences.attend({{0, 0, 100}}, one_);
  for (const float value : out) ASSERT_TRUE(std::isfinite(value));
}

TEST(AttentionArgsTest, DisagreementsAreNamed) {
  CpuStream stream(1);
  const Tensor q({1, 9, 64}, DType::kF32), lengths({1}, DType::kI32), cu({2}, DType::kI32),
      table({1, 4}, DType::kI32);
  const Tensor workspace({paged_attention_workspace_bytes(1, 9, 64, 64, 1)}, DType::kU8);
  PagedAttentionArgs args{.q = q,
                          .kv = {.num_heads = 3, .head_dim = 64, .page_size = 16},
                          .cu_seqlens_q = cu,
                          .cache_seqlens = lengths,
                          .page_table = table,
                          .max_seqlen_k = 64,
                          .out = q};
  const auto message = [&](const PagedAttentionArgs& wrong) {
    try {
      paged_attention(wrong, workspace, stream);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  PagedAttentionArgs wrong = args;
  wrong.kv.num_heads = 4;
  EXPECT_THAT(message(wrong), testing::HasSubstr("9 query heads are not a multiple of 4 KV heads"));
  wrong = args;
  wrong.kv.head_dim = 128;
  EXPECT_THAT(message(wrong), testing::HasSubstr("q has head_dim=64 but the KV pool has 128"));
  wrong = args;
  wrong.max_seqlen_k = 65;
  EXPECT_THAT(message(wrong),
              testing::HasSubstr("page_table has 4 pages of 16, too few for 65 keys"));
  wrong = args;
  wrong.kv.dtype = DType::kI8;
  EXPECT_THAT(message(wrong),
              testing::HasSubstr("keys and values must be f32, bf16 or f16, not i8"));
  wrong = args;
  wrong.cu_seqlens_q = lengths;
  EXPECT_THAT(message(wrong), testing::HasSubstr("cu_seqlens_q has shape [1]"));
}

INSTANTIATE_TEST_SUITE_P(AllSimd, AttentionTest, testing::ValuesIn(available_simd()), simd_name);

}  // namespace
}  // namespace minisgl::kernels
