// Which step is current in a context.

#pragma once

#include "base/check.h"
#include "core/forward.h"

namespace minisgl {

/// Makes a step's inputs and metadata the current ones of `context` until the scope ends, however
/// it ends. Throws Error when another step is current.
class ForwardScope {
 public:
  ForwardScope(ForwardContext& context, const ForwardInputs& inputs,
               const AttentionMetadata& metadata)
      : context_(context) {
    check(context.inputs == nullptr && context.metadata == nullptr,
          "a forward pass was begun while another one is current");
    context.inputs = &inputs;
    context.metadata = &metadata;
  }
  ~ForwardScope() {
    context_.inputs = nullptr;
    context_.metadata = nullptr;
  }
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;

 private:
  ForwardContext& context_;
};

}  // namespace minisgl
