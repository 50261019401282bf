#include "attention/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "attention/fa_backend.h"
#include "attention/ref_backend.h"
#include "base/math.h"
#include "testing/random.h"

namespace minisgl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_util::Random;

constexpr std::int32_t kMaxRows = 6;
constexpr std::int64_t kMaxTokens = 200;

AttentionShape shape_with(std::int32_t page_size) {
  return {.num_heads = 6,
          .num_kv_heads = 2,
          .head_dim = 16,
          .scale = 0.25F,
          .page_size = page_size,
          .max_seq_len_tokens = kMaxTokens,
          .max_rows = kMaxRows,
          .device = kCpu};
}

/// A pool, a page table with random pages, and a batch of some rows.
struct World {
  explicit World(std::int32_t page_size)
      : shape(shape_with(page_size)),
        pages_per_row(static_cast<std::int32_t>(ceil_div<std::int64_t>(kMaxTokens, page_size))),
        num_pages(pages_per_row * kMaxRows + 1),
        table(kMaxRows, kMaxTokens, (num_pages - 1) * page_size),
        pool({2, 2, std::int64_t{num_pages} * page_size, shape.num_kv_heads, shape.head_dim}) {
    std::vector<std::int32_t> pages(num_pages - 1);
    for (std::int32_t i = 0; i < num_pages - 1; ++i) pages[i] = i;
    Random random(page_size);
    for (std::size_t i = pages.size() - 1; i > 0; --i)
      std::swap(pages[i], pages[random.below(i + 1)]);
    for (std::int32_t row = 0; row < kMaxRows; ++row)
      for (std::int64_t i = 0; i < kMaxTokens; ++i)
        table.row(RowId{row})[i] = static_cast<TokenLoc>(
            pages[row * pages_per_row + i / page_size] * page_size + i % page_size);
    batch.page_table = &table;
  }

  /// Padding rows as the engine makes them.
  void pad() { batch.rows.push_back({table.dummy_row(), 0, 1}); }

  AttentionShape shape;
  std::int32_t pages_per_row, num_pages;
  PageTable table;
  struct Pool {
    explicit Pool(std::initializer_list<std::int64_t> sizes) {
      std::int64_t count = 1;
      for (const std::int64_t size : sizes) count *= size;
      values = testing_util::uniform(count, 1);
    }
    std::vector<float> values;
  } pool;
  Batch batch;

  KvCacheView kv() {
    const std::int64_t slots = std::int64_t{num_pages} * shape.page_size;
    const std::int64_t layer = slots * shape.num_kv_heads * shape.head_dim;
    auto* k = reinterpret_cast<std::byte*>(pool.values.data());
    return {.first = {.k = k,
                      .v = k + 2 * layer * 4,
                      .num_heads = shape.num_kv_heads,
                      .head_dim = shape.head_dim,
                      .slot_stride = shape.num_kv_heads * shape.head_dim,
                      .head_stride = shape.head_dim,
                      .num_slots = slots,
                      .page_size = shape.page_size},
            .layer_bytes = layer * 4,
            .num_layers = 2};
  }
};

std::vector<std::int32_t> values(const TensorView& view) {
  const auto* from = view.as<std::int32_t>();
  return {from, from + view.numel()};
}

struct Prepared {
  std::unique_ptr<AttentionMetadata> owner;
  const FaMetadata* fa;
};

Prepared prepare(FaBackend& backend, const Batch& batch, Stream& stream) {
  auto metadata = backend.prepare_metadata(batch, stream);
  stream.synchronize();
  const auto* fa = dynamic_cast<const FaMetadata*>(metadata.get());
  return {std::move(metadata), fa};
}

TEST(FaBackendTest, OneTokenForEachRowMakesAscendingOffsetsOnTheDevice) {
  World world(1);
  world.batch.rows = {{RowId{0}, 9, 10}, {RowId{3}, 0, 1}, {RowId{1}, 99, 100}};
  world.pad();
  CpuStream stream(1);
  FaBackend backend(world.shape);
  const Prepared p = prepare(backend, world.batch, stream);
  EXPECT_EQ(p.fa->queries, FaMetadata::Queries::kOneEach);
  EXPECT_THAT(values(p.fa->cu_seqlens_q), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(values(p.fa->cu_seqlens_k), ElementsAre(0, 10, 11, 111, 112));
  EXPECT_THAT(values(p.fa->cache_seqlens), ElementsAre(10, 1, 100, 1));
  EXPECT_NE(p.fa->cu_seqlens_q.data, p.fa->cu_seqlens_k.data);
  EXPECT_EQ(p.fa->max_seqlen_q, 1);
  EXPECT_EQ(p.fa->max_seqlen_k, 100);
}

TEST(FaBackendTest, WithoutCachedPrefixQueriesAndKeysShareTheirOffsets) {
  World world(1);
  world.batch.rows = {{RowId{0}, 0, 10}, {RowId{3}, 0, 1}, {RowId{1}, 0, 5}};
  world.pad();
  CpuStream stream(1);
  FaBackend backend(world.shape);
  const Prepared p = prepare(backend, world.batch, stream);
  EXPECT_EQ(p.fa->queries, FaMetadata::Queries::kNoPrefix);
  EXPECT_EQ(p.fa->cu_seqlens_q.data, p.fa->cu_seqlens_k.data)
      << "the same buffer, not an equal one";
  EXPECT_THAT(values(p.fa->cu_seqlens_q), ElementsAre(0, 10, 11, 16, 17));
  EXPECT_EQ(p.fa->max_seqlen_q, 10);
}

TEST(FaBackendTest, ACachedPrefixNeedsOffsetsOfItsOwn) {
  World world(1);
  world.batch.rows = {{RowId{0}, 19, 20}, {RowId{3}, 4, 10}, {RowId{1}, 0, 5}};
  CpuStream stream(1);
  FaBackend backend(world.shape);
  const Prepared p = prepare(backend, world.batch, stream);
  EXPECT_EQ(p.fa->queries, FaMetadata::Queries::kExtend);
  EXPECT_THAT(values(p.fa->cu_seqlens_q), ElementsAre(0, 1, 7, 12)) << "query length = extend_len";
  EXPECT_THAT(values(p.fa->cu_seqlens_k), ElementsAre(0, 20, 30, 35)) << "key length = device_len";
  EXPECT_THAT(values(p.fa->cache_seqlens), ElementsAre(20, 10, 5));
}

TEST(FaBackendTest, WithPagesOfOneTheTableIsASliceOfTheRows) {
  World world(1);
  world.batch.rows = {{RowId{2}, 0, 7}, {RowId{4}, 2, 3}};
  CpuStream stream(1);
  FaBackend backend(world.shape);
  const Prepared p = prepare(backend, world.batch, stream);
  ASSERT_EQ(p.fa->page_table.shape, (Shape{2, 7}));
  const std::vector<std::int32_t> pages = values(p.fa->page_table);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(pages[i], world.table.row(RowId{2})[i]);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pages[7 + i], world.table.row(RowId{4})[i]);
}

TEST(FaBackendTest, WithLargerPagesTheTableHasEveryPageOnceDividedByItsSize) {
  World world(16);
  world.batch.rows = {{RowId{2}, 0, 49}, {RowId{4}, 2, 16}};
  world.pad();
  CpuStream stream(1);
  FaBackend backend(world.shape);
  const Prepared p = prepare(backend, world.batch, stream);
  ASSERT_EQ(p.fa->page_table.shape, (Shape{3, 4})) << "49 tokens lie in 4 pages";
  const std::vector<std::int32_t> pages = values(p.fa->page_table);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(pages[i], world.table.row(RowId{2})[16 * i] / 16);
  EXPECT_EQ(pages[4], world.table.row(RowId{4})[0] / 16);
  EXPECT_EQ(pages[8], world.num_pages - 1) << "padding reads the dummy page";
}

TEST(FaBackendTest, APageThatDoesNotBeginAtAMultipleOfItsSizeIsReported) {
  World world(16);
  world.batch.rows = {{RowId{2}, 0, 49}};
  world.table.row(RowId{2})[16] += 1;
  CpuStream stream(1);
  FaBackend backend(world.shape);
  try {
    backend.prepare_metadata(world.batch, stream);
    FAIL() << "expected Error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("does not begin at a multiple of page_size 16"));
  }
}

TEST(FaBackendTest, MemoryIsReusedFromStepToStepAndNotWhileAStepHoldsIt) {
  World world(1);
  CpuStream stream(1);
  FaBackend backend(world.shape);
  std::vector<std::unique_ptr<AttentionMetadata>> in_flight;
  Random random(4);
  std::vector<std::vector<std::int32_t>> expected;
  for (int step = 0; step < 50; ++step) {
    if (in_flight.size() == 2) {
      stream.synchronize();
      EXPECT_EQ(values(dynamic_cast<const FaMetadata&>(*in_flight[0]).cache_seqlens), expected[0]);
      in_flight.erase(in_flight.begin());
      expected.erase(expected.begin());
    }
    world.batch.rows.clear();
    expected.emplace_back();
    for (std::int32_t row = 0; row < random.between(1, kMaxRows); ++row) {
      const auto length = static_cast<std::int32_t>(random.between(1, kMaxTokens));
      world.batch.rows.push_back(
          {RowId{row}, static_cast<std::int32_t>(random.below(length)), length});
      expected.back().push_back(length);
    }
    in_flight.push_back(backend.prepare_metadata(world.batch, stream));
  }
  stream.synchronize();
  EXPECT_EQ(backend.num_blocks(), 2U);
}

TEST(FaBackendTest, MetadataMayOutliveTheBackend) {
  World world(1);
  world.batch.rows = {{RowId{0}, 0, 3}};
  CpuStream stream(1);
  std::unique_ptr<AttentionMetadata> metadata;
  {
    FaBackend backend(world.shape);
    metadata = backend.prepare_metadata(world.batch, stream);
  }
  stream.synchronize();
  EXPECT_THAT(values(dynamic_cast<const FaMetadata&>(*metadata).cu_seqlens_k), ElementsAre(0, 3));
}

TEST(BackendTest, RowsThatCannotBeComputedAreNamed) {
  for (const char* name : {"fa", "ref"}) {
    World world(1);
    CpuStream stream(1);
    const auto backend = make_attention_backend(name, world.shape);
    const auto message = [&](std::vector<BatchRow> rows) {
      world.batch.rows = std::move(rows);
      try {
        backend->prepare_metadata(world.batch, stream);
      } catch (const Error& e) {
        return std::string(e.what());
      }
      return std::string("no error");
    };
    EXPECT_THAT(message({{RowId{0}, 0, 2}, {RowId{1}, 0, 0}}),
                HasSubstr("row 1 of the batch has cached_len 0 and device_len 0"));
    EXPECT_THAT(message({{RowId{0}, 0, 201}}),
                HasSubstr("device_len 201; expected 0 <= cached_len < device_len <= 200"));
    EXPECT_THAT(message(std::vector<BatchRow>(7, {RowId{0}, 0, 1})),
                HasSubstr("a batch of 7 rows; the backend was made for 1 to 6"));
  }
}

/// Output of a backend for the batch; the whole step is one task, as in the engine.
std::vector<float> attend(AttentionBackend& backend, World& world, std::int64_t layer,
                          CpuStream& stream) {
  const std::int64_t tokens = world.batch.num_tokens();
  const std::vector<float> q = testing_util::uniform(tokens * 6 * 16, 5);
  std::vector<float> out(q.size());
  const TensorView q_view(const_cast<float*>(q.data()), {tokens, 6, 16}, DType::kF32);
  const TensorView out_view(out.data(), {tokens, 6, 16}, DType::kF32);
  const auto metadata = backend.prepare_metadata(world.batch, stream);
  const ForwardInputs inputs;

  ScratchArena plan;
  const auto dry = CpuStream::make_dry(stream.num_threads());
  ForwardContext planned{*dry, plan, &inputs, backend, metadata.get(), world.kv()};
  backend.forward(q_view, layer, out_view, planned);

  ScratchArena scratch(plan.peak_bytes());
  ForwardContext ctx{stream, scratch, &inputs, backend, metadata.get(), world.kv()};
  stream.submit([&] { backend.forward(q_view, layer, out_view, ctx); });
  stream.synchronize();
  return out;
}

TEST(BackendTest, FaAndRefAgreeOnRandomBatches) {
  Random random(9);
  for (const std::int32_t page_size : {1, 4, 16}) {
    World world(page_size);
    CpuStream stream(2);
    const auto fa = make_attention_backend("auto", world.shape);
    const auto ref = make_attention_backend("ref", world.shape);
    EXPECT_EQ(fa->name(), "fa");
    for (int trial = 0; trial < 20; ++trial) {
      world.batch.rows.clear();
      const std::int64_t rows = random.between(1, kMaxRows - 1);
      for (std::int32_t row = 0; row < rows; ++row) {
        const auto length = static_cast<std::int32_t>(random.between(1, kMaxTokens));
        const std::int32_t cached = trial % 3 == 0 ? 0
                                    : trial % 3 == 1
                                        ? length - 1
                                        : static_cast<std::int32_t>(random.below(length));
        world.batch.rows.push_back({RowId{row}, cached, length});
      }
      world.pad();
      const std::vector<float> actual = attend(*fa, world, trial % 2, stream);
      const std::vector<float> expected = attend(*ref, world, trial % 2, stream);
      for (std::size_t i = 0; i < actual.size(); ++i)
        ASSERT_NEAR(actual[i], expected[i], 2e-6)
            << "page_size " << page_size << ", trial " << trial << ", element " << i;
    }
  }
}

TEST(BackendTest, MetadataOfAnotherBackendIsRefused) {
  World world(1);
  world.batch.rows = {{RowId{0}, 0, 2}};
  CpuStream stream(1);
  FaBackend fa(world.shape);
  RefBackend ref(world.shape);
  const auto metadata = ref.prepare_metadata(world.batch, stream);
  ScratchArena scratch(1 << 20);
  const ForwardInputs inputs;
  ForwardContext ctx{stream, scratch, &inputs, fa, metadata.get(), world.kv()};
  const Tensor q({2, 6, 16}, DType::kF32);
  try {
    fa.forward(q, 0, q, ctx);
    FAIL() << "expected Error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("made by another backend than fa"));
  }
  stream.synchronize();
}

TEST(BackendTest, AnUnknownNameIsAnsweredWithTheKnownOnes) {
  try {
    make_attention_backend("flash", shape_with(1));
    FAIL() << "expected Error";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "unknown attention backend \"flash\"; known are auto, fa, ref");
  }
}

}  // namespace
}  // namespace minisgl
