#include "engine/emulated_graph.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "attention/backend.h"
#include "engine/forward_scope.h"

namespace minisgl {
namespace {

struct Named final : AttentionMetadata {
  explicit Named(std::string n) : name(std::move(n)) {}
  std::string name;
};

class NoBackend final : public AttentionBackend {
 public:
  std::string_view name() const override { return "none"; }
  std::unique_ptr<AttentionMetadata> prepare_metadata(const Batch&, Stream&) override {
    return nullptr;
  }
  void forward(TensorView, std::int64_t, TensorView, ForwardContext&) override {}
};

ForwardInputs positions_only(const TensorView& positions) {
  ForwardInputs inputs;
  inputs.positions = positions;
  return inputs;
}

class EmulatedGraphTest : public testing::Test {
 protected:
  const std::string& current_name() const {
    return dynamic_cast<const Named&>(*context_.metadata).name;
  }
  std::int32_t current_position() const { return context_.inputs->positions.as<std::int32_t>()[0]; }

  CpuStream stream_{1};
  ScratchArena scratch_;
  NoBackend backend_;
  ForwardContext context_{stream_, scratch_, nullptr, backend_, nullptr, {}};
  Tensor fixed_{{1}, DType::kI32}, live_{{1}, DType::kI32};
  Named captured_{"captured"}, step_{"live"};
};

TEST_F(EmulatedGraphTest, SeesWhatWasCapturedWhateverIsCurrent) {
  std::vector<std::string> names;
  std::vector<std::int32_t> positions;
  EmulatedGraph graph(context_, positions_only(fixed_), captured_, [&] {
    names.push_back(current_name());
    positions.push_back(current_position());
  });
  const ForwardInputs inputs = positions_only(live_);
  live_.view().as<std::int32_t>()[0] = 7;
  const ForwardScope scope(context_, inputs, step_);
  graph.replay(stream_);
  fixed_.view().as<std::int32_t>()[0] = 7;  // the copy that a replay needs
  graph.replay(stream_);
  EXPECT_EQ(names, (std::vector<std::string>{"captured", "captured"}));
  EXPECT_EQ(positions, (std::vector<std::int32_t>{0, 7}))
      << "the first replay sees the old value, silently";
  EXPECT_EQ(context_.inputs, &inputs);
  EXPECT_EQ(current_name(), "live");
}

TEST_F(EmulatedGraphTest, KeepsItsInputsWhenThoseItWasMadeOfAreGone) {
  std::int32_t seen = -1;
  std::unique_ptr<EmulatedGraph> graph;
  {
    const ForwardInputs temporary = positions_only(fixed_);
    graph = std::make_unique<EmulatedGraph>(context_, temporary, captured_,
                                            [&] { seen = current_position(); });
  }
  fixed_.view().as<std::int32_t>()[0] = 5;
  graph->replay(stream_);
  EXPECT_EQ(seen, 5);
}

TEST_F(EmulatedGraphTest, RestoresWhatWasCurrentWhenTheForwardPassThrows) {
  EmulatedGraph graph(context_, {}, captured_, [] { throw Error("kernel failed"); });
  const ForwardInputs inputs;
  {
    const ForwardScope scope(context_, inputs, step_);
    EXPECT_THROW(graph.replay(stream_), Error);
    EXPECT_EQ(context_.inputs, &inputs);
    EXPECT_EQ(context_.metadata, &step_);
  }
  EXPECT_THROW(graph.replay(stream_), Error);
  EXPECT_EQ(context_.inputs, nullptr) << "outside of a step nothing is current before or after";
  EXPECT_EQ(context_.metadata, nullptr);
}

TEST_F(EmulatedGraphTest, OneStepIsCurrentAtATimeAndEndsHoweverItEnds) {
  const ForwardInputs inputs;
  {
    const ForwardScope scope(context_, inputs, step_);
    EXPECT_THROW(ForwardScope(context_, inputs, captured_), Error);
    EXPECT_EQ(context_.metadata, &step_) << "the refused one changed nothing";
  }
  EXPECT_EQ(context_.metadata, nullptr);
  try {
    const ForwardScope scope(context_, inputs, step_);
    throw Error("a layer failed");
  } catch (const Error&) {
    EXPECT_EQ(context_.inputs, nullptr);
    EXPECT_EQ(context_.metadata, nullptr);
  }
}

}  // namespace
}  // namespace minisgl
