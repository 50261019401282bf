#include "engine/graph_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "engine/emulated_graph.h"
#include "engine/forward_scope.h"

namespace minisgl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

struct LengthMetadata final : AttentionMetadata {
  explicit LengthMetadata(std::int64_t rows) : owned({rows}, DType::kI32), lengths(owned) {}
  explicit LengthMetadata(TensorView fixed) : lengths(fixed) {}
  Tensor owned;
  TensorView lengths;
};

/// A backend that nobody has heard of: its argument is the length of each row.
class MadeUpBackend final : public AttentionBackend {
 public:
  std::string_view name() const override { return "made_up"; }
  std::unique_ptr<AttentionMetadata> prepare_metadata(const Batch& batch, Stream&) override {
    auto metadata = std::make_unique<LengthMetadata>(static_cast<std::int64_t>(batch.rows.size()));
    for (std::size_t i = 0; i < batch.rows.size(); ++i)
      metadata->lengths.as<std::int32_t>()[i] = batch.rows[i].device_len;
    return metadata;
  }
  void forward(TensorView, std::int64_t, TensorView, ForwardContext&) override {}

  bool supports_graphs() const override { return capturable; }
  void init_capture_graph(std::span<const std::int32_t> batch_sizes, std::int64_t) override {
    log.push_back("init");
    fixed = Tensor({batch_sizes.back()}, DType::kI32);
  }
  const AttentionMetadata& prepare_for_capture(std::int32_t batch_size, Stream&) override {
    log.push_back("capture " + std::to_string(batch_size));
    captured[batch_size] = std::make_unique<LengthMetadata>(fixed.view().slice(0, batch_size));
    return *captured[batch_size];
  }
  std::vector<CapturedBuffer> captured_buffers(std::int32_t batch_size) const override {
    return {{"made_up.lengths", fixed.view().slice(0, batch_size)}};
  }
  void prepare_for_replay(std::int32_t, const AttentionMetadata& live, CaptureWriter& writer,
                          Stream& stream) override {
    writer.copy("made_up.lengths", fixed, dynamic_cast<const LengthMetadata&>(live).lengths,
                stream);
  }

  bool capturable = true;
  Tensor fixed;
  std::map<std::int32_t, std::unique_ptr<LengthMetadata>> captured;
  std::vector<std::string> log;
};

/// A model whose logits are a function of everything that it is given:
/// logit_rows, input_ids, positions, out_locs, lengths.
constexpr std::int64_t kVocab = 5;
void forward(ForwardContext& context, TensorView logits) {
  const ScratchScope scope(context.scratch);
  context.scratch.alloc({context.inputs->input_ids.dim(0), 16}, DType::kF32);
  const auto& lengths = dynamic_cast<const LengthMetadata&>(*context.metadata).lengths;
  const ForwardInputs& in = *context.inputs;
  for (std::int64_t i = 0; i < in.logit_rows.dim(0); ++i) {
    float* out = logits.as<float>() + i * logits.stride(0);
    const std::int32_t row = in.logit_rows.as<std::int32_t>()[i];
    int k = 0;
    for (const TensorView& view : {in.logit_rows, in.input_ids, in.positions, in.out_locs, lengths})
      out[k++] = static_cast<float>(view.as<std::int32_t>()[row]);
  }
}

class GraphRunnerTest : public testing::Test {
 protected:
  static constexpr TokenLoc kDummyLoc = 640;

  GraphRunner& make(GraphRunnerConfig config) {
    if (config.batch_sizes.empty()) config.batch_sizes = {1, 2, 4, 8};
    config.max_seq_len_tokens = 32;
    runner_ = std::make_unique<GraphRunner>(std::move(config), context_, table_, logits_, forward);
    return *runner_;
  }

  /// `rows` decode rows, row i with id 10 + i at position i + 2.
  Batch decode(std::int32_t rows) {
    Batch batch;
    batch.page_table = &table_;
    for (std::int32_t i = 0; i < rows; ++i) {
      batch.rows.push_back({RowId{i}, i + 2, i + 3});
      batch.token_ids.push_back(-1);
      batch.samples.emplace_back().batch_row = i;
    }
    batch.num_rows = batch.num_decode = rows;
    return batch;
  }

  /// What the engine does with a padded batch, on the stream.
  std::vector<std::vector<float>> replay(Batch& batch) {
    const auto rows = static_cast<std::int64_t>(batch.rows.size());
    live_ = Tensor({3, rows}, DType::kI32);
    auto* values = live_.view().as<std::int32_t>();
    for (std::int64_t i = 0; i < rows; ++i) {
      const BatchRow& row = batch.rows[static_cast<std::size_t>(i)];
      values[i] = i < batch.num_rows ? static_cast<std::int32_t>(10 + i) : batch.token_ids[i];
      values[rows + i] = row.cached_len;
      values[2 * rows + i] = table_.row(row.row)[static_cast<std::size_t>(row.cached_len)];
    }
    const auto line = [&](std::int64_t i) { return live_.view().slice(i, i + 1).reshape({rows}); };
    batch.inputs = {line(0), line(1), line(2), line(0)};
    batch.attention = context_.attention.prepare_metadata(batch, stream_);
    std::vector<std::vector<float>> result;
    stream_.submit([&] {
      const ForwardScope scope(context_, batch.inputs, *batch.attention);
      const TensorView logits = runner_->replay(batch);
      for (std::int64_t i = 0; i < logits.dim(0); ++i) {
        const float* row = logits.as<float>() + i * logits.stride(0);
        result.emplace_back(row, row + kVocab);
      }
    });
    stream_.synchronize();
    return result;
  }
  std::vector<std::vector<float>> pad_and_replay(std::int32_t rows) {
    Batch batch = decode(rows);
    runner_->pad_batch(batch);
    return replay(batch);
  }

  CpuStream stream_{1};
  ScratchArena scratch_{1 << 16};
  MadeUpBackend backend_;
  ForwardContext context_{stream_, scratch_, nullptr, backend_, nullptr, {}};
  PageTable table_{20, 32, kDummyLoc};
  Tensor logits_{{20, kVocab}, DType::kF32};
  Tensor live_;
  std::unique_ptr<GraphRunner> runner_;
};

TEST_F(GraphRunnerTest, CapturesTheLargestFirstAndTheOthersShareItsScratchMemory) {
  make({.batch_sizes = {1, 2, 4}});
  EXPECT_THAT(backend_.log, ElementsAre("init", "capture 4", "capture 2", "capture 1"));
  EXPECT_EQ(runner_->pool_bytes(), 4 * 16 * 4) << "what the largest needs";
  EXPECT_EQ(scratch_.peak_bytes(), runner_->pool_bytes());
}

TEST_F(GraphRunnerTest, EachSizeIsRunOnceWithPaddingBeforeItIsRecorded) {
  std::vector<std::string> order;
  GraphRunnerConfig config{.batch_sizes = {2, 4}};
  config.record = [&](GraphRecording recording) {
    // The warm-up run has left the logits of padding: row, id 0, position 0, dummy location, length
    // 1.
    const auto last = recording.inputs.input_ids.dim(0) - 1;
    const float* row = logits_.view().as<float>() + last * kVocab;
    EXPECT_THAT(std::vector<float>(row, row + kVocab), ElementsAre(last, 0, 0, kDummyLoc, 1));
    order.push_back("record " + std::to_string(recording.inputs.input_ids.dim(0)));
    return emulate_graph(std::move(recording));
  };
  make(std::move(config));
  EXPECT_THAT(order, ElementsAre("record 4", "record 2"));
}

TEST_F(GraphRunnerTest, PadsToTheFirstSizeThatHoldsTheRows) {
  make({});
  const std::map<std::int32_t, std::size_t> expected = {{1, 1}, {2, 2}, {3, 4}, {4, 4},
                                                        {5, 8}, {7, 8}, {8, 8}, {9, 9}};
  for (const auto& [rows, padded] : expected) {
    Batch batch = decode(rows);
    runner_->pad_batch(batch);
    EXPECT_EQ(batch.rows.size(), padded) << rows << " rows";
    EXPECT_EQ(batch.token_ids.size(), padded);
    EXPECT_EQ(batch.num_rows, rows) << "the requests are still counted";
    for (std::size_t i = static_cast<std::size_t>(rows); i < padded; ++i) {
      EXPECT_EQ(batch.rows[i].row, table_.dummy_row());
      EXPECT_EQ(batch.rows[i].cached_len, 0);
      EXPECT_EQ(batch.rows[i].device_len, 1);
      EXPECT_EQ(batch.token_ids[i], 0);
    }
  }
}

TEST_F(GraphRunnerTest, AGraphIsForDecodeStepsThatFitAndForNothingElse) {
  make({});
  EXPECT_TRUE(runner_->can_use(decode(8)));
  EXPECT_FALSE(runner_->can_use(decode(9)));
  Batch prefill = decode(2);
  prefill.num_decode = 0;
  EXPECT_FALSE(runner_->can_use(prefill));
  Batch mixed = decode(2);
  mixed.num_decode = 1;
  EXPECT_FALSE(runner_->can_use(mixed));
  runner_->pad_batch(mixed);
  EXPECT_EQ(mixed.rows.size(), 2U);
}

TEST_F(GraphRunnerTest, AReplayComputesTheStepsOwnValuesAndDropsThePadding) {
  make({});
  for (std::int32_t row = 0; row < 20; ++row)
    for (std::int32_t i = 0; i < 32; ++i) table_.row(RowId{row})[i] = row * 32 + i;
  for (const std::int32_t rows : {3, 8, 1, 5}) {
    const auto logits = pad_and_replay(rows);
    ASSERT_EQ(logits.size(), static_cast<std::size_t>(rows));
    for (std::int32_t i = 0; i < rows; ++i)
      EXPECT_THAT(logits[i], ElementsAre(i, 10 + i, i + 2, i * 32 + i + 2, i + 3))
          << "row " << i << " of " << rows;
  }
  const GraphStats stats = runner_->stats();
  EXPECT_EQ(stats.replays, 4);
  EXPECT_EQ(stats.real_rows, 17);
  EXPECT_EQ(stats.padding_rows, 1 + 0 + 0 + 3);
  EXPECT_DOUBLE_EQ(stats.padding_waste(), 4.0 / 17);
}

TEST_F(GraphRunnerTest, StepsWithoutAGraphAreCounted) {
  make({});
  Batch large = decode(9);
  Batch prefill = decode(2);
  prefill.num_decode = 0;
  runner_->pad_batch(large);
  runner_->pad_batch(prefill);
  EXPECT_EQ(runner_->stats().eager_steps, 2);
  EXPECT_EQ(runner_->stats().eager_decode_steps, 1);
  EXPECT_EQ(runner_->stats().padding_waste(), 0);
}

TEST_F(GraphRunnerTest, EveryInputThatIsLeftOutGoesUnnoticedUnlessChecked) {
  const std::map<std::string, int> columns = {
      {"input_ids", 1}, {"positions", 2}, {"out_locs", 3}, {"made_up.lengths", 4}};
  make({});
  const auto right = pad_and_replay(3);
  for (const auto& [name, column] : columns) {
    SCOPED_TRACE(name);
    make({});
    runner_->leave_out(name);
    const auto wrong = pad_and_replay(3);
    for (int k = 0; k < kVocab; ++k)
      EXPECT_EQ(wrong[0][k] == right[0][k], k != column) << "column " << k << ": " << wrong[0][k];
    runner_->leave_out("");
    EXPECT_EQ(pad_and_replay(3), right);
  }
}

TEST_F(GraphRunnerTest, TheCheckerNamesTheInputThatWasLeftOutWhateverTheBackend) {
  for (const std::string name : {"input_ids", "positions", "out_locs", "made_up.lengths"}) {
    CpuStream stream(1);
    ForwardContext context{stream, scratch_, nullptr, backend_, nullptr, {}};
    GraphRunner runner({.batch_sizes = {1, 2, 4}, .max_seq_len_tokens = 32, .check = true}, context,
                       table_, logits_, forward);
    Batch batch = decode(3);
    runner.pad_batch(batch);
    const Tensor values({4}, DType::kI32);
    batch.inputs = {values, values, values, values};
    batch.attention = backend_.prepare_metadata(batch, stream);
    const auto run = [&] {
      stream.submit([&] {
        const ForwardScope scope(context, batch.inputs, *batch.attention);
        runner.replay(batch);
      });
      stream.synchronize();
    };
    EXPECT_EQ(error_of(run), "no error");
    runner.leave_out(name);
    EXPECT_EQ(error_of(run), "graph input " + name + " was not refreshed for this step");
  }
}

TEST_F(GraphRunnerTest, OnlyRefreshedBuffersCanBeLeftOut) {
  make({});
  EXPECT_EQ(error_of([&] { runner_->leave_out("logit_rows"); }),
            "there is no refreshed graph input \"logit_rows\"; there are input_ids, positions, "
            "out_locs, made_up.lengths");
}

TEST_F(GraphRunnerTest, ObserversSeeTheStepsOfAReplayInOrder) {
  make({});
  std::vector<ReplayPoint> points;
  runner_->set_observer([&](ReplayPoint point, const Batch& batch) {
    points.push_back(point);
    EXPECT_EQ(batch.num_rows, 3);
  });
  pad_and_replay(3);
  EXPECT_THAT(points, ElementsAre(ReplayPoint::kBegin, ReplayPoint::kRefreshed, ReplayPoint::kEnd));
}

TEST_F(GraphRunnerTest, StepsAreEagerOnceTheGraphsAreDestroyed) {
  int alive = 0;
  struct Nothing final : Graph {
    explicit Nothing(int& count) : alive(count) { ++alive; }
    ~Nothing() override { --alive; }
    void replay(Stream&) override {}
    int& alive;
  };
  GraphRunnerConfig config;
  config.record = [&](const GraphRecording&) { return std::make_unique<Nothing>(alive); };
  make(std::move(config));
  EXPECT_EQ(alive, 4);
  runner_->destroy();
  EXPECT_EQ(alive, 0) << "a graph may hold a communicator's collectives";
  EXPECT_FALSE(runner_->can_use(decode(2)));
  Batch batch = decode(3);
  runner_->pad_batch(batch);
  EXPECT_EQ(batch.rows.size(), 3U);
  runner_->destroy();  // a second time is nothing
}

TEST_F(GraphRunnerTest, WhatCannotBeCapturedIsAnError) {
  EXPECT_THAT(error_of([&] { make({.batch_sizes = {4, 2}}); }), HasSubstr("in ascending order"));
  EXPECT_THAT(error_of([&] { make({.batch_sizes = {32}}); }),
              HasSubstr("need as many rows of logits, not 20"));
  backend_.capturable = false;
  EXPECT_THAT(error_of([&] { make({}); }), HasSubstr("made_up cannot be captured in a graph"));
}

TEST_F(GraphRunnerTest, GraphsAreTurnedOffForABackendThatCannotBeCapturedAndTheLogSaysSo) {
  const std::vector<std::int32_t> sizes = {1, 2};
  EXPECT_TRUE(wants_graphs(sizes, backend_, kCpu));
  EXPECT_FALSE(wants_graphs({}, backend_, kCpu));
  backend_.capturable = false;
  testing::internal::CaptureStderr();
  EXPECT_FALSE(wants_graphs(sizes, backend_, kCpu));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("Graphs are off: the attention backend made_up cannot be captured on cpu"));

  // `ref` looks at lengths on the host: on a GPU a graph would keep those of its capture.
  AttentionShape shape{.num_heads = 2,
                       .num_kv_heads = 1,
                       .head_dim = 16,
                       .scale = 1,
                       .max_seq_len_tokens = 32,
                       .max_rows = 2,
                       .device = kCpu};
  EXPECT_TRUE(wants_graphs(sizes, *make_attention_backend("ref", shape), shape.device));
  EXPECT_TRUE(wants_graphs(sizes, *make_attention_backend("ref,fa", shape), shape.device));
  shape.device = {DeviceKind::kCuda, 0};
  testing::internal::CaptureStderr();
  EXPECT_FALSE(wants_graphs(sizes, *make_attention_backend("ref", shape), shape.device));
  EXPECT_FALSE(wants_graphs(sizes, *make_attention_backend("fa,ref", shape), shape.device));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("the attention backend fa,ref cannot be captured on cuda:0"));
}

TEST_F(GraphRunnerTest, StepsAreEagerWhileGraphsAreNotEnabled) {
  make({});
  runner_->set_enabled(false);
  EXPECT_FALSE(runner_->can_use(decode(2)));
  Batch batch = decode(3);
  runner_->pad_batch(batch);
  EXPECT_EQ(batch.rows.size(), 3U);
  runner_->set_enabled(true);
  EXPECT_EQ(pad_and_replay(3).size(), 3U);
  EXPECT_EQ(runner_->stats().replays, 1);
}

TEST_F(GraphRunnerTest, AStepThatWasNotPaddedOrIsNotSampledThroughoutHasNoGraph) {
  make({});
  Batch unpadded = decode(3);
  EXPECT_THAT(error_of([&] { runner_->replay(unpadded); }),
              HasSubstr("a step of 3 rows (3 with padding)"));
  Batch unsampled = decode(2);
  unsampled.samples.pop_back();
  EXPECT_THAT(error_of([&] { runner_->replay(unsampled); }),
              HasSubstr("1 are sampled, has no graph"));
  Batch twice = decode(3);
  runner_->pad_batch(twice);
  EXPECT_THAT(error_of([&] { runner_->pad_batch(twice); }), HasSubstr("padded twice"));
}

}  // namespace
}  // namespace minisgl
