#include "layers/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "tensor/half.h"
#include "testing/random.h"

namespace minisgl::layers {
namespace {

/// Tensors in memory.
class MemorySource final : public WeightSource {
 public:
  void add(const std::string& name, const Shape& shape, DType dtype, std::vector<std::byte> data) {
    memory_[name] = std::move(data);
    tensors_[name] = TensorView(memory_[name].data(), shape, dtype);
  }
  TensorView find(std::string_view name) const override {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? TensorView() : found->second;
  }
  std::vector<std::string> names() const override { return {}; }
  void drop(const TensorView&) const override {}
  std::shared_ptr<const void> share(const TensorView&) const override { return nullptr; }
  std::vector<std::string> file_faults() const override { return {}; }
  std::string describe() const override { return "memory"; }
  bool has_paired_qk_rows() const override { return false; }

 private:
  std::map<std::string, std::vector<std::byte>, std::less<>> memory_;
  std::map<std::string, TensorView, std::less<>> tensors_;
};

/// A matrix of 32-element blocks: an f16 scale and 32 int8 numbers (q8_0).
std::vector<std::byte> q8_matrix(std::int64_t rows, std::int64_t cols) {
  testing_util::Random random(7);
  std::vector<std::byte> bytes;
  for (std::int64_t block = 0; block < rows * cols / 32; ++block) {
    const Half scale = to_f16(0.01F + 0.001F * static_cast<float>(random.below(20)));
    const auto* scale_bytes = reinterpret_cast<const std::byte*>(&scale);
    bytes.insert(bytes.end(), scale_bytes, scale_bytes + 2);
    for (int i = 0; i < 32; ++i) bytes.push_back(static_cast<std::byte>(random.below(256)));
  }
  return bytes;
}

std::vector<float> product(const kernels::PackedMatrix& weight, const std::vector<float>& x) {
  CpuStream stream(1);
  const Tensor in({1, static_cast<std::int64_t>(x.size())}, DType::kF32);
  std::memcpy(in.view().data, x.data(), x.size() * sizeof(float));
  const Tensor out({1, weight.rows()}, DType::kF32);
  const kernels::PackedMatrix* const matrix = &weight;
  kernels::linear(in, {&matrix, 1}, {}, out, stream);
  stream.synchronize();
  return {out.view().as<float>(), out.view().as<float>() + weight.rows()};
}

class ShardTest : public testing::Test {
 protected:
  ShardTest() { source_.add("q8", {64, 192}, DType::kQ8_0, q8_matrix(64, 192)); }

  kernels::PackedMatrix matrix(Shard shard, Split split) {
    WeightLoad load{.source = source_, .pool = pool_, .shard = shard};
    return Weights(load).matrix("q8", 64, 192, split);
  }

  MemorySource source_;
  ThreadPool pool_{1};
};

TEST_F(ShardTest, ProductsOfColumnsOfBlocksAddUpToThatOfTheWhole) {
  const std::vector<float> x = testing_util::uniform(192, 3);
  const std::vector<float> whole = product(matrix({}, Split::kNone), x);
  for (const std::int32_t world : {2, 3, 6}) {
    std::vector<double> sum(64);
    for (std::int32_t rank = 0; rank < world; ++rank) {
      const std::int64_t width = 192 / world;
      const std::vector<float> part(x.begin() + rank * width, x.begin() + (rank + 1) * width);
      const std::vector<float> y = product(matrix({rank, world}, Split::kIn), part);
      for (std::size_t i = 0; i < 64; ++i) sum[i] += y[i];
    }
    for (std::size_t i = 0; i < 64; ++i) EXPECT_NEAR(sum[i], whole[i], 1e-4) << world << " ranks";
  }
}

TEST_F(ShardTest, ProductsOfRowsAreThoseOfTheWholeOneAfterTheOther) {
  const std::vector<float> x = testing_util::uniform(192, 3);
  const std::vector<float> whole = product(matrix({}, Split::kNone), x);
  std::vector<float> parts;
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    const std::vector<float> y = product(matrix({rank, 4}, Split::kOut), x);
    parts.insert(parts.end(), y.begin(), y.end());
  }
  EXPECT_EQ(parts, whole);
}

TEST_F(ShardTest, ABlockIsNotCut) {
  // 192 columns are 6 blocks.
  try {
    matrix({0, 4}, Split::kIn);
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "q8 [64, 192] of Q8_0 blocks of 32 does not divide over 4 ranks");
  }
  WeightFaults faults;
  WeightLoad load{.source = source_, .pool = pool_, .shard = {0, 4}, .faults = &faults};
  Weights(load).matrix("q8", 64, 192, Split::kIn);
  EXPECT_EQ(faults.undivided.size(), 1U) << "a model is looked through before it is loaded";
}

TEST(ShardPlaceTest, RanksBeyondTheHeadsShareThem) {
  //   4 ranks, 2 heads: 0 0 1 1;  4 ranks, 8 heads: each two of its own
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(shard_of_parts({rank, 4}, 2).rank, rank / 2);
    EXPECT_EQ(shard_of_parts({rank, 4}, 2).world, 2);
    EXPECT_EQ(shard_of_parts({rank, 4}, 8).rank, rank);
    EXPECT_EQ(shard_of_parts({rank, 4}, 1).rank, 0);
  }
}

TEST(ShardPlaceTest, TheVocabularyIsCoveredWithoutGaps) {
  for (const std::int64_t vocab : {640, 651, 1000, 49152, 151936}) {
    for (const std::int32_t world : {1, 2, 3, 8}) {
      std::int64_t end = 0;
      for (std::int32_t rank = 0; rank < world; ++rank) {
        const VocabRange range = vocab_range({rank, world}, vocab);
        EXPECT_EQ(range.begin, end);
        EXPECT_GT(range.size(), 0);
        EXPECT_LE(range.size(), vocab_range({0, world}, vocab).size());
        EXPECT_TRUE(rank == world - 1 || range.end % 8 == 0);
        end = range.end;
      }
      EXPECT_EQ(end, vocab);
    }
  }
  EXPECT_THROW(vocab_range({0, 8}, 50), Error);
}

}  // namespace
}  // namespace minisgl::layers
