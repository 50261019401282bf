#include "engine/step_work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace minisgl {
namespace {

ModelConfig config() {
  ModelConfig m;
  m.num_layers = 3;
  m.hidden_size = 64;
  m.intermediate_size = 160;
  m.num_heads = 4;
  m.num_kv_heads = 2;
  m.head_dim = 16;
  m.vocab_size = 1000;
  return m;
}

/// Rows given as {cached_len, device_len}; each is sampled.
Batch batch_of(const std::vector<std::pair<int, int>>& rows) {
  Batch batch;
  for (const auto& [cached, device] : rows) {
    batch.samples.emplace_back().batch_row = static_cast<std::int32_t>(batch.rows.size());
    batch.rows.push_back({RowId{0}, cached, device});
  }
  batch.num_rows = static_cast<std::int32_t>(rows.size());
  return batch;
}

// Counts every product and every key one by one.
StepWork counted_naively(const ModelConfig& m, const Batch& batch, double weight_bytes,
                         double kv_element_bytes) {
  StepWork work;
  const double kv_bytes = 2.0 * static_cast<double>(m.num_kv_heads * m.head_dim) * kv_element_bytes;
  double matrix_elements = 0;
  for (int layer = 0; layer < m.num_layers; ++layer) {
    const int window = m.layer_windows.empty() ? 0 : m.layer_windows[layer];
    const double elements =
        static_cast<double>(2 * m.hidden_size * m.num_heads * m.head_dim +     // q, o
                            2 * m.hidden_size * m.num_kv_heads * m.head_dim +  // k, v
                            3 * m.hidden_size * m.intermediate_size);          // gate, up, down
    matrix_elements += elements;
    for (int i = 0; i < batch.num_rows; ++i) {
      const BatchRow& row = batch.rows[i];
      std::vector<bool> seen(row.device_len, false);
      for (int p = row.cached_len; p < row.device_len; ++p) {
        work.flops += 2 * elements;
        work.write_bytes += kv_bytes;
        for (int key = 0; key <= p; ++key) {
          if (window > 0 && key <= p - window) continue;
          seen[key] = true;
          work.flops += 2.0 * 2.0 * static_cast<double>(m.num_heads * m.head_dim);
        }
      }
      work.read_bytes += kv_bytes * static_cast<double>(std::count(seen.begin(), seen.end(), true));
    }
  }
  const auto head = static_cast<double>(m.vocab_size * m.hidden_size);
  work.flops += 2 * head * static_cast<double>(batch.samples.size());
  work.read_bytes += (matrix_elements + head) * weight_bytes;
  return work;
}

void expect_equal(const StepWork& actual, const StepWork& expected) {
  EXPECT_NEAR(actual.flops, expected.flops, 1e-9 * expected.flops);
  EXPECT_NEAR(actual.read_bytes, expected.read_bytes, 1e-9 * expected.read_bytes);
  EXPECT_NEAR(actual.write_bytes, expected.write_bytes, 1e-9 * expected.write_bytes);
}

TEST(StepWorkTest, EqualsCountingProductsAndKeysOneByOne) {
  const Batch batch = batch_of({{9, 10}, {0, 1}, {30, 31}, {0, 17}, {12, 40}});
  expect_equal(StepWorkModel(config(), DType::kQ4_1, DType::kF32).estimate(batch),
               counted_naively(config(), batch, 20.0 / 32, 4));
}

TEST(StepWorkTest, LayersWithAWindowSeeLess) {
  ModelConfig m = config();
  m.layer_windows = {8, 0, 20};
  const Batch batch = batch_of({{9, 10}, {0, 1}, {7, 8}, {30, 31}, {0, 17}, {12, 40}, {3, 20}});
  expect_equal(StepWorkModel(m, DType::kBF16, DType::kBF16).estimate(batch),
               counted_naively(m, batch, 2, 2));
}

TEST(StepWorkTest, PaddingIsNoWork) {
  const StepWorkModel model(config(), DType::kBF16, DType::kBF16);
  const Batch plain = batch_of({{9, 10}, {19, 20}});
  Batch padded = batch_of({{9, 10}, {19, 20}});
  padded.rows.push_back({RowId{1}, 0, 1});
  expect_equal(model.estimate(padded), model.estimate(plain));
}

TEST(StepWorkTest, AStepReadsTheExpertsThatItsTokensChoose) {
  ModelConfig m = config();
  m.moe = {.num_experts = 8, .experts_per_token = 2, .intermediate_size = 32};
  m.sparse_layers = {true, true, true};
  const StepWorkModel model(m, DType::kBF16, DType::kBF16);
  const double expert = 3.0 * 64 * 32;
  m.moe.experts_per_token = 4;
  const StepWorkModel more(m, DType::kBF16, DType::kBF16);
  const Batch one = batch_of({{9, 10}});
  EXPECT_NEAR(more.estimate(one).read_bytes - model.estimate(one).read_bytes, 3 * 2 * expert * 2,
              1e-3)
      << "one token reads as many experts as it chooses";
  EXPECT_NEAR(more.estimate(one).flops - model.estimate(one).flops, 2 * 3 * 2 * expert, 1e-3);
  const Batch many = batch_of({{0, 500}});
  EXPECT_NEAR(more.estimate(many).read_bytes, model.estimate(many).read_bytes, 1)
      << "many tokens read all of them";
}

TEST(StepWorkTest, AStepOfNothingIsNoWork) {
  EXPECT_EQ(StepWorkModel(config(), DType::kF32, DType::kF32).estimate({}).read_bytes, 0);
}

}  // namespace
}  // namespace minisgl
