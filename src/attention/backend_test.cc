#include "attention/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/backend_for_test.h"
#include "attention/fa_backend.h"
#include "attention/ref_backend.h"

namespace minisgl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_util::Random;

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

TEST(FaBackendTest, TheDrawnExample) {
  World world = drawn_example();
  world.batch.page_table = &world.table;
  CpuStream stream(1);
  FaBackend backend(world.shape);
  const Prepared p = prepare(backend, world.batch, stream);
  EXPECT_EQ(p.fa->queries, FaMetadata::Queries::kExtend);
  EXPECT_THAT(values_of(p.fa->cache_seqlens), ElementsAre(6, 9, 3));
  EXPECT_THAT(values_of(p.fa->cu_seqlens_k), ElementsAre(0, 6, 15, 18));
  EXPECT_THAT(values_of(p.fa->cu_seqlens_q), ElementsAre(0, 2, 11, 14));
  EXPECT_EQ(p.fa->max_seqlen_q, 9);
  EXPECT_EQ(p.fa->max_seqlen_k, 9);
  ASSERT_EQ(p.fa->page_table.shape, (Shape{3, 3}));
  const std::vector<std::int32_t> pages = values_of(p.fa->page_table);
  EXPECT_THAT(std::vector(pages.begin(), pages.begin() + 2), ElementsAre(5, 2));
  EXPECT_THAT(std::vector(pages.begin() + 3, pages.begin() + 7), ElementsAre(0, 7, 3, 4));
}

// Columns that an earlier, longer step left behind a row's own pages must not matter.
TEST(BackendTest, AShorterStepAfterALongerOneReadsNoStalePages) {
  for (const char* name : {"ref", "fa", "fi", "trtllm"}) {
    World world(16);
    CpuStream stream(2);
    const auto backend = make_attention_backend(name, world.shape);
    for (const std::int32_t longest : {200, 120, 33, 16, 1}) {
      world.batch.rows = {{RowId{0}, longest - 1, longest}, {RowId{1}, 0, 1}, {RowId{2}, 0, 5}};
      world.pad();
      const std::vector<float> used = attend(*backend, world, 0, stream);
      ASSERT_EQ(used, attend(*make_attention_backend(name, world.shape), world, 0, stream))
          << name << ", longest " << longest;
    }
  }
}

TEST(FaBackendTest, OneTokenForEachRowMakesAscendingOffsetsOnTheDevice) {
  World world(1);
  world.batch.rows = {{RowId{0}, 9, 10}, {RowId{3}, 0, 1}, {RowId{1}, 99, 100}};
  world.pad();
  CpuStream stream(1);
  FaBackend backend(world.shape);
  const Prepared p = prepare(backend, world.batch, stream);
  EXPECT_EQ(p.fa->queries, FaMetadata::Queries::kOneEach);
  EXPECT_THAT(values_of(p.fa->cu_seqlens_q), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(values_of(p.fa->cu_seqlens_k), ElementsAre(0, 10, 11, 111, 112));
  EXPECT_THAT(values_of(p.fa->cache_seqlens), ElementsAre(10, 1, 100, 1));
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
  EXPECT_THAT(values_of(p.fa->cu_seqlens_q), ElementsAre(0, 10, 11, 16, 17));
  EXPECT_EQ(p.fa->max_seqlen_q, 10);
}

TEST(FaBackendTest, ACachedPrefixNeedsOffsetsOfItsOwn) {
  World world(1);
  world.batch.rows = {{RowId{0}, 19, 20}, {RowId{3}, 4, 10}, {RowId{1}, 0, 5}};
  CpuStream stream(1);
  FaBackend backend(world.shape);
  const Prepared p = prepare(backend, world.batch, stream);
  EXPECT_EQ(p.fa->queries, FaMetadata::Queries::kExtend);
  EXPECT_THAT(values_of(p.fa->cu_seqlens_q), ElementsAre(0, 1, 7, 12))
      << "query length = extend_len";
  EXPECT_THAT(values_of(p.fa->cu_seqlens_k), ElementsAre(0, 20, 30, 35))
      << "key length = device_len";
  EXPECT_THAT(values_of(p.fa->cache_seqlens), ElementsAre(20, 10, 5));
}

TEST(FaBackendTest, WithPagesOfOneTheTableIsASliceOfTheRows) {
  World world(1);
  world.batch.rows = {{RowId{2}, 0, 7}, {RowId{4}, 2, 3}};
  CpuStream stream(1);
  FaBackend backend(world.shape);
  const Prepared p = prepare(backend, world.batch, stream);
  ASSERT_EQ(p.fa->page_table.shape, (Shape{2, 7}));
  const std::vector<std::int32_t> pages = values_of(p.fa->page_table);
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
  const std::vector<std::int32_t> pages = values_of(p.fa->page_table);
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
      EXPECT_EQ(values_of(dynamic_cast<const FaMetadata&>(*in_flight[0]).cache_seqlens),
                expected[0]);
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
  EXPECT_THAT(values_of(dynamic_cast<const FaMetadata&>(*metadata).cu_seqlens_k),
              ElementsAre(0, 3));
}

TEST(BackendTest, RowsThatCannotBeComputedAreNamed) {
  for (const char* name : {"ref", "fa", "fi", "trtllm", "fa,fi"}) {
    World world(16);
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
    EXPECT_STREQ(
        e.what(),
        "unknown attention backend \"flash\"; known are auto, ref, fa, fi, trtllm, or two of them "
        "as \"prefill,decode\"");
  }
}

}  // namespace
}  // namespace minisgl
