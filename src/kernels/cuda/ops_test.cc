// The ops on a GPU against the plain ones in kernels/ref/. Without a GPU every test is skipped.
//
// Inputs are rounded to bf16 before both, so what differs is the rounding of the result (2^-8 of
// its size at most) and the order of f32 sums.

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/activation.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/ops.h"
#include "kernels/gather.h"
#include "kernels/norm.h"
#include "kernels/ref/linear.h"
#include "kernels/ref/reference.h"
#include "tensor/half.h"
#include "testing/convert.h"
#include "testing/gpu.h"
#include "testing/random.h"

namespace minisgl::kernels {
namespace {

using testing_util::converted;
using testing_util::copy_to;
using testing_util::error_of;

constexpr double kBf16 = 0x1p-8;
constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

/// How far a result of this type may be off, relative to its size.
double rounding(DType type) {
  return type == DType::kF32 ? 1e-5 : type == DType::kBF16 ? kBf16 : 0x1p-11;
}

/// f32 numbers that bf16 can hold.
Tensor random_tensor(const Shape& shape, std::uint64_t seed, float amplitude = 1) {
  Tensor tensor(shape, DType::kF32);
  testing_util::Random random(seed);
  for (std::int64_t i = 0; i < shape.numel(); ++i)
    tensor.view().as<float>()[i] = to_f32(to_bf16(random.uniform() * amplitude));
  return tensor;
}

Tensor ints(const std::vector<std::int32_t>& values) {
  Tensor tensor({static_cast<std::int64_t>(values.size())}, DType::kI32);
  std::copy(values.begin(), values.end(), tensor.view().as<std::int32_t>());
  return tensor;
}

class GpuOpsTest : public testing_util::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) stream_ = cuda::make_stream(kGpu);
  }

  Tensor to_gpu(TensorView host, DType dtype) {
    return copy_to(converted(host, dtype), kGpu, *stream_);
  }
  Tensor to_gpu(TensorView host) { return copy_to(host, kGpu, *stream_); }
  /// A tensor of NaN, so that an element that nobody writes shows.
  Tensor poisoned(const Shape& shape, DType dtype) {
    Tensor host(shape, dtype);
    std::fill_n(host.view().data, host.view().bytes(), std::byte{0xFF});
    return copy_to(host, kGpu, *stream_);
  }
  Tensor to_host(TensorView device) {
    return converted(copy_to(device, kCpu, *stream_), DType::kF32);
  }

  /// |found - expected| <= absolute + relative * |expected| for every element.
  void expect_near(TensorView device, TensorView expected, double relative, double absolute,
                   const std::string& what) {
    const Tensor found = to_host(device);
    ASSERT_EQ(found.view().numel(), expected.numel()) << what;
    for (std::int64_t i = 0; i < expected.numel(); ++i) {
      const double want = expected.as<float>()[i];
      const double have = found.view().as<float>()[i];
      ASSERT_LE(std::abs(have - want), absolute + relative * std::abs(want))
          << what << ", element " << i << " of " << to_string(expected.shape) << ": " << have
          << ", expected " << want;
    }
  }

  std::unique_ptr<Stream> stream_;
};

TEST_F(GpuOpsTest, NormsAreThoseOfTheReference) {
  for (const std::int64_t hidden : {8, 64, 576, 1024, 5120, 16384})
    for (const std::int64_t tokens : {1, 3, 257}) {
      const std::string what = std::to_string(tokens) + " x " + std::to_string(hidden);
      const Tensor x = random_tensor({tokens, hidden}, 1, 4);
      const Tensor weight = random_tensor({hidden}, 2);
      Tensor expected({tokens, hidden}, DType::kF32);
      ref::rms_norm(x, weight, 1e-5F, expected);
      const Tensor gpu_weight = to_gpu(weight);
      for (const DType in : kTypes)
        for (const DType out : kTypes) {
          const Tensor y = poisoned({tokens, hidden}, out);
          rms_norm(to_gpu(x, in), gpu_weight, 1e-5F, y, *stream_);
          expect_near(y, expected, rounding(out), 1e-6, "rms_norm " + what);
        }

      for (const DType type : {DType::kBF16, DType::kF16}) {
        Tensor sum = random_tensor({tokens, hidden}, 3, 10);
        const Tensor gpu_residual = to_gpu(sum);
        const Tensor gpu_x = to_gpu(x, type);
        const Tensor same = converted(x, DType::kF32);
        ref::fused_add_rms_norm(same, sum, weight, 1e-5F);
        fused_add_rms_norm(gpu_x, gpu_residual, gpu_weight, 1e-5F, *stream_);
        expect_near(gpu_residual, sum, 1e-6, 1e-6, "residual " + what);
        expect_near(gpu_x, same, rounding(type), 1e-6, "fused_add_rms_norm " + what);
      }
    }
}

TEST_F(GpuOpsTest, TheActivationIsThatOfTheReference) {
  for (const std::int64_t width : {8, 160, 1536, 3072, 17408})
    for (const std::int64_t tokens : {1, 5, 300}) {
      const Tensor gate_up = random_tensor({tokens, 2 * width}, 4, 12);
      Tensor expected({tokens, width}, DType::kF32);
      ref::silu_and_mul(gate_up, expected);
      for (const DType type : kTypes) {
        const Tensor y = poisoned({tokens, width}, type);
        silu_and_mul(to_gpu(gate_up, type), y, *stream_);
        expect_near(y, expected, rounding(type), 1e-7, "silu_and_mul");
      }
      ref::gelu_tanh_and_mul(gate_up, expected);
      for (const DType type : {DType::kF32, DType::kBF16}) {
        const Tensor y = poisoned({tokens, width}, type);
        gelu_tanh_and_mul(to_gpu(gate_up, type), y, *stream_);
        expect_near(y, expected, type == DType::kF32 ? 1e-5 : kBf16, 3e-5, "gelu_tanh_and_mul");
      }
    }
}

TEST_F(GpuOpsTest, RowsAndNumbersMoveByIndex) {
  const std::vector<std::int32_t> index{4, 0, 2, 4, 1};
  const Tensor gpu_index = to_gpu(ints(index));
  const Tensor x = random_tensor({6, 576}, 5);
  for (const DType type : kTypes) {
    const Tensor y = poisoned({5, 576}, type);
    gather_rows(to_gpu(x, type), gpu_index, y, *stream_);
    const Tensor found = to_host(y), right = converted(converted(x, type), DType::kF32);
    for (std::size_t i = 0; i < index.size(); ++i)
      for (std::int64_t d = 0; d < 576; ++d)
        ASSERT_EQ(found.view().as<float>()[i * 576 + d],
                  right.view().as<float>()[index[i] * 576 + d]);
  }
  const Tensor values = to_gpu(ints({10, 11, 12, 13, 14}));
  const Tensor out = to_gpu(ints({0, 0, 0, 0, 0}));
  gather(values, gpu_index, out, *stream_);
  const Tensor places = to_gpu(ints({3, 1, 4, 0, 2}));
  const Tensor scattered = to_gpu(ints({-1, -1, -1, -1, -1, -7}));
  scatter(out, places, scattered, *stream_);
  const Tensor found = copy_to(scattered, kCpu, *stream_);
  const auto* at = found.view().as<std::int32_t>();
  EXPECT_EQ(std::vector<std::int32_t>(at, at + 6),
            (std::vector<std::int32_t>{14, 10, 11, 14, 12, -7}));
  const Tensor ascending = poisoned({300}, DType::kI32);
  gpu::fill_ascending(ascending, -3, 2, *stream_);
  const Tensor host = copy_to(ascending, kCpu, *stream_);
  for (int i = 0; i < 300; ++i) ASSERT_EQ(host.view().as<std::int32_t>()[i], 2 * i - 3);
}

TEST_F(GpuOpsTest, RopeWithNormsAndTheStoreAreThoseOfTheReference) {
  struct Case {
    std::int32_t q_heads, kv_heads, head_dim;
    bool norm;
  };
  constexpr std::int64_t kSlots = 2048;
  for (const Case c :
       {Case{16, 8, 128, true}, Case{9, 3, 64, false}, Case{3, 1, 32, true}, Case{2, 2, 16, false},
        Case{4, 1, 256, true}, Case{5, 1, 80, true}, Case{2, 1, 24, true}})
    for (const std::int64_t tokens : {1, 37, 1100}) {
      if (tokens > 37 && c.q_heads < 9) continue;  // 1,100 are for many heads: several a lane
      const std::int64_t width = std::int64_t{c.q_heads + 2 * c.kv_heads} * c.head_dim;
      const Tensor qkv = random_tensor({tokens, width}, 6, 3);
      std::vector<float> frequencies;
      for (std::int32_t i = 0; i < c.head_dim / 2; ++i)
        frequencies.push_back(std::pow(1e4F, -2.0F * static_cast<float>(i) / c.head_dim));
      const Tensor table = make_rope_table(frequencies, 500);
      const Tensor q_norm = random_tensor({c.head_dim}, 7, 2);
      const Tensor k_norm = random_tensor({c.head_dim}, 8, 2);
      std::vector<std::int32_t> positions, slots;
      for (std::int64_t t = 0; t < tokens; ++t) {
        positions.push_back(static_cast<std::int32_t>((t * 71) % 500));
        slots.push_back(static_cast<std::int32_t>((t * 5 + 3) % kSlots));
      }
      const Shape q_shape{tokens, c.q_heads, c.head_dim};
      const Shape kv_shape{kSlots, c.kv_heads, c.head_dim};
      const auto run = [&](const Tensor& from, const Tensor& at, const Tensor& to,
                           TensorView rope_table, TensorView qn, TensorView kn, const Tensor& q,
                           const Tensor& k, const Tensor& v) {
        return RopeStoreArgs{.qkv = from,
                             .positions = at,
                             .out_locs = to,
                             .rope_table = rope_table,
                             .q_norm = c.norm ? qn : TensorView(),
                             .k_norm = c.norm ? kn : TensorView(),
                             .norm_eps = 1e-6F,
                             .q = q,
                             .kv = {.k = k.view().data,
                                    .v = v.view().data,
                                    .dtype = k.view().dtype,
                                    .num_heads = c.kv_heads,
                                    .head_dim = c.head_dim,
                                    .slot_stride = std::int64_t{c.kv_heads} * c.head_dim,
                                    .head_stride = c.head_dim,
                                    .num_slots = kSlots,
                                    .page_size = 1}};
      };
      const Tensor q(q_shape, DType::kF32), k(kv_shape, DType::kF32), v(kv_shape, DType::kF32);
      const Tensor host_positions = ints(positions), host_slots = ints(slots);
      ref::qk_norm_rope_store(run(qkv, host_positions, host_slots, table, q_norm, k_norm, q, k, v));
      const Tensor gpu_positions = to_gpu(host_positions), gpu_slots = to_gpu(host_slots);
      const Tensor gpu_table = to_gpu(table), qn = to_gpu(q_norm), kn = to_gpu(k_norm);
      for (const DType type : kTypes) {
        const double relative = rounding(type);
        const Tensor from = to_gpu(qkv, type);
        const Tensor gpu_q = poisoned(q_shape, type);
        const Tensor gpu_k(kv_shape, type, {.device = kGpu}),
            gpu_v(kv_shape, type, {.device = kGpu});
        qk_norm_rope_store(
            run(from, gpu_positions, gpu_slots, gpu_table, qn, kn, gpu_q, gpu_k, gpu_v), *stream_);
        expect_near(gpu_q, q, relative, 1e-5, "q");
        expect_near(gpu_k, k, relative, 1e-5, "k");
        expect_near(gpu_v, converted(converted(v, type), DType::kF32), 0, 0, "v");
      }
      for (const DType type : {DType::kBF16, DType::kF16}) {
        const Tensor from = to_gpu(qkv, type), gpu_q = poisoned(q_shape, type);
        const Tensor gpu_k(kv_shape, DType::kF8E4M3, {.device = kGpu}),
            gpu_v(kv_shape, DType::kF8E4M3, {.device = kGpu});
        qk_norm_rope_store(
            run(from, gpu_positions, gpu_slots, gpu_table, qn, kn, gpu_q, gpu_k, gpu_v), *stream_);
        expect_near(gpu_q, q, kBf16, 1e-5, "q");
        // Half of a step of 2^-3 of a power of two, and of the smallest step.
        expect_near(gpu_k, k, 0x1p-4 + kBf16, 0x1p-10, "k in fp8");
        expect_near(gpu_v, converted(converted(v, DType::kF8E4M3), DType::kF32), 0, 0, "v in fp8");
      }
    }
}

TEST_F(GpuOpsTest, KeysAndValuesBeyondTheRangeOfFp8AreItsLargestNumbers) {
  constexpr std::int64_t kDim = 64;
  Tensor qkv({1, 3 * kDim}, DType::kF32);
  for (std::int64_t i = 0; i < 3 * kDim; ++i)
    qkv.view().as<float>()[i] = i % 2 == 0 ? 1e4F : -449.0F;
  const Tensor table = make_rope_table(std::vector<float>(kDim / 2, 0), 4);  // no rotation
  const Tensor q = poisoned({1, 1, kDim}, DType::kBF16);
  const Tensor k({1, 1, kDim}, DType::kF8E4M3, {.device = kGpu}),
      v({1, 1, kDim}, DType::kF8E4M3, {.device = kGpu});
  const Tensor from = to_gpu(qkv, DType::kBF16), zero = to_gpu(ints({0})), at = to_gpu(table);
  qk_norm_rope_store({.qkv = from,
                      .positions = zero,
                      .out_locs = zero,
                      .rope_table = at,
                      .q_norm = {},
                      .k_norm = {},
                      .q = q,
                      .kv = {.k = k.view().data,
                             .v = v.view().data,
                             .dtype = DType::kF8E4M3,
                             .num_heads = 1,
                             .head_dim = kDim,
                             .slot_stride = kDim,
                             .head_stride = kDim,
                             .num_slots = 1,
                             .page_size = 1}},
                     *stream_);
  for (const Tensor* stored : {&k, &v}) {
    const Tensor found = to_host(*stored);
    for (std::int64_t i = 0; i < kDim; ++i)
      ASSERT_EQ(found.view().as<float>()[i], i % 2 == 0 ? 448.0F : -448.0F) << i;
  }
}

TEST_F(GpuOpsTest, ProductsOfEveryNumberOfTokensAreThoseOfTheReference) {
  ThreadPool pool(4);
  struct Case {
    std::int64_t rows, cols;
  };
  for (const Case c : {Case{64, 64}, Case{1024, 2048}, Case{1000, 72}, Case{37, 1544}, Case{640, 8},
                       Case{2051, 576}}) {
    const Tensor weight = random_tensor({c.rows, c.cols}, 9);
    const Tensor bias = random_tensor({c.rows}, 10, 4);
    const PackedMatrix packed = gpu::pack_matrix(weight, {}, pool, kGpu);
    const Tensor gpu_bias = to_gpu(bias);
    for (const std::int64_t tokens : {1, 2, 7, 8, 9, 15, 16, 17, 33, 200}) {
      const Tensor x = random_tensor({tokens, c.cols}, 11);
      Tensor expected({tokens, c.rows}, DType::kF32);
      linear_reference(x, weight, bias, expected);
      const Tensor gpu_x = to_gpu(x, DType::kBF16);
      for (const DType type : {DType::kF32, DType::kBF16}) {
        const Tensor y = poisoned({tokens, c.rows}, type);
        const PackedMatrix* const matrix = &packed;
        linear(gpu_x, {&matrix, 1}, gpu_bias, y, *stream_);
        // cuBLASLt's result is rounded before the bias is added: products below 64 by 2^-3 at most.
        expect_near(y, expected, type == DType::kF32 ? 1e-5 : kBf16,
                    type == DType::kF32 ? 1e-3 : 0.13,
                    std::to_string(tokens) + " tokens, [" + std::to_string(c.rows) + ", " +
                        std::to_string(c.cols) + "] " + std::string(name(type)));
      }
    }
  }
}

/// What fused_linear() computes, in f32 from the inputs as they are.
Tensor fused_reference(const gpu::FusedLinear& args, TensorView x, TensorView weight,
                       const std::vector<std::int32_t>& x_rows, TensorView norm, TensorView bias,
                       TensorView before) {
  const auto tokens = static_cast<std::int64_t>(x_rows.size());
  Tensor picked({tokens, x.dim(1)}, DType::kF32);
  for (std::int64_t m = 0; m < tokens; ++m)
    std::copy_n(x.as<float>() + x_rows[static_cast<std::size_t>(m)] * x.dim(1), x.dim(1),
                picked.view().as<float>() + m * x.dim(1));
  if (!norm.empty()) ref::rms_norm(picked, norm, args.eps, picked);
  Tensor product({tokens, weight.dim(0)}, DType::kF32);
  linear_reference(picked, weight, bias, product);
  if (args.into == gpu::Into::kSilu || args.into == gpu::Into::kGelu) {
    Tensor y({tokens, weight.dim(0) / 2}, DType::kF32);
    if (args.into == gpu::Into::kSilu) {
      ref::silu_and_mul(product, y);
    } else {
      ref::gelu_tanh_and_mul(product, y);
    }
    return y;
  }
  if (args.into == gpu::Into::kAdd)
    for (std::int64_t i = 0; i < product.view().numel(); ++i)
      product.view().as<float>()[i] += before.as<float>()[i];
  return product;
}

TEST_F(GpuOpsTest, ProductsWithWhatLiesAroundThemAreThoseOfTheReference) {
  using gpu::Into;
  ThreadPool pool(4);
  struct Case {
    std::int64_t rows, cols;
  };
  for (const Case c : {Case{64, 64}, Case{1008, 576}, Case{4096, 1024}, Case{304, 5120}})
    for (const std::int64_t tokens : {1, 3, 8, 9, 16, 31, 32, 40}) {
      // Sums of about 1, whatever the number of columns.
      const Tensor weight =
          random_tensor({c.rows, c.cols}, 9, 1.7F / std::sqrt(static_cast<float>(c.cols)));
      const PackedMatrix packed = gpu::pack_matrix(weight, {}, pool, kGpu);
      const Tensor norm = random_tensor({c.cols}, 12, 2);
      const Tensor bias = random_tensor({c.rows}, 10, 4);
      const Tensor x = random_tensor({tokens + 3, c.cols}, 11, 3);
      const Tensor before = random_tensor({tokens, c.rows}, 13, 9);
      std::vector<std::int32_t> in_order(static_cast<std::size_t>(tokens));
      std::iota(in_order.begin(), in_order.end(), 0);
      std::vector<std::int32_t> backwards(in_order.rbegin(), in_order.rend());
      for (std::int32_t& row : backwards) row += 2;
      const Tensor gpu_norm = to_gpu(norm);
      const Tensor gpu_bias = to_gpu(bias);
      const Tensor gpu_rows = to_gpu(ints(backwards));
      for (const Into into : {Into::kStore, Into::kAdd, Into::kSilu, Into::kGelu})
        for (const bool normed : {false, true})
          for (const bool by_index : {false, true}) {
            if (by_index && !normed) continue;
            const bool gated = into == Into::kSilu || into == Into::kGelu;
            const Tensor gpu_x = to_gpu(x, normed ? DType::kF32 : DType::kBF16);
            const Tensor y = into == Into::kAdd
                                 ? to_gpu(before)
                                 : poisoned({tokens, gated ? c.rows / 2 : c.rows}, DType::kBF16);
            const gpu::FusedLinear args{
                .x = by_index ? gpu_x.view() : gpu_x.view().slice(0, tokens),
                .norm = normed ? gpu_norm.view() : TensorView(),
                .eps = 1e-5F,
                .x_rows = by_index ? gpu_rows.view() : TensorView(),
                .weight = &packed,
                .bias = into == Into::kAdd ? TensorView() : gpu_bias.view(),
                .into = into,
                .y = y};
            const Tensor expected = fused_reference(
                args, x, weight, by_index ? backwards : in_order, normed ? norm : TensorView(),
                into == Into::kAdd ? TensorView() : bias, before);
            const std::string what = std::to_string(tokens) + " tokens, [" +
                                     std::to_string(c.rows) + ", " + std::to_string(c.cols) +
                                     "], into " + std::to_string(static_cast<int>(into)) +
                                     (normed ? ", normed" : "");
            const Tensor workspace({gpu::fused_linear_workspace_bytes(args)}, DType::kU8,
                                   {.device = kGpu});
            gpu::fused_linear(args, workspace, *stream_);
            // Of sums before a gate's product with numbers up to 8.
            expect_near(y, expected, gated ? 0.02 : 2 * kBf16, gated ? 0.1 : 0.02, what);
            const auto check_with = [&](const std::string& how, const auto& compute) {
              const Tensor again =
                  into == Into::kAdd ? to_gpu(before) : poisoned(y.view().shape, DType::kBF16);
              compute(gpu::Product{.x = args.x.data,
                                   .norm = normed ? args.norm.as<float>() : nullptr,
                                   .x_rows = by_index ? args.x_rows.as<std::int32_t>() : nullptr,
                                   .w = packed.data(),
                                   .bias = args.bias.empty() ? nullptr : args.bias.as<float>(),
                                   .y = again.view().data,
                                   .tokens = tokens,
                                   .rows = c.rows,
                                   .cols = c.cols,
                                   .x_stride = c.cols,
                                   .y_stride = again.view().dim(1),
                                   .y_type = again.view().dtype,
                                   .into = into,
                                   .eps = args.eps});
              expect_near(again, expected, gated ? 0.02 : 2 * kBf16, gated ? 0.1 : 0.02,
                          std::string(what).append(", ").append(how));
            };
            for (const int tiles : {2, 4, 8})
              for (const int blocks : {1, 2, 4, 8}) {
                const gpu::ClusterShape shape{tiles, blocks};
                if (!gpu::takes_product({.tokens = tokens, .cols = c.cols}, shape)) continue;
                check_with(
                    "row tiles " + std::to_string(tiles) + ", blocks " + std::to_string(blocks),
                    [&](const gpu::Product& product) {
                      gpu::cluster_product(product, shape, cuda::as_cuda(*stream_));
                    });
              }
            if (tokens > gpu::kSmallTokens) continue;
            for (const gpu::SmallShape shape :
                 {gpu::SmallShape{1, 8}, gpu::SmallShape{1, 16}, gpu::SmallShape{2, 8},
                  gpu::SmallShape{2, 16}, gpu::SmallShape{4, 8}}) {
              if (gated && shape.tiles == 1) continue;
              if (tokens >
                  gpu::small_product_tokens({.cols = c.cols}, shape, cuda::as_cuda(*stream_)))
                continue;
              check_with(
                  "tiles " + std::to_string(shape.tiles) + ", warps " + std::to_string(shape.warps),
                  [&](const gpu::Product& product) {
                    gpu::small_product(product, shape, cuda::as_cuda(*stream_));
                  });
            }
          }
    }
}

TEST_F(GpuOpsTest, ProductsOfSeveralMatricesAndOfOneMadeOfThemAreTheSame) {
  ThreadPool pool(2);
  const Tensor a = random_tensor({48, 64}, 12), b = random_tensor({16, 64}, 13);
  const Tensor x = random_tensor({5, 64}, 14);
  std::vector<PackedMatrix> parts;
  parts.push_back(gpu::pack_matrix(a, {}, pool, kGpu));
  parts.push_back(gpu::pack_matrix(b, {}, pool, kGpu));
  const PackedMatrix whole = gpu::concatenate_rows(parts);
  EXPECT_EQ(whole.rows(), 64);
  const Tensor gpu_x = to_gpu(x, DType::kBF16);
  const Tensor apart = poisoned({5, 64}, DType::kF32), together = poisoned({5, 64}, DType::kF32);
  const std::vector<const PackedMatrix*> both{&parts[0], &parts[1]};
  const std::vector<const PackedMatrix*> one{&whole};
  linear(gpu_x, both, {}, apart, *stream_);
  linear(gpu_x, one, {}, together, *stream_);
  expect_near(together, to_host(apart), 1e-6, 1e-6, "concatenated");
}

TEST_F(GpuOpsTest, WhatAGpuCannotReadIsSaid) {
  const Tensor x({2, 12}, DType::kBF16, {.device = kGpu}),
      weight({12}, DType::kF32, {.device = kGpu});
  const std::string error = error_of([&] { rms_norm(x, weight, 1e-5F, x, *stream_); });
  EXPECT_NE(error.find("weight has shape [12]"), std::string::npos) << error;
  EXPECT_NE(error.find("a multiple of 8 elements, aligned to 16 bytes"), std::string::npos)
      << error;
}

}  // namespace
}  // namespace minisgl::kernels
