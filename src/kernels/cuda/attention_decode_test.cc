// Decode attention in other ways: XQA, and with the rotation of new queries and keys inside, each
// against the same in plain steps. Without a GPU every test is skipped.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_for_test.h"
#include "kernels/cuda/flashinfer/xqa.h"
#include "kernels/rope.h"

namespace minisgl::kernels::attention_testing {
namespace {

TEST_F(GpuAttentionTest, XqaIsThePlainKernelUpToRoundingOnRandomBatches) {
  if (!gpu::xqa_built()) GTEST_SKIP() << "this build has no XQA";
  Random random(7);
  constexpr std::int32_t kKvHeads[] = {1, 2, 3, 8};
  for (int round = 0; round < 320; ++round) {
    Case c;
    c.head_dim = round % 2 == 0 ? 64 : 128;
    c.page_size = gpu::kXqaPageSize;
    c.kv_heads = kKvHeads[random.below(4)];
    c.q_heads = c.kv_heads * (round / 2 % 8 + 1);
    const std::int64_t count = random.between(1, round % 20 == 0 ? 300 : 9);
    for (std::int64_t i = 0; i < count; ++i)
      c.sequences.push_back(
          {1, static_cast<std::int32_t>(random.below(4) == 0 ? random.between(1, 20000 / count + 1)
                                                             : random.between(1, 300))});
    SCOPED_TRACE("round " + std::to_string(round) + ": " + c.describe());
    Problem p(c, random);
    const Tensor out = decode(p, /*with_xqa=*/true);
    // Parts are rounded to bf16 before they are added up, up to six times.
    expect_near(out, decode(p, /*with_xqa=*/false), 0.02);
    // What lies behind a sequence's own pages is not read, and the semaphores are as they were.
    const std::int64_t width = p.page_table.view().dim(1);
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t page = ceil_div(c.sequences[static_cast<std::size_t>(i)].keys, c.page_size);
           page < width; ++page)
        p.page_table.view().as<std::int32_t>()[i * width + page] = 1 << 30;
    expect_near(decode(p, /*with_xqa=*/true), out, 0);
    if (HasFatalFailure()) return;
  }
}

TEST_F(GpuAttentionTest, XqaRefusesWhatThereIsNoKernelFor) {
  if (!gpu::xqa_built()) GTEST_SKIP() << "this build has no XQA";
  const auto error_of = [](const gpu::XqaShape& shape) -> std::string {
    try {
      gpu::prepare_xqa(shape, kGpu);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_of({16, 8, 128}), "no error");
  EXPECT_NE(error_of({18, 2, 128}).find("9 query heads to a KV head"), std::string::npos);
  EXPECT_NE(error_of({16, 8, 96}).find("heads of 96"), std::string::npos);
}

TEST(PrefillTilesTest, CoverEveryQueryOnceAndBeginWithTheOnesThatSeeMost) {
  const std::vector<gpu::PrefillRow> rows = {{300, 300}, {1, 5000}, {128, 200}};
  std::vector<std::int32_t> tiles(20);
  ASSERT_EQ(gpu::max_prefill_tiles(3, 429, 128), 6);
  ASSERT_EQ(gpu::prefill_tiles(rows, 2, 128, tiles), 5);
  tiles.resize(10);
  // Row 3 sees 5000 keys; row 2's tiles end at 300, 256 and 128; row 4's at 200.
  EXPECT_EQ(tiles, (std::vector<std::int32_t>{3, 0, 2, 2, 2, 1, 4, 0, 2, 0}));
  EXPECT_EQ(gpu::prefill_tiles(rows, 0, 64, tiles), 4) << "tiles of 192 queries";
}

TEST_F(GpuAttentionTest, DecodeRowsThatRotateTheirQueriesGiveWhatTheTwoStepsGive) {
  Random random(9);
  for (int round = 0; round < 300; ++round) {
    Case c = random_case(random, round % 10 == 0 ? 5000 : 400, 16);
    for (Sequence& s : c.sequences) s.queries = 1;
    const Problem p(c, random);
    const auto rows = static_cast<std::int64_t>(c.sequences.size());
    const std::int64_t head_dim = c.head_dim;
    const Tensor qkv =
        copy_to(random_numbers({rows, (c.q_heads + 2 * c.kv_heads) * head_dim}, c.type, random, 3),
                kGpu, *stream_);
    Tensor positions({rows}, DType::kI32), slots({rows}, DType::kI32);
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int32_t last = c.sequences[static_cast<std::size_t>(i)].keys - 1;
      const std::int32_t page =
          p.page_table.view()
              .as<std::int32_t>()[i * p.page_table.view().dim(1) + last / c.page_size];
      positions.view().as<std::int32_t>()[i] = last;
      slots.view().as<std::int32_t>()[i] = page * c.page_size + last % c.page_size;
    }
    std::vector<float> frequencies;
    for (std::int64_t i = 0; i < head_dim / 2; ++i)
      frequencies.push_back(
          std::pow(1e4F, -2.0F * static_cast<float>(i) / static_cast<float>(head_dim)));
    const Tensor table = copy_to(make_rope_table(frequencies, p.max_k), kGpu, *stream_);
    Tensor norm({head_dim}, DType::kF32);
    for (std::int64_t i = 0; i < head_dim; ++i) norm.view().as<float>()[i] = random.uniform() + 1;
    const Tensor gpu_norm = copy_to(norm, kGpu, *stream_);
    const TensorView weight = random.below(2) == 0 ? gpu_norm.view() : TensorView();
    const Tensor gpu_positions = copy_to(positions, kGpu, *stream_),
                 gpu_slots = copy_to(slots, kGpu, *stream_),
                 offsets = copy_to(p.cu_seqlens_q, kGpu, *stream_),
                 lengths = copy_to(p.cache_seqlens, kGpu, *stream_),
                 pages = copy_to(p.page_table, kGpu, *stream_);
    const Tensor workspace(
        {gpu::paged_attention_workspace_bytes(c.q_heads, c.kv_heads, c.head_dim)}, DType::kU8,
        {.device = kGpu});
    struct Result {
      Tensor out, k, v;
    };
    const auto attend = [&](bool at_once) {
      Result r{poisoned(p.q), copy_to(p.k, kGpu, *stream_), copy_to(p.v, kGpu, *stream_)};
      const Tensor q = poisoned(p.q);
      const PagedAttentionArgs args = p.args(q, r.k, r.v, r.out, offsets, lengths, pages);
      const RopeStoreArgs rope{.qkv = qkv,
                               .positions = gpu_positions,
                               .out_locs = gpu_slots,
                               .rope_table = table,
                               .q_norm = weight,
                               .k_norm = weight,
                               .norm_eps = 1e-6F,
                               .q = q,
                               .kv = args.kv};
      if (at_once) {
        EXPECT_TRUE(gpu::takes_rope(args, rope));
        gpu::paged_attention_with_rope(args, rope, workspace, *stream_);
      } else {
        qk_norm_rope_store(rope, *stream_);
        paged_attention(args, workspace, *stream_);
      }
      return Result{copy_to(r.out, kCpu, *stream_), copy_to(r.k, kCpu, *stream_),
                    copy_to(r.v, kCpu, *stream_)};
    };
    const Result apart = attend(false);
    const Result at_once = attend(true);
    expect_near(widened(at_once.out), widened(apart.out), 0.02);
    const auto same = [](const Tensor& a, const Tensor& b) {
      return std::equal(a.view().data, a.view().data + a.view().bytes(), b.view().data);
    };
    EXPECT_TRUE(same(at_once.k, apart.k) && same(at_once.v, apart.v)) << c.describe();
    if (HasFailure()) FAIL() << "round " << round << ": " << c.describe();
  }
}

}  // namespace
}  // namespace minisgl::kernels::attention_testing
