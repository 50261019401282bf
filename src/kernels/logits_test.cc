#include "kernels/logits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "kernels/ref/reference.h"
#include "kernels/simd.h"
#include "testing/random.h"

namespace minisgl::kernels {
namespace {

using testing_util::Random;

constexpr float kInf = std::numeric_limits<float>::infinity();

Tensor random_logits(std::int64_t rows, std::int64_t vocab, Random& random) {
  Tensor logits({rows, vocab}, DType::kF32);
  for (std::int64_t i = 0; i < rows * vocab; ++i)
    logits.view().as<float>()[i] = 12.0F * random.uniform();
  return logits;
}

Tensor copy_of(const Tensor& from) {
  Tensor to(from.view().shape, from.view().dtype);
  std::memcpy(to.view().data, from.view().data, static_cast<std::size_t>(from.view().bytes()));
  return to;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return std::memcmp(a.view().data, b.view().data, static_cast<std::size_t>(a.view().bytes())) == 0;
}

/// The edits of a step, and who owns them.
struct Edits {
  std::vector<LogitEditRow> rows;
  std::vector<LogitEdit> edits;
  Tensor masks;

  LogitEdits view() {
    return {.rows = rows.data(),
            .num_rows = static_cast<std::int64_t>(rows.size()),
            .edits = edits.data(),
            .masks = masks.view()};
  }
};

Edits random_edits(std::int64_t num_rows, std::int64_t vocab, Random& random) {
  Edits e;
  const std::int64_t words = (vocab + 31) / 32;
  e.masks = Tensor({num_rows, words}, DType::kI32);
  for (std::int64_t i = 0; i < num_rows * words; ++i)
    e.masks.view().as<std::int32_t>()[i] =
        random.below(3) == 0 ? -1 : static_cast<std::int32_t>(random.below(std::int64_t{1} << 32));
  for (std::int64_t row = 0; row < num_rows; ++row) {
    if (random.below(4) == 0) continue;  // asks for nothing
    LogitEditRow r;
    r.row = static_cast<std::int32_t>(row);
    r.begin = static_cast<std::int32_t>(e.edits.size());
    r.mask = random.below(2) == 0 ? static_cast<std::int32_t>(row) : -1;
    r.repetition_penalty = 1.0F + 0.5F * std::abs(random.uniform());
    r.frequency_penalty = random.uniform();
    r.presence_penalty = random.uniform();
    std::set<std::int32_t> tokens;
    for (std::int64_t k = random.below(std::min<std::int64_t>(vocab, 40)); k > 0; --k)
      tokens.insert(static_cast<std::int32_t>(random.below(vocab)));
    for (const std::int32_t token : tokens) {
      LogitEdit edit;
      edit.token = token;
      edit.count = static_cast<std::int32_t>(random.below(4));
      edit.is_seen = edit.count > 0 || random.below(2) == 0 ? 1 : 0;
      edit.bias = random.below(8) == 0 ? -kInf : 3.0F * random.uniform();
      e.edits.push_back(edit);
    }
    r.end = static_cast<std::int32_t>(e.edits.size());
    e.rows.push_back(r);
  }
  return e;
}

TEST(LogitsTest, EditsEqualTheReferenceBitForBitAndOtherRowsKeepTheirs) {
  Random random(5);
  for (int round = 0; round < 60; ++round) {
    const std::int64_t rows = random.between(1, 9);
    const std::int64_t vocab = round % 3 == 0 ? random.between(1, 70) : random.between(900, 3000);
    SCOPED_TRACE("round " + std::to_string(round) + ", " + std::to_string(rows) + " rows of " +
                 std::to_string(vocab));
    const Tensor before = random_logits(rows, vocab, random);
    const Tensor logits = copy_of(before);
    const Tensor expected = copy_of(before);
    Edits edits = random_edits(rows, vocab, random);
    Edits reference{edits.rows, edits.edits, copy_of(edits.masks)};
    ref::edit_logits(expected, reference.view());
    CpuStream stream(round % 4 + 1);
    edit_logits(logits, edits.view(), stream);
    stream.synchronize();
    EXPECT_TRUE(same_bits(logits, expected));
    for (std::size_t i = 0; i < edits.edits.size(); ++i)
      EXPECT_EQ(edits.edits[i].original, reference.edits[i].original);
    std::set<std::int64_t> touched;
    for (const LogitEditRow& row : edits.rows) touched.insert(row.row);
    for (std::int64_t row = 0; row < rows; ++row) {
      if (touched.contains(row)) continue;
      EXPECT_EQ(std::memcmp(before.view().slice(row, row + 1).data,
                            logits.view().slice(row, row + 1).data,
                            static_cast<std::size_t>(vocab) * sizeof(float)),
                0);
    }
  }
}

TEST(LogitsTest, PenaltiesFollowTheirFormulas) {
  // By hand: repetition 2 halves a positive logit and doubles a negative one, of the prompt too;
  // frequency counts, presence does not; a bias comes before all of them.
  const Tensor logits({1, 6}, DType::kF32);
  const float start[] = {4, -4, 1, 1, 0.5, 3};
  std::memcpy(logits.view().data, start, sizeof(start));
  Edits e;
  e.rows = {{.row = 0,
             .begin = 0,
             .end = 5,
             .mask = -1,
             .repetition_penalty = 2,
             .frequency_penalty = 0.25,
             .presence_penalty = 0.5}};
  e.edits = {{.token = 0, .count = 0, .is_seen = 1},
             {.token = 1, .count = 1, .is_seen = 1},
             {.token = 2, .count = 3, .is_seen = 1},
             {.token = 3, .count = 0, .is_seen = 0, .bias = 7},
             {.token = 4, .count = 2, .is_seen = 1, .bias = -1.5}};
  CpuStream stream(1);
  edit_logits(logits, e.view(), stream);
  stream.synchronize();
  const float* x = logits.view().as<float>();
  EXPECT_EQ(x[0], 2);
  EXPECT_EQ(x[1], -8 - 0.25 - 0.5);
  EXPECT_EQ(x[2], 0.5 - 0.75 - 0.5);
  EXPECT_EQ(x[3], 8);
  EXPECT_EQ(x[4], -2 - 0.5 - 0.5);
  EXPECT_EQ(x[5], 3);
}

TEST(LogitsTest, MasksOfAnotherWidthThanTheVocabularyAreRefused) {
  const Tensor logits({1, 64}, DType::kF32);
  Edits e;
  e.masks = Tensor({1, 3}, DType::kI32);
  e.rows = {{.row = 0, .mask = 0}};
  CpuStream stream(1);
  try {
    edit_logits(logits, e.view(), stream);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("masks"), std::string::npos) << error.what();
  }
}

std::vector<RowLogprobs> top_of(const Tensor& logits, const std::vector<LogprobRow>& rows,
                                int threads) {
  std::vector<RowLogprobs> out(rows.size());
  CpuStream stream(threads);
  top_logprobs(logits, rows.data(), static_cast<std::int64_t>(rows.size()), out.data(), stream);
  stream.synchronize();
  return out;
}

TEST(LogprobsTest, AlternativesAndSumsAreThoseOfASortedSoftmax) {
  Random random(11);
  for (int round = 0; round < 40; ++round) {
    const std::int64_t vocab = round % 4 == 0 ? random.between(1, 60) : random.between(1000, 5000);
    const Tensor logits = random_logits(3, vocab, random);
    float* x = logits.view().as<float>();
    // Ties, and tokens that cannot be.
    for (int k = 0; k < 20; ++k) x[random.below(3 * vocab)] = x[random.below(3 * vocab)];
    for (int k = 0; k < 5; ++k) x[random.below(3 * vocab)] = -kInf;
    x[0] = x[vocab] = x[2 * vocab] = 5;
    const std::vector<LogprobRow> rows = {
        {.row = 2, .top = 50}, {.row = 0, .top = 0}, {.row = 1, .top = 5}};
    set_simd("plain");
    const std::vector<RowLogprobs> out = top_of(logits, rows, round % 3 + 1);
    for (const Simd simd : available_simd()) {
      set_simd(name(simd));
      const std::vector<RowLogprobs> same = top_of(logits, rows, 1);
      EXPECT_EQ(std::memcmp(same.data(), out.data(), out.size() * sizeof(RowLogprobs)), 0)
          << name(simd);
    }
    set_simd("auto");
    for (std::size_t i = 0; i < rows.size(); ++i) {
      SCOPED_TRACE("round " + std::to_string(round) + ", row " + std::to_string(i));
      const TensorView row = logits.view().slice(rows[i].row, rows[i].row + 1).reshape({vocab});
      const std::vector<double> p = ref::log_softmax(row);
      std::vector<std::int32_t> order(static_cast<std::size_t>(vocab));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](std::int32_t a, std::int32_t b) { return p[a] > p[b]; });
      const auto possible = std::count_if(p.begin(), p.end(), [](double v) { return v > -kInf; });
      ASSERT_EQ(out[i].num_top, std::min<std::int64_t>(rows[i].top, possible));
      EXPECT_NEAR(out[i].normalizer, row.as<float>()[order[0]] - p[order[0]], 1e-5);
      for (std::int32_t k = 0; k < out[i].num_top; ++k) {
        EXPECT_EQ(out[i].tokens[k], order[k]);
        EXPECT_NEAR(out[i].logprobs[k], p[order[k]], 1e-5);
      }
    }
  }
}

TEST(LogprobsTest, TheChosenTokensLogProbabilityIsThatOfTheLogitsBeforeTheirEdits) {
  Random random(13);
  for (int round = 0; round < 30; ++round) {
    const std::int64_t vocab = random.between(40, 2000);
    const Tensor before = random_logits(4, vocab, random);
    const Tensor logits = copy_of(before);
    Edits edits = random_edits(4, vocab, random);
    for (LogitEditRow& row : edits.rows) row.mask = -1;  // a token that is masked is never drawn
    std::vector<LogprobRow> rows(4);
    for (std::int32_t i = 0; i < 4; ++i) rows[i].row = i;
    for (std::size_t e = 0; e < edits.rows.size(); ++e)
      rows[edits.rows[e].row].edit_row = static_cast<std::int32_t>(e);
    const Tensor tokens({4}, DType::kI32);
    for (int i = 0; i < 4; ++i) {
      // An edited token half of the time.
      const LogitEditRow* row = rows[i].edit_row < 0 ? nullptr : &edits.rows[rows[i].edit_row];
      tokens.view().as<std::int32_t>()[i] =
          row != nullptr && row->end > row->begin && round % 2 == 0
              ? edits.edits[random.between(row->begin, row->end - 1)].token
              : static_cast<std::int32_t>(random.below(vocab));
    }
    std::vector<RowLogprobs> out(4);
    CpuStream stream(2);
    top_logprobs(logits, rows.data(), 4, out.data(), stream);
    edit_logits(logits, edits.view(), stream);
    chosen_logprobs(logits, rows.data(), 4, tokens, edits.view(), out.data(), stream);
    stream.synchronize();
    for (std::int64_t i = 0; i < 4; ++i) {
      const std::vector<double> p =
          ref::log_softmax(before.view().slice(i, i + 1).reshape({vocab}));
      EXPECT_NEAR(out[i].chosen, p[tokens.view().as<std::int32_t>()[i]], 1e-5);
    }
  }
}

TEST(LogprobsTest, WhatIsNoDistributionHasNoProbabilities) {
  const Tensor logits({3, 40}, DType::kF32);
  float* x = logits.view().as<float>();
  std::fill(x, x + 40, -kInf);
  std::fill(x + 40, x + 80, 0.0F);
  x[47] = kInf;
  std::fill(x + 80, x + 120, 0.0F);
  x[85] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<LogprobRow> rows = {
      {.row = 0, .top = 3}, {.row = 1, .top = 3}, {.row = 2, .top = 3}};
  const std::vector<RowLogprobs> out = top_of(logits, rows, 1);
  EXPECT_EQ(out[0].num_top, 0);
  ASSERT_EQ(out[1].num_top, 3);
  for (int k = 0; k < 3; ++k) EXPECT_EQ(out[1].logprobs[k], -kInf);
  ASSERT_EQ(out[2].num_top, 3);  // as if the token that is NaN were not there
  EXPECT_NEAR(out[2].logprobs[0], -std::log(39.0), 1e-6);
  EXPECT_EQ(out[2].tokens[0], 0);
}

}  // namespace
}  // namespace minisgl::kernels
