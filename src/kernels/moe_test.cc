#include "kernels/moe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "minisgl/error.h"
#include "testing/random.h"

namespace minisgl::kernels {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_util::Random;

/// A routing and the memory that it is in.
struct Routed {
  Routed(std::int64_t tokens, std::int64_t chosen, std::int64_t num_experts)
      : experts({tokens, chosen}, DType::kI32),
        weights({tokens, chosen}, DType::kF32),
        rows({tokens, chosen}, DType::kI32),
        order({tokens * chosen}, DType::kI32),
        offsets({num_experts + 1}, DType::kI32) {}
  Routing view() const { return {experts, weights, rows, order, offsets}; }
  Tensor experts, weights, rows, order, offsets;
};

Tensor tensor_of(const Shape& shape, const std::vector<float>& values) {
  Tensor tensor(shape, DType::kF32);
  std::copy(values.begin(), values.end(), tensor.view().as<float>());
  return tensor;
}

template <class T>
std::vector<T> values_of(const Tensor& tensor) {
  const T* from = tensor.view().as<T>();
  return {from, from + tensor.view().numel()};
}

Routed route(const Shape& shape, const std::vector<float>& logits, std::int64_t chosen,
             bool normalize, int threads = 1) {
  CpuStream stream(threads);
  const Tensor tensor = tensor_of(shape, logits);
  Routed routed(shape[0], chosen, shape[1]);
  route_tokens(tensor, normalize, routed.view(), stream);
  stream.synchronize();
  return routed;
}

// Oracle: softmax over all of 2, 1, 0.5, -1 is 0.609460, 0.224208, 0.135989, 0.030343.
TEST(MoeTest, WeightsAreProbabilitiesAmongAllExperts) {
  const Routed plain = route({1, 4}, {2.0F, 1.0F, 0.5F, -1.0F}, 2, /*normalize=*/false);
  EXPECT_THAT(values_of<std::int32_t>(plain.experts), ElementsAre(0, 1));
  EXPECT_NEAR(values_of<float>(plain.weights)[0], 0.609460, 1e-6);
  EXPECT_NEAR(values_of<float>(plain.weights)[1], 0.224208, 1e-6);
  const Routed normalized = route({1, 4}, {2.0F, 1.0F, 0.5F, -1.0F}, 2, /*normalize=*/true);
  EXPECT_NEAR(values_of<float>(normalized.weights)[0], 0.731059, 1e-6);
  EXPECT_NEAR(values_of<float>(normalized.weights)[1], 0.268941, 1e-6);
}

TEST(MoeTest, AmongEqualLogitsTheLowerIndexIsChosen) {
  EXPECT_THAT(values_of<std::int32_t>(route({1, 5}, {0, 3, 1, 1, 1}, 3, true).experts),
              ElementsAre(1, 2, 3));
  EXPECT_THAT(values_of<std::int32_t>(route({1, 5}, {7, 7, 7, 7, 7}, 2, true).experts),
              ElementsAre(0, 1));
}

TEST(MoeTest, HugeLogitsOverflowNothing) {
  const Routed routed = route({1, 3}, {-3e38F, 3e38F, 2.9e38F}, 2, /*normalize=*/true);
  EXPECT_THAT(values_of<std::int32_t>(routed.experts), ElementsAre(1, 2));
  EXPECT_THAT(values_of<float>(routed.weights), ElementsAre(1.0F, 0.0F));
}

// The example drawn in moe.h.
TEST(MoeTest, RowsAreOrderedByExpertThenToken) {
  const Routed routed = route({2, 4}, {0, 2, 0, 1, 1, 2, 0, 0}, 2, /*normalize=*/true);
  EXPECT_THAT(values_of<std::int32_t>(routed.experts), ElementsAre(1, 3, 0, 1));
  EXPECT_THAT(values_of<std::int32_t>(routed.offsets), ElementsAre(0, 1, 3, 3, 4));
  EXPECT_THAT(values_of<std::int32_t>(routed.rows), ElementsAre(1, 3, 0, 2));
  EXPECT_THAT(values_of<std::int32_t>(routed.order), ElementsAre(1, 0, 1, 0));
}

TEST(MoeTest, LogitsThatAreNoNumbersStillChooseExperts) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Routed routed = route({1, 4}, {nan, nan, nan, nan}, 3, /*normalize=*/true);
  EXPECT_THAT(values_of<std::int32_t>(routed.experts), ElementsAre(0, 1, 2));
  EXPECT_TRUE(std::isnan(values_of<float>(routed.weights)[0]));
}

/// The routing of one token, in double and by sorting.
void expect_as_sorted(const std::vector<float>& logits, const Routed& routed, std::int64_t token,
                      bool normalize) {
  const std::int64_t chosen = routed.experts.view().dim(1);
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return logits[a] > logits[b]; });
  double all = 0;
  double best = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    all += std::exp(double{logits[order[i]]});
    if (static_cast<std::int64_t>(i) < chosen) best += std::exp(double{logits[order[i]]});
  }
  std::sort(order.begin(), order.begin() + chosen);
  for (std::int64_t j = 0; j < chosen; ++j) {
    const std::int64_t pair = token * chosen + j;
    const std::int32_t expert = order[static_cast<std::size_t>(j)];
    ASSERT_EQ(values_of<std::int32_t>(routed.experts)[pair], expert);
    ASSERT_NEAR(values_of<float>(routed.weights)[pair],
                std::exp(double{logits[expert]}) / (normalize ? best : all), 1e-6);
    const std::int32_t row = values_of<std::int32_t>(routed.rows)[pair];
    const auto offsets = values_of<std::int32_t>(routed.offsets);
    ASSERT_TRUE(row >= offsets[expert] && row < offsets[expert + 1]);
    ASSERT_EQ(values_of<std::int32_t>(routed.order)[row], token);
  }
}

TEST(MoeTest, RandomRoutingsAreThoseOfASortAndOfTheTokenAlone) {
  Random random(3);
  for (int trial = 0; trial < 60; ++trial) {
    const std::int64_t num_experts = random.between(1, 130);
    const std::int64_t chosen = random.between(1, std::min<std::int64_t>(num_experts, 10));
    const std::int64_t tokens = random.between(1, 40);
    const bool normalize = trial % 2 == 0;
    std::vector<float> logits(static_cast<std::size_t>(tokens * num_experts));
    for (float& logit : logits)  // coarse: many are equal
      logit = static_cast<float>(random.between(-8, 8)) * 0.5F;
    const Routed all = route({tokens, num_experts}, logits, chosen, normalize, 1 + trial % 3);
    EXPECT_EQ(values_of<std::int32_t>(all.offsets).back(), tokens * chosen);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::vector<float> own(logits.begin() + t * num_experts,
                                   logits.begin() + (t + 1) * num_experts);
      expect_as_sorted(own, all, t, normalize);
      if (HasFatalFailure()) return;
      const Routed alone = route({1, num_experts}, own, chosen, normalize);
      for (std::int64_t j = 0; j < chosen; ++j)
        ASSERT_EQ(values_of<float>(alone.weights)[j],
                  values_of<float>(all.weights)[t * chosen + j]);
    }
  }
}

TEST(MoeTest, AnswersAreAddedUpInTheOrderOfTheExperts) {
  Random random(4);
  CpuStream stream(2);
  for (const std::int64_t width : {1, 7, 256, 700}) {
    const std::int64_t tokens = 9, chosen = 3, num_experts = 6;
    const Routed routed =
        route({tokens, num_experts}, testing_util::uniform(tokens * num_experts, width), chosen,
              /*normalize=*/true);
    const std::vector<float> answers = testing_util::uniform(tokens * chosen * width, 5);
    const Tensor x = tensor_of({tokens * chosen, width}, answers);
    const Tensor y({tokens, width}, DType::kF32);
    combine_experts(x, routed.view(), y, stream);
    stream.synchronize();
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t i = 0; i < width; ++i) {
        float sum = 0;
        for (std::int64_t j = 0; j < chosen; ++j) {
          const std::int32_t row = values_of<std::int32_t>(routed.rows)[t * chosen + j];
          sum += values_of<float>(routed.weights)[t * chosen + j] * answers[row * width + i];
        }
        ASSERT_EQ(y.view().as<float>()[t * width + i], sum) << t << " " << i;
      }
    }
  }
}

TEST(MoeTest, ChoosingMoreExpertsThanThereAreIsAnError) {
  try {
    route({1, 2}, {0, 0}, 3, true);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("cannot choose 3 of 2 experts"));
  }
}

}  // namespace
}  // namespace minisgl::kernels
