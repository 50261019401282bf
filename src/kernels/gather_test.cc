#include "kernels/gather.h"

#include <gtest/gtest.h>

#include <numeric>

namespace minisgl::kernels {
namespace {

Tensor ints(std::initializer_list<std::int32_t> values) {
  Tensor tensor({static_cast<std::int64_t>(values.size())}, DType::kI32);
  std::copy(values.begin(), values.end(), tensor.view().as<std::int32_t>());
  return tensor;
}

TEST(GatherTest, RowsComeInTheOrderOfTheIndex) {
  CpuStream stream(2);
  const Tensor x({4, 3}, DType::kF32);
  std::iota(x.view().as<float>(), x.view().as<float>() + 12, 0.0F);
  const Tensor rows = ints({3, 0, 3});
  const Tensor y({3, 3}, DType::kF32);
  gather_rows(x, rows, y, stream);
  stream.synchronize();
  const std::vector<float> actual(y.view().as<float>(), y.view().as<float>() + 9);
  EXPECT_EQ(actual, (std::vector<float>{9, 10, 11, 0, 1, 2, 9, 10, 11}));
}

TEST(GatherTest, WhatWasScatteredIsGathered) {
  CpuStream stream(1);
  const Tensor table({6}, DType::kI32);
  const Tensor where = ints({5, 1, 2});
  const Tensor values = ints({50, 10, 20});
  const Tensor back({3}, DType::kI32);
  scatter(values, where, table, stream);
  gather(table, where, back, stream);
  stream.synchronize();
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(back.view().as<std::int32_t>()[i], values.view().as<std::int32_t>()[i]);
  EXPECT_EQ(table.view().as<std::int32_t>()[0], 0) << "the other entries stay";
}

TEST(GatherTest, RejectsAnIndexOfAnotherLengthAndSaysBoth) {
  CpuStream stream(1);
  const Tensor table({6}, DType::kI32);
  const Tensor where = ints({1, 2});
  const Tensor out({3}, DType::kI32);
  try {
    gather(table, where, out, stream);
    FAIL() << "expected Error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("index has shape [2] and type i32, expected [3]"),
              std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace minisgl::kernels
