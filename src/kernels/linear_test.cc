#include "kernels/linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/cpu/pack.h"
#include "kernels/ref/dequantize.h"
#include "kernels/ref/linear.h"
#include "kernels/simd.h"
#include "tensor/half.h"
#include "testing/random.h"

namespace minisgl::kernels {
namespace {

using testing_util::Random;

constexpr DType kWeightTypes[] = {DType::kF32,  DType::kF16,    DType::kBF16,  DType::kQ4_0,
                                  DType::kQ4_1, DType::kQ5_0,   DType::kQ5_1,  DType::kQ8_0,
                                  DType::kQ2_K, DType::kQ3_K,   DType::kQ4_K,  DType::kQ5_K,
                                  DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS};

/// Where a block keeps its f16 numbers (-1: none), for blocks of random bytes with sane scales.
std::pair<int, int> f16_offsets(DType type) {
  switch (type) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K: return {0, 2};
    case DType::kQ2_K: return {80, 82};
    case DType::kQ3_K: return {108, -1};
    case DType::kQ6_K: return {208, -1};
    default: return {0, -1};
  }
}

void put_f16(std::byte* p, float value) {
  const Half half = to_f16(value);
  std::memcpy(p, &half, sizeof(half));
}

/// Random weights: plain types uniform in [-1, 1), block types of random bits.
Tensor random_weight(DType type, std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  Tensor weight({rows, cols}, type);
  std::byte* data = weight.view().data;
  Random random(seed);
  if (!is_block_type(type)) {
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      const float value = random.uniform();
      const Half half = to_f16(value);
      const BFloat16 bfloat = to_bf16(value);
      if (type == DType::kF32) std::memcpy(data + i * 4, &value, 4);
      if (type == DType::kF16) std::memcpy(data + i * 2, &half, 2);
      if (type == DType::kBF16) std::memcpy(data + i * 2, &bfloat, 2);
    }
    return weight;
  }
  for (std::int64_t i = 0; i < weight.view().bytes(); ++i)
    data[i] = static_cast<std::byte>(random.next());
  const auto [d, m] = f16_offsets(type);
  for (std::int64_t i = 0; i < weight.view().bytes(); i += info(type).block_bytes) {
    put_f16(data + i + d, random.uniform() * 0.01F);
    if (m >= 0) put_f16(data + i + m, random.uniform() * 0.05F);
  }
  return weight;
}

Tensor random_floats(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  Tensor tensor({rows, cols}, DType::kF32);
  const std::vector<float> values = testing_util::uniform(rows * cols, seed);
  std::memcpy(tensor.view().data, values.data(), values.size() * sizeof(float));
  return tensor;
}

std::vector<float> to_vector(TensorView view) {
  std::vector<float> values;
  for (std::int64_t m = 0; m < view.dim(0); ++m) {
    const float* row = view.as<float>() + m * view.stride(0);
    values.insert(values.end(), row, row + view.dim(1));
  }
  return values;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Chooses an instruction set for one scope.
class SimdScope {
 public:
  explicit SimdScope(Simd simd) { set_simd(name(simd)); }
  ~SimdScope() { set_simd("auto"); }
};

struct Case {
  DType type;
  Simd simd;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Simd simd : available_simd()) {
    for (const DType type : kWeightTypes) cases.push_back({type, simd});
  }
  return cases;
}

std::string case_name(const testing::TestParamInfo<Case>& tested) {
  return std::string(name(tested.param.type)) + "_" + std::string(name(tested.param.simd));
}

class LinearTest : public testing::TestWithParam<Case> {
 protected:
  LinearTest() : simd_(GetParam().simd), pool_(2), stream_(2) {}

  DType type() const { return GetParam().type; }
  /// About `cols` columns, whole blocks.
  std::int64_t cols_near(std::int64_t cols) const {
    const std::int64_t block = info(type()).block_elems;
    return std::max(block, cols / block * block);
  }
  PackedMatrix pack(const Tensor& weight) { return pack_matrix(weight, {}, pool_); }
  std::vector<float> multiply(TensorView x, const PackedMatrix& w, TensorView bias = {}) {
    const PackedMatrix* matrices[] = {&w};
    return multiply(x, matrices, bias, stream_);
  }
  static std::vector<float> multiply(TensorView x, std::span<const PackedMatrix* const> matrices,
                                     TensorView bias, CpuStream& stream) {
    std::int64_t rows = 0;
    for (const PackedMatrix* matrix : matrices) rows += matrix->rows();
    const Tensor y({x.dim(0), rows}, DType::kF32);
    linear(x, matrices, bias, y, stream);
    stream.synchronize();
    return to_vector(y);
  }

  SimdScope simd_;
  ThreadPool pool_;
  CpuStream stream_;
};

TEST_P(LinearTest, EqualsTheReferenceForAnyShape) {
  Random random(11);
  const std::int64_t shapes[][3] = {// tokens, rows, cols
                                    {1, 1, 1},     {1, 32, 64},    {2, 33, 97},   {3, 100, 1000},
                                    {4, 64, 224},  {5, 31, 577},   {8, 640, 256}, {9, 97, 131},
                                    {17, 40, 512}, {130, 65, 300}, {257, 3, 1536}};
  for (const auto& [tokens, rows, wanted_cols] : shapes) {
    const std::int64_t cols = cols_near(wanted_cols);
    const Tensor weight = random_weight(type(), rows, cols, random.next());
    const Tensor x = random_floats(tokens, cols, random.next());
    const Tensor bias_row = random_floats(1, rows, random.next());
    const TensorView bias = tokens % 2 == 0 ? TensorView() : bias_row.view().reshape({rows});
    const Tensor expected({tokens, rows}, DType::kF32);
    linear_reference(x, weight, bias, expected);

    const std::vector<float> actual = multiply(x, pack(weight), bias);

    // A sum of products errs by at most K * 2^-24 of the sum of their sizes; rounding errors
    // mostly cancel, so that 4e-7 of it, whatever K, is generous.
    std::vector<float> w(cols);
    for (std::int64_t n = 0; n < rows; ++n) {
      dequantize_row(type(), weight.view().data + n * bytes_of(type(), cols), cols, w.data());
      for (std::int64_t m = 0; m < tokens; ++m) {
        double size = 1.0;
        for (std::int64_t k = 0; k < cols; ++k)
          size += std::abs(double{w[k]} * x.view().as<float>()[m * cols + k]);
        ASSERT_NEAR(actual[m * rows + n], expected.view().as<float>()[m * rows + n], 4e-7 * size)
            << "token " << m << ", row " << n << " of [" << tokens << ", " << rows << ", " << cols
            << "]";
      }
    }
  }
}

TEST_P(LinearTest, ATokensResultDoesNotDependOnTheOtherTokens) {
  for (const std::int64_t wanted : {64, 224, 1000}) {
    const std::int64_t cols = cols_near(wanted);
    const PackedMatrix w = pack(random_weight(type(), 72, cols, 1));
    const Tensor x = random_floats(300, cols, 2);
    const std::vector<float> all = multiply(x, w);
    for (const std::int64_t count : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 31, 32, 33, 129}) {
      for (const std::int64_t first : {std::int64_t{0}, 300 - count}) {
        const auto begin = all.begin() + first * 72;
        ASSERT_TRUE(same_bits(multiply(x.view().slice(first, first + count), w),
                              std::vector<float>(begin, begin + count * 72)))
            << count << " tokens from " << first << " of " << cols << " columns";
      }
    }
  }
}

TEST_P(LinearTest, SegmentsAndThreadsDoNotChangeAnyBit) {
  const std::int64_t cols = cols_near(288);
  const DType other_types[] = {DType::kF32, DType::kBF16};
  const Tensor first = random_weight(type(), 50, cols, 3);
  const PackedMatrix a = pack(first);
  const PackedMatrix b = pack(random_weight(other_types[cols % 2], 7, cols, 4));
  const PackedMatrix c = pack(random_weight(type(), 131, cols, 5));
  const PackedMatrix* together[] = {&b, &a, &c};
  for (const std::int64_t tokens : {1, 6, 40}) {
    const Tensor x = random_floats(tokens, cols, 6);
    const Tensor bias_row = random_floats(1, 188, 7);
    const TensorView bias = bias_row.view().reshape({188});
    const std::vector<float> alone[] = {multiply(x, b, bias.slice(0, 7)),
                                        multiply(x, a, bias.slice(7, 57)),
                                        multiply(x, c, bias.slice(57, 188))};
    std::vector<float> expected;
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (const std::vector<float>& part : alone) {
        const std::int64_t rows = static_cast<std::int64_t>(part.size()) / tokens;
        expected.insert(expected.end(), part.begin() + t * rows, part.begin() + (t + 1) * rows);
      }
    }
    for (const int threads : {1, 2, 5}) {
      CpuStream stream(threads);
      ASSERT_TRUE(same_bits(multiply(x, together, bias, stream), expected))
          << tokens << " tokens, " << threads << " threads";
    }
  }
}

TEST_P(LinearTest, ReadsAndWritesStridedRowsAndNothingBetweenThem) {
  const std::int64_t cols = cols_near(160);
  const PackedMatrix w = pack(random_weight(type(), 45, cols, 8));
  const PackedMatrix* matrices[] = {&w};
  for (const std::int64_t tokens : {3, 20}) {
    const Tensor wide_x = random_floats(tokens, cols + 24, 9);
    const TensorView x = wide_x.view().columns(5, 5 + cols);
    Tensor contiguous({tokens, cols}, DType::kF32);
    const std::vector<float> values = to_vector(x);
    std::memcpy(contiguous.view().data, values.data(), values.size() * sizeof(float));
    const Tensor wide_y = random_floats(tokens, 60, 10);
    const std::vector<float> before = to_vector(wide_y);

    linear(x, matrices, {}, wide_y.view().columns(7, 52), stream_);
    stream_.synchronize();

    EXPECT_TRUE(same_bits(to_vector(wide_y.view().columns(7, 52)), multiply(contiguous, w)));
    EXPECT_EQ(std::memcmp(wide_y.view().data, before.data(), 7 * sizeof(float)), 0);
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t n = 52; n < 60; ++n)
        ASSERT_EQ(wide_y.view().as<float>()[t * 60 + n], before[t * 60 + n]);
    }
  }
}

TEST_P(LinearTest, EmbeddingGivesTheSourceRowsBitForBitInTheGivenOrder) {
  for (const std::int64_t rows : {1, 32, 77}) {
    const std::int64_t cols = cols_near(rows == 77 ? 1000 : 64);
    const Tensor weight = random_weight(type(), rows, cols, 12);
    std::vector<std::int32_t> order(rows);
    std::iota(order.begin(), order.end(), 0);
    Random random(13);
    for (std::int64_t i = rows - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
    const PackedMatrix table = pack_matrix(weight, order, pool_);
    const Tensor ids({rows}, DType::kI32);
    std::iota(ids.view().as<std::int32_t>(), ids.view().as<std::int32_t>() + rows, 0);
    const Tensor y({rows, cols}, DType::kF32);

    embedding(ids, table, y, stream_);
    stream_.synchronize();

    std::vector<float> expected(cols);
    for (std::int64_t i = 0; i < rows; ++i) {
      dequantize_row(type(), weight.view().data + order[i] * bytes_of(type(), cols), cols,
                     expected.data());
      ASSERT_EQ(std::memcmp(expected.data(), y.view().as<float>() + i * cols, cols * sizeof(float)),
                0)
          << "row " << i << ", which is row " << order[i] << " of the source";
    }
  }
}

TEST_P(LinearTest, PackedWeightsAreWhatTheInstructionSetReads) {
  const PackedMatrix w = pack(random_weight(type(), 33, cols_near(64), 14));
  EXPECT_EQ(w.packing() == Packing::kRows, GetParam().simd == Simd::kPlain);
  EXPECT_EQ(w.dtype(), type());
  EXPECT_EQ(w.rows(), 33);
}

TEST_P(LinearTest, RowsThatThePlainKernelsReadAsTheyLieAreNotCopied) {
  const std::int64_t cols = cols_near(64);
  auto weight = std::make_shared<Tensor>(random_weight(type(), 33, cols, 15));
  const PackedMatrix copy = pack(*weight);
  ThreadPool pool(1);
  const auto share = [&] { return weight; };
  const TensorView view = weight->view();
  const bool is_plain = GetParam().simd == Simd::kPlain;

  const PackedMatrix shared = pack_matrix(view, pool, {.share = share});
  EXPECT_EQ(shared.is_shared(), is_plain);
  EXPECT_EQ(shared.data() == view.data, is_plain);
  EXPECT_EQ(shared.bytes(), copy.bytes());
  const std::vector<std::int32_t> order = {1, 0};
  EXPECT_FALSE(pack_matrix(view, pool, {.row_order = order, .share = share}).is_shared());
  EXPECT_FALSE(pack_matrix(view, pool, {.share = [] { return nullptr; }}).is_shared());
  if (!is_block_type(type())) {
    EXPECT_FALSE(pack_matrix(view.columns(0, cols / 2), pool, {.share = share}).is_shared());
  }

  weight.reset();  // the matrix keeps it
  EXPECT_EQ(std::memcmp(shared.data(), copy.data(), copy.bytes()), 0);
}

TEST_P(LinearTest, WeightsOutOfLineWithTheirTypeAreReadAsTheyLie) {
  const std::int64_t cols = cols_near(64);
  const Tensor weight = random_weight(type(), 33, cols, 16);
  const auto bytes = static_cast<std::size_t>(weight.view().bytes());
  const auto moved = std::make_shared<std::vector<std::byte>>(bytes + 1);
  std::memcpy(moved->data() + 1, weight.view().data, bytes);
  const TensorView view(moved->data() + 1, {33, cols}, type());
  ThreadPool pool(1);
  const PackedMatrix expected = pack(weight);
  const PackedMatrix actual = pack_matrix(view, pool, {.share = [&] { return moved; }});
  EXPECT_EQ(actual.is_shared(), GetParam().simd == Simd::kPlain);
  const Tensor x = random_floats(3, cols, 17);
  EXPECT_EQ(multiply(x, actual), multiply(x, expected));
}

INSTANTIATE_TEST_SUITE_P(AllTypes, LinearTest, testing::ValuesIn(all_cases()), case_name);

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class LinearErrorTest : public testing::Test {
 protected:
  ThreadPool pool_{1};
  CpuStream stream_{1};
  Tensor weight_ = random_weight(DType::kF32, 4, 8, 1);
  PackedMatrix w_ = pack_matrix(weight_, {}, pool_);
};

TEST_F(LinearErrorTest, ShapesThatDisagreeAreNamed) {
  const PackedMatrix* matrices[] = {&w_};
  const Tensor x({2, 7}, DType::kF32);
  const Tensor good_x({2, 8}, DType::kF32);
  const Tensor y({2, 4}, DType::kF32);
  const Tensor narrow({2, 3}, DType::kF32);
  const Tensor bias({5}, DType::kF32);
  EXPECT_THAT(error_of([&] { linear(x, matrices, {}, y, stream_); }),
              testing::StartsWith("x of linear has shape [2, 7] and type f32, expected [-1, 8]"));
  EXPECT_THAT(error_of([&] { linear(good_x, matrices, {}, narrow, stream_); }),
              testing::StartsWith("y of linear has shape [2, 3] and type f32, expected [2, 4]"));
  EXPECT_THAT(error_of([&] { linear(good_x, matrices, bias, y, stream_); }),
              testing::StartsWith("bias of linear has shape [5] and type f32, expected [4]"));
  EXPECT_THAT(error_of([&] { linear(good_x, {}, {}, y, stream_); }),
              testing::StartsWith("linear takes 1 to 8 matrices, not 0"));
}

TEST_F(LinearErrorTest, AWeightOfAnotherWidthInACallOfSeveralIsNamed) {
  const PackedMatrix other = pack_matrix(random_weight(DType::kF32, 3, 9, 1), {}, pool_);
  const PackedMatrix* matrices[] = {&w_, &other};
  const Tensor x({1, 8}, DType::kF32);
  const Tensor y({1, 7}, DType::kF32);
  EXPECT_THAT(error_of([&] { linear(x, matrices, {}, y, stream_); }),
              testing::StartsWith("linear: x has 8 columns but a weight is [3, 9]"));
}

TEST_F(LinearErrorTest, NoTokensAreNoWork) {
  const PackedMatrix* matrices[] = {&w_};
  linear(Tensor({0, 8}, DType::kF32), matrices, {}, Tensor({0, 4}, DType::kF32), stream_);
  embedding(Tensor({0}, DType::kI32), w_, Tensor({0, 8}, DType::kF32), stream_);
  EXPECT_NO_THROW(stream_.synchronize());
}

TEST_F(LinearErrorTest, ATokenOutsideOfTheTableIsNamed) {
  const Tensor ids({1}, DType::kI32);
  *ids.view().as<std::int32_t>() = 4;
  const Tensor y({1, 8}, DType::kF32);
  embedding(ids, w_, y, stream_);
  EXPECT_THAT(error_of([&] { stream_.synchronize(); }),
              testing::StartsWith("token id 4 is outside of the embedding's 4 rows"));
}

TEST_F(LinearErrorTest, WeightsThatCannotBePackedSayWhy) {
  const std::int32_t order[] = {0, 4};
  EXPECT_THAT(error_of([&] { pack_matrix(weight_, order, pool_); }),
              testing::StartsWith("row_order names row 4 of 4"));
  const Tensor ints({2, 2}, DType::kI32);
  EXPECT_THAT(
      error_of([&] { pack_matrix(ints, {}, pool_); }),
      testing::StartsWith("expected weights of type f32, f16, bf16 or a block type, not i32"));
  const Tensor line({32}, DType::kF32);
  EXPECT_THAT(error_of([&] { pack_matrix(line, {}, pool_); }),
              testing::StartsWith("a weight matrix has 2 dimensions, not 1"));
  std::byte bytes[18 * 3];
  EXPECT_THAT(
      error_of([&] { pack_matrix(TensorView(bytes, {2, 48}, DType::kQ4_0), {}, pool_); }),
      testing::StartsWith("rows of 48 elements are not whole blocks of Q4_0, which have 32"));
}

TEST(SimdTest, AnUnknownInstructionSetIsRefusedWithThoseThatThereAre) {
  EXPECT_THAT(
      error_of([] { set_simd("sse9"); }),
      testing::StartsWith("no instruction set 'sse9' on this machine; available: auto, plain"));
  EXPECT_EQ(active_simd(), available_simd().back());
}

TEST(SimdTest, WeightsPackedForVectorsCannotBeUsedWithoutThem) {
  if (available_simd().size() == 1) GTEST_SKIP() << "no vector instruction set here";
  ThreadPool pool(1);
  CpuStream stream(1);
  const PackedMatrix w = pack_matrix(random_weight(DType::kF32, 4, 8, 1), {}, pool);
  const PackedMatrix* matrices[] = {&w};
  const Tensor x({1, 8}, DType::kF32);
  const Tensor y({1, 4}, DType::kF32);
  const SimdScope scope(Simd::kPlain);
  EXPECT_THAT(error_of([&] { linear(x, matrices, {}, y, stream); }),
              testing::HasSubstr("but 'plain' is in use; choose it before weights are packed"));
}

}  // namespace
}  // namespace minisgl::kernels
