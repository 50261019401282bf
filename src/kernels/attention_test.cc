#include "kernels/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/math.h"
#include "kernels/ref/reference.h"
#include "kernels/simd_testing.h"
#include "testing/random.h"

namespace minisgl::kernels {
namespace {

using testing_util::Random;

struct Heads {
  std::int32_t q = 9, kv = 3, dim = 64;
};

/// Sequences whose queries, keys and values are a function of (sequence, position) alone, in a pool
/// of shuffled pages.
class Sequences {
 public:
  Sequences(Heads heads, std::vector<std::int32_t> lengths, std::int32_t page_size,
            bool heads_apart = false)
      : heads_(heads), lengths_(std::move(lengths)), page_size_(page_size) {
    for (const std::int32_t length : lengths_)
      max_pages_ = std::max(max_pages_, ceil_div(length, page_size));
    const std::int64_t pages = max_pages_ * static_cast<std::int64_t>(lengths_.size()) + 1;
    table_ = Tensor({static_cast<std::int64_t>(lengths_.size()), max_pages_}, DType::kI32);
    auto* table = table_.view().as<std::int32_t>();
    std::iota(table, table + table_.view().numel(), 1);
    Random random(99);
    for (std::int64_t i = table_.view().numel() - 1; i > 0; --i)
      std::swap(table[i], table[random.below(i + 1)]);

    const std::int64_t slots = pages * page_size;
    pool_ = Tensor({2, slots, heads.kv, heads.dim}, DType::kF32);
    float* pool = pool_.view().as<float>();
    // What no sequence owns must not matter.
    std::fill(pool, pool + pool_.view().numel(), std::numeric_limits<float>::quiet_NaN());
    kv_ = {.k = pool_.view().data,
           .v = pool_.view().slice(1, 2).data,
           .num_heads = heads.kv,
           .head_dim = heads.dim,
           .slot_stride = std::int64_t{heads.kv} * heads.dim,
           .head_stride = heads.dim,
           .num_slots = slots,
           .page_size = page_size};
    if (heads_apart) {
      kv_.slot_stride = heads.dim;
      kv_.head_stride = slots * heads.dim;
    }
    for (std::size_t seq = 0; seq < lengths_.size(); ++seq)
      for (std::int32_t key = 0; key < lengths_[seq]; ++key)
        store(static_cast<std::int64_t>(seq), key);
  }

  /// Rows of a step: tokens [begin, end) of a sequence.
  struct Row {
    std::int64_t seq;
    std::int32_t begin, end;
  };

  /// Output [tokens][q_heads][dim] of a step.
  std::vector<float> attend(const std::vector<Row>& rows, CpuStream& stream,
                            bool reference = false) const {
    std::int64_t tokens = 0;
    Tensor cu({static_cast<std::int64_t>(rows.size()) + 1}, DType::kI32);
    Tensor seqlens({static_cast<std::int64_t>(rows.size())}, DType::kI32);
    Tensor table({static_cast<std::int64_t>(rows.size()), max_pages_}, DType::kI32);
    PagedAttentionArgs args;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      tokens += rows[i].end - rows[i].begin;
      cu.view().as<std::int32_t>()[i + 1] = static_cast<std::int32_t>(tokens);
      seqlens.view().as<std::int32_t>()[i] = rows[i].end;
      std::memcpy(table.view().as<std::int32_t>() + i * max_pages_,
                  table_.view().as<std::int32_t>() + rows[i].seq * max_pages_,
                  sizeof(std::int32_t) * max_pages_);
      args.max_seqlen_q = std::max(args.max_seqlen_q, rows[i].end - rows[i].begin);
      args.max_seqlen_k = std::max(args.max_seqlen_k, rows[i].end);
    }
    Tensor q({tokens, heads_.q, heads_.dim}, DType::kF32);
    Tensor out({tokens, heads_.q, heads_.dim}, DType::kF32);
    float* to = q.view().as<float>();
    for (const Row& row : rows) {
      for (std::int32_t position = row.begin; position < row.end; ++position) {
        Random random(row.seq * 1000003 + position * 3 + 2);
        for (std::int64_t i = 0; i < heads_.q * heads_.dim; ++i) *to++ = random.uniform() * 3;
      }
    }
    args.q = q;
    args.kv = kv_;
    args.cu_seqlens_q = cu;
    args.cache_seqlens = seqlens;
    args.page_table = table;
    args.scale = 1.0F / std::sqrt(static_cast<float>(heads_.dim));
    args.out = out;
    const Tensor workspace(
        {paged_attention_workspace_bytes(tokens, heads_.q, heads_.dim, args.max_seqlen_k,
                                         stream.num_threads())},
        DType::kU8);
    if (reference) {
      ref::paged_attention(args);
    } else {
      paged_attention(args, workspace, stream);
      stream.synchronize();
    }
    const float* from = out.view().as<float>();
    return {from, from + out.view().numel()};
  }

  std::int64_t token_floats() const { return std::int64_t{heads_.q} * heads_.dim; }

 private:
  void store(std::int64_t seq, std::int32_t key) {
    const std::int64_t page = table_.view().as<std::int32_t>()[seq * max_pages_ + key / page_size_];
    const std::int64_t slot = page * page_size_ + key % page_size_;
    Random random(seq * 1000003 + key * 3 + 1);
    for (std::int32_t head = 0; head < heads_.kv; ++head) {
      const std::int64_t at = slot * kv_.slot_stride + head * kv_.head_stride;
      for (std::int32_t d = 0; d < heads_.dim; ++d) {
        reinterpret_cast<float*>(kv_.k)[at + d] = random.uniform() * 3;
        reinterpret_cast<float*>(kv_.v)[at + d] = random.uniform();
      }
    }
  }

  Heads heads_;
  std::vector<std::int32_t> lengths_;
  std::int32_t page_size_;
  std::int32_t max_pages_ = 1;
  Tensor table_, pool_;
  KvView kv_;
};

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
       {Heads{9, 3, 64}, Heads{4, 4, 8}, Heads{14, 2, 64}, Heads{8, 1, 128}, Heads{3, 1, 24},
        Heads{5, 5, 40}, Heads{2, 2, 256}, Heads{6, 2, 80}, Heads{7, 1, 96}}) {
    const Sequences sequences(heads, {130, 1, 64, 65}, 16);
    const std::vector<Sequences::Row> rows = {{0, 97, 130}, {1, 0, 1}, {2, 63, 64}, {3, 0, 65}};
    expect_near(sequences.attend(rows, three_), sequences.attend(rows, three_, /*reference=*/true),
                ("head_dim " + std::to_string(heads.dim)).c_str());
  }
}

TEST_P(AttentionTest, MatchesTheReferenceAtTheBordersOfTilesAndSplits) {
  const Sequences sequences({3, 1, 16}, {1100}, 1);
  for (const std::int32_t length :
       {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 511, 512, 513, 576, 577, 1024, 1025, 1100}) {
    const std::vector<Sequences::Row> rows = {{0, length - 1, length}};
    expect_near(sequences.attend(rows, one_), sequences.attend(rows, one_, true), "decode");
    const std::vector<Sequences::Row> chunk = {{0, std::max(0, length - 40), length}};
    expect_near(sequences.attend(chunk, three_), sequences.attend(chunk, three_, true), "extend");
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
  const Sequences big_pages({9, 3, 64}, {kLength}, 256, /*heads_apart=*/true);
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
  wrong.kv.dtype = DType::kBF16;
  EXPECT_THAT(message(wrong), testing::HasSubstr("keys and values must be f32, not bf16"));
  wrong = args;
  wrong.cu_seqlens_q = lengths;
  EXPECT_THAT(message(wrong), testing::HasSubstr("cu_seqlens_q has shape [1]"));
}

INSTANTIATE_TEST_SUITE_P(AllSimd, AttentionTest, testing::ValuesIn(available_simd()), simd_name);

}  // namespace
}  // namespace minisgl::kernels
