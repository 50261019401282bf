#pragma once

#include <algorithm>

#include "comm/communicator.h"
#include "core/forward.h"
#include "layers/linear.h"

namespace minisgl::layers {

/// Token ids to vectors. Each rank has the rows of a range of the vocabulary.
class VocabEmbedding {
 public:
  /// Takes weight [vocab, hidden] from `w`.
  VocabEmbedding(const Weights& w, std::int64_t vocab, std::int64_t hidden)
      : first_id_(vocab_range(w.shard(), vocab).begin),
        table_(w.vocab_rows("weight", vocab, hidden)) {}

  /// ids [num_tokens] i32 -> y [num_tokens, hidden], the same on all ranks.
  void forward(TensorView ids, TensorView y, ForwardContext& ctx) const {
    if (ctx.ranks == nullptr) {
      kernels::embedding(ids, table_, y, ctx.stream);
      return;
    }
    kernels::embedding_part(ids, table_, first_id_, y, ctx.stream);
    sum_over_ranks(y, ctx);
  }
  /// For a head that is tied to it.
  const kernels::PackedMatrix& table() const { return table_; }

 private:
  std::int64_t first_id_;
  kernels::PackedMatrix table_;
};

/// Vectors to logits. Each rank computes those of a range of the vocabulary; then all have all.
class LmHead {
 public:
  /// Tied: reads the embedding's table, which must outlive the head.
  explicit LmHead(const VocabEmbedding& embedding) : weight_(&embedding.table()) {}
  /// Untied: takes weight [vocab, hidden] from `w`.
  LmHead(const Weights& w, std::int64_t vocab, std::int64_t hidden)
      : own_(w.vocab_rows("weight", vocab, hidden)), weight_(&own_) {}
  LmHead(const LmHead&) = delete;
  LmHead& operator=(const LmHead&) = delete;

  /// x [num_rows, hidden] -> logits [num_rows, vocab] f32, the same on all ranks.
  void forward(const Normed& x, TensorView logits, ForwardContext& ctx) const {
    if (ctx.ranks == nullptr) {
      multiply(x, *weight_, logits, ctx);
      return;
    }
    const ScratchScope scope(ctx.scratch);
    const std::int64_t vocab = logits.dim(1);
    const std::int64_t most = vocab_range({0, ctx.ranks->size()}, vocab).size();
    const TensorView part = ctx.scratch.alloc({x.num_tokens(), most}, DType::kF32);
    multiply(x, *weight_, part.columns(0, weight_->rows()), ctx);
    gather_columns(part, logits, ctx);
  }

 private:
  kernels::PackedMatrix own_;
  const kernels::PackedMatrix* weight_;
};

}  // namespace minisgl::layers
