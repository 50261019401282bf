// Edits of logits and log-probabilities on a GPU against the plain formulas. Without a GPU every
// test is skipped.

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
#include "testing/gpu.h"
#include "testing/random.h"

namespace minisgl::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// The arguments of a step on the host and, copied, on the device.
struct Step {
  Tensor logits, masks, tokens;
  std::vector<LogitEditRow> rows;
  std::vector<LogitEdit> edits;
  std::vector<LogprobRow> logprobs;

  LogitEdits host() {
    return {.rows = rows.data(),
            .num_rows = static_cast<std::int64_t>(rows.size()),
            .edits = edits.data(),
            .masks = masks.view()};
  }
};

Step random_step(std::int64_t num_rows, std::int64_t vocab, testing_util::Random& random) {
  Step step;
  const std::int64_t words = (vocab + 31) / 32;
  step.logits = Tensor({num_rows, vocab}, DType::kF32);
  step.masks = Tensor({num_rows, words}, DType::kI32);
  step.tokens = Tensor({num_rows}, DType::kI32);
  for (std::int64_t i = 0; i < num_rows * vocab; ++i)
    // Many ties.
    step.logits.view().as<float>()[i] = static_cast<float>(random.below(2000)) * 0.01F - 10;
  for (std::int64_t i = 0; i < num_rows * words; ++i)
    step.masks.view().as<std::int32_t>()[i] = static_cast<std::int32_t>(random.next() >> 32);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const auto at = static_cast<std::int32_t>(row);
    step.tokens.view().as<std::int32_t>()[row] = static_cast<std::int32_t>(random.below(vocab));
    LogprobRow logprob{.row = at, .top = static_cast<std::int32_t>(random.below(51))};
    if (random.below(3) > 0) {
      logprob.edit_row = static_cast<std::int32_t>(step.rows.size());
      LogitEditRow edited{.row = at, .begin = static_cast<std::int32_t>(step.edits.size())};
      edited.mask = random.below(2) == 0 ? at : -1;
      edited.repetition_penalty = 1.37F;
      edited.frequency_penalty = random.uniform();
      edited.presence_penalty = random.uniform();
      std::set<std::int32_t> tokens = {step.tokens.view().as<std::int32_t>()[row]};
      for (std::int64_t k = random.below(std::min<std::int64_t>(vocab, 3000)); k > 0; --k)
        tokens.insert(static_cast<std::int32_t>(random.below(vocab)));
      for (const std::int32_t token : tokens)
        step.edits.push_back({.token = token,
                              .count = static_cast<std::int32_t>(random.below(3)),
                              .is_seen = static_cast<std::int32_t>(random.below(2)),
                              .bias = random.below(9) == 0 ? -kInf : random.uniform()});
      edited.end = static_cast<std::int32_t>(step.edits.size());
      step.rows.push_back(edited);
    }
    step.logprobs.push_back(logprob);
  }
  return step;
}

class GpuLogitsTest : public testing_util::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) stream_ = cuda::make_stream(kGpu);
  }

  template <class T>
  Buffer to_gpu(const std::vector<T>& values) {
    Buffer buffer(std::max<std::size_t>(1, values.size()) * sizeof(T), {.device = kGpu});
    stream_->copy(buffer.data(), values.data(), values.size() * sizeof(T));
    stream_->synchronize();
    return buffer;
  }

  std::unique_ptr<Stream> stream_;
};

TEST_F(GpuLogitsTest, EditsAreTheReferencesBitsAndLogProbabilitiesThoseOfASoftmax) {
  testing_util::Random random(17);
  for (const std::int64_t vocab : {1, 33, 640, 5000, 49152, 151936}) {
    SCOPED_TRACE(std::to_string(vocab) + " tokens");
    constexpr std::int64_t kRows = 6;
    Step step = random_step(kRows, vocab, random);
    const Tensor logits = testing_util::copy_to(step.logits, kGpu, *stream_);
    const Tensor masks = testing_util::copy_to(step.masks, kGpu, *stream_);
    const Tensor tokens = testing_util::copy_to(step.tokens, kGpu, *stream_);
    const Buffer rows = to_gpu(step.rows);
    const Buffer edits = to_gpu(step.edits);
    const Buffer logprobs = to_gpu(step.logprobs);
    std::vector<RowLogprobs> out(kRows);
    const Buffer results = to_gpu(out);
    const LogitEdits on_gpu{.rows = reinterpret_cast<const LogitEditRow*>(rows.data()),
                            .num_rows = static_cast<std::int64_t>(step.rows.size()),
                            .edits = reinterpret_cast<LogitEdit*>(edits.data()),
                            .masks = masks.view()};
    const auto* which = reinterpret_cast<const LogprobRow*>(logprobs.data());
    auto* written = reinterpret_cast<RowLogprobs*>(results.data());
    top_logprobs(logits, which, kRows, written, *stream_);
    edit_logits(logits, on_gpu, *stream_);
    chosen_logprobs(logits, which, kRows, tokens, on_gpu, written, *stream_);
    stream_->copy(out.data(), results.data(), out.size() * sizeof(RowLogprobs));
    const Tensor edited = testing_util::copy_to(logits, kCpu, *stream_);

    for (std::int64_t i = 0; i < kRows; ++i) {
      const std::vector<double> p =
          ref::log_softmax(step.logits.view().slice(i, i + 1).reshape({vocab}));
      std::vector<std::int32_t> order(static_cast<std::size_t>(vocab));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](std::int32_t a, std::int32_t b) { return p[a] > p[b]; });
      ASSERT_EQ(out[i].num_top, std::min<std::int64_t>(step.logprobs[i].top, vocab));
      for (std::int32_t k = 0; k < out[i].num_top; ++k) {
        ASSERT_EQ(out[i].tokens[k], order[k]) << "row " << i << ", place " << k;
        EXPECT_NEAR(out[i].logprobs[k], p[order[k]], 1e-5);
      }
      const std::int32_t token = step.tokens.view().as<std::int32_t>()[i];
      // A token that the mask forbids is not drawn, unless an edit kept what it was.
      EXPECT_NEAR(out[i].chosen, p[token], 1e-5) << "row " << i;
    }
    ref::edit_logits(step.logits, step.host());
    EXPECT_EQ(std::memcmp(edited.view().data, step.logits.view().data,
                          static_cast<std::size_t>(edited.view().bytes())),
              0);
  }
}

TEST_F(GpuLogitsTest, WhatIsNoDistributionHasNoProbabilities) {
  const Tensor logits({3, 40}, DType::kF32);
  float* x = logits.view().as<float>();
  std::fill(x, x + 40, -kInf);
  std::fill(x + 40, x + 80, 0.0F);
  x[47] = kInf;
  std::fill(x + 80, x + 120, 0.0F);
  x[85] = std::numeric_limits<float>::quiet_NaN();
  const Tensor on_gpu = testing_util::copy_to(logits, kGpu, *stream_);
  const Buffer rows = to_gpu(
      std::vector<LogprobRow>{{.row = 0, .top = 3}, {.row = 1, .top = 3}, {.row = 2, .top = 3}});
  std::vector<RowLogprobs> out(3);
  const Buffer results = to_gpu(out);
  top_logprobs(on_gpu, reinterpret_cast<const LogprobRow*>(rows.data()), 3,
               reinterpret_cast<RowLogprobs*>(results.data()), *stream_);
  stream_->copy(out.data(), results.data(), out.size() * sizeof(RowLogprobs));
  stream_->synchronize();
  EXPECT_EQ(out[0].num_top, 0);
  ASSERT_EQ(out[1].num_top, 3);
  for (int k = 0; k < 3; ++k) EXPECT_EQ(out[1].logprobs[k], -kInf);
  ASSERT_EQ(out[2].num_top, 3);
  EXPECT_EQ(out[2].tokens[0], 0);
  EXPECT_NEAR(out[2].logprobs[0], -std::log(39.0), 1e-6);
}

}  // namespace
}  // namespace minisgl::kernels
