#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tensor/arena.h"
#include "tensor/half.h"

namespace minisgl {
namespace {

TEST(TensorTest, IsZeroedAlignedAndRowMajor) {
  const Tensor t({3, 5}, DType::kF32);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.view().data) % 64, 0U);
  for (int i = 0; i < 15; ++i) EXPECT_EQ(t.view().as<float>()[i], 0.0F);
  EXPECT_EQ(t.view().stride(0), 5);
  EXPECT_TRUE(t.view().is_contiguous());
}

TEST(TensorTest, SlicesAndColumnsPointIntoTheSameMemory) {
  const Tensor t({4, 6}, DType::kI32);
  for (int i = 0; i < 24; ++i) t.view().as<std::int32_t>()[i] = i;
  EXPECT_EQ(*t.view().slice(2, 4).as<std::int32_t>(), 12);
  const TensorView columns = t.view().columns(1, 3);
  EXPECT_EQ(columns.dim(1), 2);
  EXPECT_EQ(columns.as<std::int32_t>()[columns.stride(0)], 7);
  EXPECT_FALSE(columns.is_contiguous());
  EXPECT_THROW(t.view().slice(3, 5), Error);
}

TEST(TensorTest, BlockTypesCountInBlocks) {
  EXPECT_EQ(bytes_of(DType::kQ4_1, 64), 40);
  const Tensor t({2, 64}, DType::kQ8_0);
  EXPECT_EQ(t.view().bytes(), 2 * 2 * 34);
  EXPECT_EQ(t.view().slice(1, 2).data - t.view().data, 68);
}

TEST(TensorTest, CheckTensorSaysWhatItFound) {
  const Tensor t({2, 3}, DType::kF32);
  EXPECT_NO_THROW(check_tensor(t, {-1, 3}, DType::kF32, "x"));
  try {
    check_tensor(t, {2, 4}, DType::kF32, "x");
    FAIL() << "expected Error";
  } catch (const Error& e) {
    EXPECT_NE(
        std::string(e.what()).find("x has shape [2, 3] and type f32, expected [2, 4] and f32"),
        std::string::npos);
  }
}

TEST(TensorTest, ALargeLazyBufferCostsAddressesOnly) {
  const Buffer buffer(std::size_t{1} << 38, {.lazy = true});
  buffer.data()[std::size_t{1} << 37] = std::byte{1};
  EXPECT_EQ(buffer.data()[std::size_t{1} << 37], std::byte{1});
  EXPECT_EQ(buffer.data()[0], std::byte{0});
}

TEST(ScratchArenaTest, ACountingArenaTellsWhatARealOneNeeds) {
  const auto step = [](ScratchArena& arena) {
    const ScratchScope outer(arena);
    arena.alloc({10}, DType::kF32);
    {
      const ScratchScope inner(arena);
      arena.alloc({100, 3}, DType::kF32);
    }
    arena.alloc({7}, DType::kU8);
  };
  ScratchArena counting;
  step(counting);
  EXPECT_EQ(counting.used_bytes(), 0);
  EXPECT_EQ(counting.peak_bytes(), 64 + 1216);
  ScratchArena real(counting.peak_bytes());
  EXPECT_NO_THROW(step(real));
  ScratchArena small(counting.peak_bytes() - 64);
  EXPECT_THROW(step(small), Error);
}

TEST(HalfTest, EveryHalfSurvivesTheWayThroughF32) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float wide = to_f32(Half{static_cast<std::uint16_t>(bits)});
    if (std::isnan(wide)) {
      ASSERT_TRUE(std::isnan(to_f32(to_f16(wide)))) << bits;
    } else {
      ASSERT_EQ(to_f16(wide).bits, bits) << wide;
    }
  }
  EXPECT_EQ(to_f32(Half{0x3C00}), 1.0F);
  EXPECT_EQ(to_f32(Half{0x0001}), 0x1p-24F);
  EXPECT_EQ(to_f32(Half{0x7BFF}), 65504.0F);
}

TEST(HalfTest, RoundsToNearestEven) {
  EXPECT_EQ(to_f16(1.0F + 0x1p-11F).bits, 0x3C00) << "a tie goes to the even neighbour";
  EXPECT_EQ(to_f16(1.0F + 0x1.8p-10F).bits, 0x3C02);
  EXPECT_EQ(to_f16(65520.0F).bits, 0x7C00) << "the first that rounds to infinity";
  EXPECT_EQ(to_f16(65519.0F).bits, 0x7BFF);
  EXPECT_EQ(to_bf16(1.0F + 0x1p-8F).bits, 0x3F80);
  EXPECT_EQ(to_bf16(1.0F + 0x1.8p-7F).bits, 0x3F82);
  EXPECT_TRUE(std::isnan(to_f32(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(HalfTest, Fp8SurvivesTheWayThroughF32AndTakesTheNearestNumber) {
  for (std::uint32_t bits = 0; bits < 0x100; ++bits) {
    const Float8E4M3 code{static_cast<std::uint8_t>(bits)};
    const float wide = to_f32(code);
    if ((bits & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(wide)) << bits;
      EXPECT_EQ(to_fp8_e4m3(wide).bits & 0x7F, 0x7F);
      continue;
    }
    EXPECT_EQ(to_fp8_e4m3(wide).bits, bits) << wide;
    if ((bits & 0x7F) >= 0x7E) continue;
    // Between two neighbours: the nearer one, and of two as near the even one.
    const float next = to_f32(Float8E4M3{static_cast<std::uint8_t>(bits + 1)});
    const float middle = (wide + next) / 2;
    EXPECT_EQ(to_fp8_e4m3(middle).bits, bits % 2 == 0 ? bits : bits + 1) << middle;
    EXPECT_EQ(to_fp8_e4m3(std::nextafter(middle, wide)).bits, bits) << middle;
    EXPECT_EQ(to_fp8_e4m3(std::nextafter(middle, next)).bits, bits + 1) << middle;
  }
  EXPECT_EQ(to_f32(Float8E4M3{0x38}), 1.0F);
  EXPECT_EQ(to_f32(Float8E4M3{0x01}), 0x1p-9F);
  EXPECT_EQ(to_f32(Float8E4M3{0x7E}), 448.0F);
  EXPECT_EQ(to_fp8_e4m3(1e9F).bits, 0x7E) << "numbers beyond the range become the largest";
  EXPECT_EQ(to_fp8_e4m3(-std::numeric_limits<float>::infinity()).bits, 0xFE);
}

}  // namespace
}  // namespace minisgl
