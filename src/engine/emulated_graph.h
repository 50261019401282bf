// A graph without a GPU.

#pragma once

#include <functional>

#include "core/forward.h"
#include "engine/graph.h"

namespace minisgl {

/// Runs the forward pass again with the inputs and the metadata that were current when it was
/// captured, whatever is current now: like a real graph it sees nothing but the captured buffers.
/// So an input that nobody copies into its buffer gives a wrong result here as it does on a GPU.
/// Source: mini-sglang from scratch, chapter 18, EmulatedGraph.
class EmulatedGraph final : public Graph {
 public:
  /// `current` is the context that `forward` reads. `captured_inputs` are views of fixed buffers,
  /// `captured_metadata` consists of such; both, and `current`, must outlive the graph.
  EmulatedGraph(ForwardContext& current, ForwardInputs captured_inputs,
                const AttentionMetadata& captured_metadata, std::function<void()> forward);

  /// Installs what was captured as current, runs `forward` and restores what was current before,
  /// also when `forward` throws.
  void replay(Stream& stream) override;

 private:
  ForwardContext& current_;
  ForwardInputs inputs_;
  const AttentionMetadata& metadata_;
  std::function<void()> forward_;
};

}  // namespace minisgl
