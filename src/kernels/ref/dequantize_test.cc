#include "kernels/ref/dequantize.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "minisgl/error.h"

namespace minisgl::kernels {
namespace {

std::vector<std::byte> read_file(const std::string& name) {
  std::ifstream file(std::string(MINISGL_TEST_DATA) + "/gguf/" + name, std::ios::binary);
  EXPECT_TRUE(file) << name;
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

DType dtype_named(const std::string& wanted) {
  constexpr DType kAll[] = {DType::kF32,  DType::kF16,    DType::kBF16,  DType::kQ4_0,
                            DType::kQ4_1, DType::kQ5_0,   DType::kQ5_1,  DType::kQ8_0,
                            DType::kQ2_K, DType::kQ3_K,   DType::kQ4_K,  DType::kQ5_K,
                            DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS};
  std::string upper;
  for (const DType type : kAll) {
    upper = name(type);
    for (char& c : upper) c = static_cast<char>(std::toupper(c));
    if (upper == wanted) return type;
  }
  ADD_FAILURE() << "no type " << wanted;
  return DType::kF32;
}

// Oracle: the dequantisation of the `gguf` Python package (tools/oracle/make_gguf_types.py), on
// random blocks with zero, subnormal, ordinary and largest scales of both signs.
TEST(DequantizeTest, EveryTypeEqualsTheGgufPackageBitForBit) {
  const std::vector<std::byte> blocks = read_file("types_v3.gguf");
  const std::vector<std::byte> expected = read_file("types.f32");
  const auto index =
      nlohmann::json::parse(std::ifstream(std::string(MINISGL_TEST_DATA) + "/gguf/types.json"));
  ASSERT_EQ(index.size(), 15U);
  for (const auto& entry : index) {
    const DType type = dtype_named(entry["type"]);
    const std::int64_t rows = entry["rows"];
    const std::int64_t cols = entry["cols"];
    const std::int64_t row_bytes = bytes_of(type, cols);
    ASSERT_EQ(rows * row_bytes, entry["bytes"].get<std::int64_t>()) << entry["type"];
    for (std::int64_t row = 0; row < rows; ++row) {
      std::vector<float> actual(static_cast<std::size_t>(cols), -1.0F);
      dequantize_row(type,
                     blocks.data() + entry["file_offset"].get<std::int64_t>() + row * row_bytes,
                     cols, actual.data());
      const std::byte* want = expected.data() + entry["expected_offset"].get<std::int64_t>() +
                              row * cols * static_cast<std::int64_t>(sizeof(float));
      for (std::int64_t i = 0; i < cols; ++i) {
        std::uint32_t want_bits, bits;
        std::memcpy(&want_bits, want + i * 4, 4);
        std::memcpy(&bits, &actual[static_cast<std::size_t>(i)], 4);
        ASSERT_EQ(bits, want_bits) << entry["type"] << " row " << row << " col " << i << ": "
                                   << actual[static_cast<std::size_t>(i)];
      }
    }
  }
}

std::string message_of(DType type, std::int64_t cols) {
  std::vector<std::byte> src(1024);
  std::vector<float> dst(1024);
  try {
    dequantize_row(type, src.data(), cols, dst.data());
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(DequantizeTest, RefusesTypesThatHoldNoWeightsAndRowsOfBrokenBlocks) {
  EXPECT_NE(message_of(DType::kI32, 32).find("cannot dequantise i32"), std::string::npos);
  EXPECT_NE(message_of(DType::kQ4_K, 128).find("128 elements is not whole blocks of 256 (Q4_K)"),
            std::string::npos);
  EXPECT_EQ(message_of(DType::kQ8_0, 0), "no error");
}

}  // namespace
}  // namespace minisgl::kernels
