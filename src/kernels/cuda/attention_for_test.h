// Attention problems for tests on a GPU: random batches, their oracle's arguments, and what the
// kernels make of them. Without a GPU every test of the fixture is skipped.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/math.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/flashinfer/xqa.h"
#include "testing/convert.h"
#include "testing/gpu.h"
#include "testing/random.h"

namespace minisgl::kernels::attention_testing {

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

inline Tensor random_numbers(const Shape& shape, DType dtype, Random& random, float amplitude) {
  Tensor tensor(shape, dtype);
  for (std::int64_t i = 0; i < shape.numel(); ++i)
    set_number(tensor, i, random.uniform() * amplitude);
  return tensor;
}

inline Tensor widened(TensorView tensor) { return converted(tensor, DType::kF32); }

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
inline void expect_near(TensorView found, TensorView expected, double tolerance) {
  for (std::int64_t i = 0; i < expected.numel(); ++i)
    ASSERT_LE(std::abs(found.as<float>()[i] - expected.as<float>()[i]), tolerance)
        << "element " << i << " of " << to_string(expected.shape) << ": " << found.as<float>()[i]
        << ", expected " << expected.as<float>()[i];
}

inline Case random_case(Random& random, std::int32_t longest, std::int32_t most_sequences) {
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

}  // namespace minisgl::kernels::attention_testing
