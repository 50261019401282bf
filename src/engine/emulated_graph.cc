#include "engine/emulated_graph.h"

#include <utility>

#include "base/check.h"

namespace minisgl {
namespace {

class Restored {
 public:
  explicit Restored(ForwardContext& context)
      : context_(context), inputs_(context.inputs), metadata_(context.metadata) {}
  ~Restored() {
    context_.inputs = inputs_;
    context_.metadata = metadata_;
  }
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;

 private:
  ForwardContext& context_;
  const ForwardInputs* inputs_;
  const AttentionMetadata* metadata_;
};

}  // namespace

EmulatedGraph::EmulatedGraph(ForwardContext& current, ForwardInputs captured_inputs,
                             const AttentionMetadata& captured_metadata,
                             std::function<void()> forward)
    : current_(current),
      inputs_(captured_inputs),
      metadata_(captured_metadata),
      forward_(std::move(forward)) {}

void EmulatedGraph::replay(Stream& stream) {
  check(&stream == &current_.stream, "an emulated graph runs on the stream of its context only");
  const Restored restored(current_);
  current_.inputs = &inputs_;
  current_.metadata = &metadata_;
  forward_();
}

}  // namespace minisgl
