// Attention on a GPU: the plain kernel against the oracle in double, the fast ones against the
// plain one on many random batches. Without a GPU every test is skipped.
// Long: one kind of problem, which all kernels get.

#include "kernels/cuda/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "base/math.h"
#include "kernels/cuda/flashinfer/xqa.h"
#include "kernels/ref/reference.h"
#include "kernels/rope.h"
#include "tensor/half.h"
#include "testing/convert.h"
#include "testing/gpu.h"
#include "testing/random.h"

namespace minisgl::kernels {
namespace {

using testing_util::converted;
using testing_util::copy_to;
using testing_util::Random;
using testing_util::set_number;

struct Sequence {
  std::int32_t queries = 1, keys = 1;
};

struct Case {
  std::int32_t q_heads = 16, kv_heads = 8, head_dim = 128, page_size = 16;
  std::int32_t window = 0;
  float softcap = 0;
  DType type = DType::kBF16, kv_type = DType::kBF16;
  std::vector<Sequence> sequences;

  std::string describe() const {
    std::string text = std::to_string(q_heads) + "/" + std::to_string(kv_heads) + " heads of " +
                       std::to_string(head_dim) + " in " + std::string(name(type)) + "/" +
                       std::string(name(kv_type)) + ", pages of " + std::to_string(page_size) +
                       ", window " + std::to_string(window) + ", cap " + std::to_string(softcap) +
                       ", queries/keys";
    for (const Sequence& s : sequences)
      text += " " + std::to_string(s.queries) + "/" + std::to_string(s.keys);
    return text;
  }
};

Tensor random_numbers(const Shape& shape, DType dtype, Random& random, float amplitude) {
  Tensor tensor(shape, dtype);
  for (std::int64_t i = 0; i < shape.numel(); ++i)
    set_number(tensor, i, random.uniform() * amplitude);
  return tensor;
}

Tensor widened(TensorView tensor) { return converted(tensor, DType::kF32); }

/// A batch in host memory: sequences in shuffled pages of a pool, and their queries.
struct Problem {
  Problem(const Case& of, Random& random) : c(of) {
    const auto num_seqs = static_cast<std::int64_t>(c.sequences.size());
    std::int64_t tokens = 0;
    cu_seqlens_q = Tensor({num_seqs + 1}, DType::kI32);
    cache_seqlens = Tensor({num_seqs}, DType::kI32);
    for (std::int64_t i = 0; i < num_seqs; ++i) {
      tokens += c.sequences[i].queries;
      cu_seqlens_q.view().as<std::int32_t>()[i + 1] = static_cast<std::int32_t>(tokens);
      cache_seqlens.view().as<std::int32_t>()[i] = c.sequences[i].keys;
      max_q = std::max(max_q, c.sequences[i].queries);
      max_k = std::max(max_k, c.sequences[i].keys);
    }
    const std::int64_t width = ceil_div(max_k, c.page_size);
    num_pages = width * num_seqs + 1;
    std::vector<std::int32_t> pages(static_cast<std::size_t>(num_pages));
    std::iota(pages.begin(), pages.end(), 0);
    for (std::size_t i = pages.size() - 1; i > 0; --i)
      std::swap(pages[i], pages[random.below(static_cast<std::int64_t>(i) + 1)]);
    page_table = Tensor({num_seqs, width}, DType::kI32);
    std::copy_n(pages.begin(), num_seqs * width, page_table.view().as<std::int32_t>());
    q = random_numbers({tokens, c.q_heads, c.head_dim}, c.type, random, 3);
    const Shape pool{num_pages * c.page_size, c.kv_heads, c.head_dim};
    k = random_numbers(pool, c.kv_type, random, 1);
    v = random_numbers(pool, c.kv_type, random, 1);
  }

  /// With every array copied to `device` by `copy`; `out` gets the result.
  PagedAttentionArgs args(const Tensor& query, const Tensor& keys, const Tensor& values,
                          const Tensor& out, const Tensor& offsets, const Tensor& lengths,
                          const Tensor& table) const {
    return {.q = query,
            .kv = {.k = keys.view().data,
                   .v = values.view().data,
                   .dtype = keys.view().dtype,
                   .num_heads = c.kv_heads,
                   .head_dim = c.head_dim,
                   .slot_stride = std::int64_t{c.kv_heads} * c.head_dim,
                   .head_stride = c.head_dim,
                   .num_slots = num_pages * c.page_size,
                   .page_size = c.page_size},
            .cu_seqlens_q = offsets,
            .cache_seqlens = lengths,
            .page_table = table,
            .scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim)),
            .window_tokens = c.window,
            .softcap = c.softcap,
            .max_seqlen_q = max_q,
            .max_seqlen_k = max_k,
            .out = out};
  }

  /// Rows of one query that come first.
  std::int32_t num_decode() const {
    std::int32_t count = 0;
    for (const Sequence& s : c.sequences) {
      if (s.queries > 1) break;
      ++count;
    }
    return count;
  }

  bool takes_tiles() const {
    return c.window == 0 && c.softcap == 0 && c.type == DType::kBF16 && c.kv_type == DType::kBF16 &&
           gpu::takes_prefill_tiles(kGpu, c.head_dim, c.page_size);
  }

  Tensor tiles(std::int32_t first) const {
    std::vector<gpu::PrefillRow> rows;
    for (std::size_t i = static_cast<std::size_t>(first); i < c.sequences.size(); ++i)
      rows.push_back({c.sequences[i].queries, c.sequences[i].keys});
    std::vector<std::int32_t> all(
        static_cast<std::size_t>(2 * gpu::max_prefill_tiles(static_cast<std::int64_t>(rows.size()),
                                                            q.view().dim(0), c.head_dim)));
    const std::int64_t count = gpu::prefill_tiles(rows, first, c.head_dim, all);
    Tensor result({count, 2}, DType::kI32);
    std::copy_n(all.begin(), 2 * count, result.view().as<std::int32_t>());
    return result;
  }

  Case c;
  Tensor q, k, v, cu_seqlens_q, cache_seqlens, page_table;
  std::int32_t max_q = 0, max_k = 0;
  std::int64_t num_pages = 0;
};

class GpuAttentionTest : public testing_util::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) stream_ = cuda::make_stream(kGpu);
  }

  /// The output of the plain kernel, of paged_attention(), and of that with num_decode and tiles.
  struct Results {
    Tensor plain, fast, tiled;
    bool has_tiles = false;
  };
  Results attend(const Problem& p) {
    const Tensor q = copy_to(p.q, kGpu, *stream_), k = copy_to(p.k, kGpu, *stream_),
                 v = copy_to(p.v, kGpu, *stream_),
                 offsets = copy_to(p.cu_seqlens_q, kGpu, *stream_),
                 lengths = copy_to(p.cache_seqlens, kGpu, *stream_),
                 table = copy_to(p.page_table, kGpu, *stream_);
    const Tensor plain = poisoned(p.q), fast = poisoned(p.q), tiled = poisoned(p.q);
    gpu::paged_attention_plain(p.args(q, k, v, plain, offsets, lengths, table), *stream_);
    const Tensor workspace(
        {gpu::paged_attention_workspace_bytes(p.c.q_heads, p.c.kv_heads, p.c.head_dim)}, DType::kU8,
        {.device = kGpu});
    paged_attention(p.args(q, k, v, fast, offsets, lengths, table), workspace, *stream_);
    PagedAttentionArgs args = p.args(q, k, v, tiled, offsets, lengths, table);
    Tensor tiles;
    if (p.max_q > 1) {
      args.num_decode = p.num_decode();
      tiles = copy_to(p.tiles(args.num_decode), kGpu, *stream_);
      if (p.takes_tiles()) args.prefill_tiles = tiles;
    }
    paged_attention(args, workspace, *stream_);
    return {widened(copy_to(plain, kCpu, *stream_)), widened(copy_to(fast, kCpu, *stream_)),
            widened(copy_to(tiled, kCpu, *stream_)), args.prefill_tiles.data != nullptr};
  }

  /// The output of XQA, or of the plain kernel: one query for each sequence.
  Tensor decode(const Problem& p, bool with_xqa) {
    const Tensor q = copy_to(p.q, kGpu, *stream_), k = copy_to(p.k, kGpu, *stream_),
                 v = copy_to(p.v, kGpu, *stream_),
                 offsets = copy_to(p.cu_seqlens_q, kGpu, *stream_),
                 lengths = copy_to(p.cache_seqlens, kGpu, *stream_),
                 table = copy_to(p.page_table, kGpu, *stream_);
    const Tensor out = poisoned(p.q);
    const PagedAttentionArgs args = p.args(q, k, v, out, offsets, lengths, table);
    const gpu::XqaShape shape{p.c.q_heads, p.c.kv_heads, p.c.head_dim};
    const Tensor workspace({gpu::xqa_workspace_bytes(shape)}, DType::kU8, {.device = kGpu});
    if (with_xqa) {
      gpu::prepare_xqa(shape, kGpu);
      gpu::xqa_decode(args, workspace, *stream_);
    } else {
      gpu::paged_attention_plain(args, *stream_);
    }
    return widened(copy_to(out, kCpu, *stream_));
  }

  /// NaNs like `of`.
  Tensor poisoned(const Tensor& of) {
    Tensor host(of.view().shape, of.view().dtype);
    std::fill_n(host.view().data, host.view().bytes(), std::byte{0xFF});
    return copy_to(host, kGpu, *stream_);
  }

  std::unique_ptr<Stream> stream_;
};

/// Values are below 1; results are rounded to bf16, and so are the fast kernel's weights.
void expect_near(TensorView found, TensorView expected, double tolerance) {
  for (std::int64_t i = 0; i < expected.numel(); ++i)
    ASSERT_LE(std::abs(found.as<float>()[i] - expected.as<float>()[i]), tolerance)
        << "element " << i << " of " << to_string(expected.shape) << ": " << found.as<float>()[i]
        << ", expected " << expected.as<float>()[i];
}

Case random_case(Random& random, std::int32_t longest, std::int32_t most_sequences) {
  constexpr std::int32_t kPageSizes[] = {1, 16, 64, 256};
  constexpr std::int32_t kGroups[] = {1, 2, 3, 4, 5, 7, 8, 16};
  constexpr std::int32_t kKvHeads[] = {1, 2, 8};
  Case c;
  c.page_size = kPageSizes[random.below(4)];
  c.kv_heads = kKvHeads[random.below(3)];
  c.q_heads = c.kv_heads * kGroups[random.below(8)];
  c.head_dim = random.below(2) == 0 ? 64 : 128;
  if (random.below(4) == 0) c.window = static_cast<std::int32_t>(random.between(1, longest));
  if (random.below(5) == 0) c.softcap = 5;
  const bool decode = random.below(2) == 0;
  const std::int64_t count = random.between(1, most_sequences);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto keys = static_cast<std::int32_t>(
        random.below(3) == 0 ? 64 * random.between(1, longest / 64) + random.between(-1, 1)
                             : random.between(1, longest));
    const auto queries =
        decode || random.below(4) == 0
            ? 1
            : static_cast<std::int32_t>(random.below(2) == 0 ? keys : random.between(1, keys));
    c.sequences.push_back({queries, keys});
  }
  return c;
}

TEST_F(GpuAttentionTest, ThePlainKernelIsTheOracleUpToRounding) {
  Random random(1);
  for (int round = 0; round < 40; ++round) {
    Case c = random_case(random, 150, 3);
    if (round % 4 == 0) c.head_dim = static_cast<std::int32_t>(8 * random.between(1, 32));
    SCOPED_TRACE(c.describe());
    const Problem p(c, random);
    Tensor expected(p.q.view().shape, DType::kF32);
    ref::paged_attention(
        p.args(widened(p.q), p.k, p.v, expected, p.cu_seqlens_q, p.cache_seqlens, p.page_table));
    const Results found = attend(p);
    expect_near(found.plain, expected, 0.004);
    expect_near(found.fast, expected, 0.012);
    expect_near(found.tiled, expected, 0.012);
  }
}

TEST_F(GpuAttentionTest, TheFastKernelsAreThePlainOneUpToRoundingOnAThousandRandomBatches) {
  Random random(2);
  for (int round = 0; round < 1000; ++round) {
    const Case c = random_case(random, round % 10 == 0 ? 2500 : 300, round % 7 == 0 ? 12 : 3);
    SCOPED_TRACE("round " + std::to_string(round) + ": " + c.describe());
    const Results found = attend(Problem(c, random));
    expect_near(found.fast, found.plain, 0.012);
    expect_near(found.tiled, found.plain, 0.012);
    if (HasFatalFailure()) return;
  }
}

TEST_F(GpuAttentionTest, OtherTypesAreThePlainKernelAndThatTheOracleUpToRounding) {
  struct Kind {
    DType type, kv_type;
    double plain, fast;  // tolerances: results are rounded, and so are the fast kernel's weights
  };
  for (const Kind kind : {Kind{DType::kBF16, DType::kF8E4M3, 0.004, 0.012},
                          Kind{DType::kF16, DType::kF16, 0.0006, 0.002},
                          Kind{DType::kF16, DType::kF8E4M3, 0.0006, 0.002}}) {
    Random random(8);
    for (int round = 0; round < 200; ++round) {
      const bool small = round % 5 == 0;
      Case c = random_case(random, small ? 120 : 500, small ? 3 : 8);
      c.type = kind.type;
      c.kv_type = kind.kv_type;
      SCOPED_TRACE("round " + std::to_string(round) + ": " + c.describe());
      const Problem p(c, random);
      const Results found = attend(p);
      expect_near(found.fast, found.plain, kind.fast);
      expect_near(found.tiled, found.plain, kind.fast);
      if (small) {
        const Tensor k = widened(p.k), v = widened(p.v);
        Tensor expected(p.q.view().shape, DType::kF32);
        ref::paged_attention(
            p.args(widened(p.q), k, v, expected, p.cu_seqlens_q, p.cache_seqlens, p.page_table));
        expect_near(found.plain, expected, kind.plain);
      }
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(GpuAttentionTest, TilesOfQueriesAreThePlainKernelUpToRoundingOnRandomBatches) {
  if (!gpu::takes_prefill_tiles(kGpu, 128, 16))
    GTEST_SKIP() << "this build or this GPU has no kernel that takes tiles";
  Random random(4);
  constexpr std::int32_t kPages[] = {8, 16, 32, 64, 128, 256, 384};
  for (int round = 0; round < 300; ++round) {
    Case c = random_case(random, round % 10 == 0 ? 3000 : 600, round % 7 == 0 ? 12 : 4);
    c.page_size = kPages[random.below(7)];
    c.window = 0;
    c.softcap = 0;
    // Decode rows come first, as in a step.
    std::stable_partition(c.sequences.begin(), c.sequences.end(),
                          [](const Sequence& s) { return s.queries == 1; });
    c.sequences.push_back({static_cast<std::int32_t>(random.between(2, 400)), 400});
    SCOPED_TRACE("round " + std::to_string(round) + ": " + c.describe());
    const Problem p(c, random);
    const Results found = attend(p);
    ASSERT_TRUE(found.has_tiles);
    expect_near(found.tiled, found.plain, 0.012);
    if (round % 25 == 0) expect_near(attend(p).tiled, found.tiled, 0);  // the counter is as it was
    if (HasFatalFailure()) return;
  }
}

TEST_F(GpuAttentionTest, ScoresBeyondWhatTheirMaskingMightAssumeAreNotTakenForMasked) {
  // Every score is far below -5e4, so that a key which is not seen must be less than any number.
  Case c;
  c.q_heads = c.kv_heads = 1;
  c.sequences = {{200, 300}};
  Random random(5);
  Problem p(c, random);
  for (std::int64_t i = 0; i < p.q.view().numel(); ++i)
    set_number(p.q, i, 40.0F + random.uniform());
  for (std::int64_t i = 0; i < p.k.view().numel(); ++i)
    set_number(p.k, i, -40.0F + 0.1F * random.uniform());
  const Results found = attend(p);
  expect_near(found.fast, found.plain, 0.03);
  expect_near(found.tiled, found.plain, 0.03);
}

TEST_F(GpuAttentionTest, DecodeIsSharedOutWhateverTheLengths) {
  Random random(6);
  for (int round = 0; round < 200; ++round) {
    Case c = random_case(random, 400, 2);
    c.window = round % 5 == 0 ? c.window : 0;
    c.sequences.clear();
    const std::int64_t count = random.between(1, round % 20 == 0 ? 300 : 40);
    for (std::int64_t i = 0; i < count; ++i)
      c.sequences.push_back(
          {1, static_cast<std::int32_t>(random.below(10) == 0 ? random.between(1, 40000 / count + 1)
                                                              : random.between(1, 200))});
    SCOPED_TRACE("round " + std::to_string(round) + ": " + std::to_string(count) + " sequences");
    const Results found = attend(Problem(c, random));
    expect_near(found.fast, found.plain, 0.012);
    if (HasFatalFailure()) return;
  }
}

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

TEST_F(GpuAttentionTest, ManySequencesAndLongOnesAreSharedOut) {
  Random random(3);
  for (const std::int32_t count : {1, 2, 64, 256}) {
    Case c;
    for (std::int32_t i = 0; i < count; ++i)
      c.sequences.push_back({1, static_cast<std::int32_t>(random.between(1, 20000 / count + 100))});
    SCOPED_TRACE(std::to_string(count) + " sequences");
    const Problem p(c, random);
    const Results first = attend(p);
    expect_near(first.fast, first.plain, 0.012);
    const Results second = attend(p);  // the tickets are as they were
    expect_near(second.fast, first.fast, 0);
  }
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
}  // namespace minisgl::kernels
