#pragma once

#include "core/forward.h"
#include "layers/linear.h"

namespace minisgl::layers {

/// Token ids to vectors.
class VocabEmbedding {
 public:
  /// Takes weight [vocab, hidden] from `w`.
  VocabEmbedding(const Weights& w, std::int64_t vocab, std::int64_t hidden)
      : table_(w.matrix("weight", vocab, hidden, Split::kNone)) {}

  /// ids [num_tokens] i32 -> y [num_tokens, hidden].
  void forward(TensorView ids, TensorView y, ForwardContext& ctx) const {
    kernels::embedding(ids, table_, y, ctx.stream);
  }
  /// For a head that is tied to it.
  const kernels::PackedMatrix& table() const { return table_; }

 private:
  kernels::PackedMatrix table_;
};

/// Vectors to logits.
class LmHead {
 public:
  /// Tied: reads the embedding's table, which must outlive the head.
  explicit LmHead(const VocabEmbedding& embedding) : weight_(&embedding.table()) {}
  /// Untied: takes weight [vocab, hidden] from `w`.
  LmHead(const Weights& w, std::int64_t vocab, std::int64_t hidden)
      : own_(w.matrix("weight", vocab, hidden, Split::kNone)), weight_(&own_) {}
  LmHead(const LmHead&) = delete;
  LmHead& operator=(const LmHead&) = delete;

  /// x [num_rows, hidden] -> logits [num_rows, vocab] f32.
  void forward(const Normed& x, TensorView logits, ForwardContext& ctx) const {
    multiply(x, *weight_, logits, ctx);
  }

 private:
  kernels::PackedMatrix own_;
  const kernels::PackedMatrix* weight_;
};

}  // namespace minisgl::layers
