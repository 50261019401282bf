// All backends on the same batches: bit for bit, and against the oracle in double.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "attention/backend_for_test.h"
#include "kernels/ref/reference.h"

namespace minisgl {
namespace {

using testing_util::Random;

constexpr std::int64_t kLongest = 1300;  // three splits

AttentionShape random_shape(std::int32_t page_size, Random& random) {
  AttentionShape shape = shape_with(page_size);
  shape.num_heads = 4;
  shape.max_seq_len_tokens = kLongest;
  if (random.below(3) == 0)
    shape.sliding_window = static_cast<std::int32_t>(random.between(1, 600));
  if (random.below(3) == 0) {  // layers differ: one plan must serve both
    const auto narrow = static_cast<std::int32_t>(random.between(1, 600));
    const auto wide = static_cast<std::int32_t>(random.below(2) * random.between(600, 1200));
    shape.layer_windows = {narrow, wide};
  }
  if (random.below(4) == 0) shape.softcap = 2;
  return shape;
}

/// Decode rows, extending rows and padding, in this order; each kind may be missing.
void fill_batch(World& world, Random& random) {
  Batch& batch = world.batch;
  batch.rows.clear();
  const auto rows = static_cast<std::int32_t>(random.between(1, kMaxRows - 1));
  const std::int64_t kind = random.below(4);
  batch.num_decode = kind == 0   ? rows
                     : kind == 1 ? 0
                                 : static_cast<std::int32_t>(random.below(rows + 1));
  for (std::int32_t row = 0; row < rows; ++row) {
    const bool is_long = random.below(12) == 0;
    // Often just at a border of a tile, a page or a split.
    const std::int64_t any = random.between(1, is_long ? kLongest : 150);
    const std::int64_t border = (is_long ? 512 : 64) + random.between(-1, 1);
    const auto length = static_cast<std::int32_t>(random.below(4) == 0 ? border : any);
    const std::int64_t most = is_long ? 4 : 20;
    const auto extend = row < batch.num_decode
                            ? 1
                            : static_cast<std::int32_t>(std::min<std::int64_t>(
                                  length, random.below(4) == 0 ? length : random.between(1, most)));
    const std::int32_t tokens = std::min(extend, 24);
    batch.rows.push_back({RowId{row}, length - tokens, length});
  }
  batch.num_rows = rows;
  while (random.below(2) == 0 && static_cast<std::int32_t>(batch.rows.size()) < kMaxRows)
    world.pad();
}

std::vector<std::string> names_for(std::int32_t page_size) {
  std::vector<std::string> names = {"ref", "fa", "fi", "fa,fi", "fi,ref"};
  if (page_size >= 16) names.insert(names.end(), {"trtllm", "trtllm,fi"});
  return names;
}

/// max |v| over the keys that a token of `row` sees in KV head `head`, before they were rounded.
float largest_value(World& world, const BatchRow& row, std::int32_t token, std::int64_t head,
                    std::int64_t layer) {
  const KvView kv = world.kv(/*exact=*/true).layer(layer);
  const std::int32_t end = row.cached_len + token + 1;
  const std::int32_t window = world.shape.window_of(layer);
  const std::int32_t begin = window == 0 ? 0 : std::max(0, end - window);
  float largest = 0;
  for (std::int32_t key = begin; key < end; ++key)
    for (std::int32_t d = 0; d < kv.head_dim; ++d)
      largest = std::max(
          largest,
          std::abs(reinterpret_cast<const float*>(
              kv.v)[world.table.row(row.row)[key] * kv.slot_stride + head * kv.head_stride + d]));
  return largest;
}

/// Every element within `tolerance` times the largest |v| that its token sees in its KV head.
void expect_near(World& world, const std::vector<float>& expected, const std::vector<float>& actual,
                 std::int64_t layer, double tolerance) {
  const std::int64_t group = world.shape.num_heads / world.shape.num_kv_heads;
  ASSERT_EQ(actual.size(), expected.size());
  std::size_t at = 0;
  for (const BatchRow& row : world.batch.rows)
    for (std::int32_t token = 0; token < row.extend_len(); ++token)
      for (std::int64_t kv_head = 0; kv_head < world.shape.num_kv_heads; ++kv_head) {
        const double bound = tolerance * largest_value(world, row, token, kv_head, layer);
        for (std::int64_t i = 0; i < group * world.shape.head_dim; ++i, ++at)
          ASSERT_NEAR(actual[at], expected[at], bound) << "element " << at;
      }
}

void expect_same_bits(const std::vector<float>& expected, const std::vector<float>& actual) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i)
    ASSERT_EQ(actual[i], expected[i]) << "element " << i;
}

// With f32 keys and values, and with the same rounded to bf16: each with its own bits, and the
// second near the first.
TEST(AgreementTest, AllBackendsGiveTheSameBitsOnAThousandRandomBatches) {
  Random random(9);
  CpuStream one(1), three(3);
  int batches = 0;
  for (int round = 0; round < 8; ++round) {
    for (const std::int32_t page_size : {1, 4, 16, 32, 64}) {
      World world(random_shape(page_size, random), DType::kBF16);
      std::vector<std::unique_ptr<AttentionBackend>> backends;
      for (const std::string& name : names_for(page_size))
        backends.push_back(make_attention_backend(name, world.shape));
      for (int trial = 0; trial < 25; ++trial, ++batches) {
        fill_batch(world, random);
        std::vector<float> exact;
        for (const DType dtype : {DType::kF32, DType::kBF16}) {
          world.kv_dtype = dtype;
          const std::vector<float> expected = attend(*backends[0], world, trial % 2, one);
          SCOPED_TRACE("page size " + std::to_string(page_size) + ", trial " +
                       std::to_string(trial) + ", window " +
                       std::to_string(world.shape.window_of(trial % 2)));
          if (dtype == DType::kF32) {
            exact = expected;
          } else {
            expect_near(world, exact, expected, trial % 2, 8e-3);
          }
          for (std::size_t i = 1; i < backends.size(); ++i) {
            SCOPED_TRACE(backends[i]->name());
            expect_same_bits(expected,
                             attend(*backends[i], world, trial % 2, trial % 3 == 0 ? one : three));
          }
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  EXPECT_EQ(batches, 1000);
}

// A prompt in two steps, cut at and beside the borders of pages, tiles and splits.
TEST(AgreementTest, WhereAPromptIsCutIntoChunksChangesNothing) {
  constexpr std::int32_t kLength = 530;
  CpuStream stream(2);
  for (const std::int32_t page_size : {1, 4, 16}) {
    AttentionShape shape = shape_with(page_size);
    shape.num_heads = 4;
    shape.max_seq_len_tokens = kLength;
    World world(shape);
    const std::int64_t width = std::int64_t{shape.num_heads} * shape.head_dim;
    const auto attend_to = [&](AttentionBackend& backend, std::int32_t begin, std::int32_t end) {
      world.batch.rows = {{RowId{0}, begin, end}};
      world.batch.num_rows = 1;
      world.skipped_queries = begin;
      return attend(backend, world, 0, stream);
    };
    const auto ref = make_attention_backend("ref", shape);
    const std::vector<float> whole = attend_to(*ref, 0, kLength);
    for (const std::string& name : names_for(page_size)) {
      const auto backend = make_attention_backend(name, shape);
      for (const std::int32_t cut : {1, 3, 4, 5, 15, 16, 17, 63, 64, 65, 511, 512, 513, 529}) {
        SCOPED_TRACE(name + ", page size " + std::to_string(page_size) + ", cut at " +
                     std::to_string(cut));
        std::vector<float> parts = attend_to(*backend, 0, cut);
        const std::vector<float> rest = attend_to(*backend, cut, kLength);
        ASSERT_EQ(static_cast<std::int64_t>(parts.size()), cut * width);
        parts.insert(parts.end(), rest.begin(), rest.end());
        expect_same_bits(whole, parts);
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// The oracle in double on what the pool held before it was rounded.
std::vector<float> oracle(World& world, std::int64_t layer) {
  const auto rows = static_cast<std::int64_t>(world.batch.rows.size());
  const std::int64_t width = world.table.width();
  const Tensor cu({rows + 1}, DType::kI32), lengths({rows}, DType::kI32),
      table({rows, width}, DType::kI32);
  for (std::int64_t i = 0; i < rows; ++i) {
    const BatchRow& row = world.batch.rows[i];
    auto* sums = cu.view().as<std::int32_t>();
    sums[i + 1] = sums[i] + row.extend_len();
    lengths.view().as<std::int32_t>()[i] = row.device_len;
    std::copy_n(world.table.row(row.row).begin(), width,
                table.view().as<std::int32_t>() + i * width);
  }
  const Shape shape = {world.batch.num_tokens(), world.shape.num_heads, world.shape.head_dim};
  std::vector<float> q = queries_of(world);
  std::vector<float> out(q.size());
  KvView kv = world.kv(/*exact=*/true).layer(layer);
  kv.page_size = 1;
  kernels::ref::paged_attention({.q = TensorView(q.data(), shape, DType::kF32),
                                 .kv = kv,
                                 .cu_seqlens_q = cu,
                                 .cache_seqlens = lengths,
                                 .page_table = table,
                                 .scale = world.shape.scale,
                                 .window_tokens = world.shape.window_of(layer),
                                 .softcap = world.shape.softcap,
                                 .out = TensorView(out.data(), shape, DType::kF32)});
  return out;
}

TEST(AgreementTest, EveryBackendIsNearTheOracleAlsoWithNarrowKeysAndValues) {
  Random random(10);
  CpuStream stream(3);
  for (int trial = 0; trial < 60; ++trial) {
    const DType dtype = trial % 2 == 0 ? DType::kBF16 : DType::kF32;
    World world(random_shape(16, random), dtype);
    fill_batch(world, random);
    const std::vector<float> expected = oracle(world, trial % 2);
    for (const std::string& name : names_for(16)) {
      SCOPED_TRACE(name + ", trial " + std::to_string(trial));
      const auto backend = make_attention_backend(name, world.shape);
      expect_near(world, expected, attend(*backend, world, trial % 2, stream), trial % 2,
                  dtype == DType::kBF16 ? 8e-3 : 2e-6);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace minisgl
