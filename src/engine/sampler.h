// What sampling needs beyond the draw, for the rows that ask for it: edits and masks of logits,
// log-probabilities.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/batch.h"
#include "core/forward.h"
#include "kernels/logits.h"
#include "kernels/sampling.h"
#include "tensor/arena.h"
#include "tensor/buffer.h"
#include "tensor/stream.h"

namespace minisgl {

struct SamplerConfig {
  int num_slots = 2;  ///< steps in flight
  std::int64_t vocab_size = 0;
};

/// The steps of one engine, each in a slot of its own until it was collected. Memory for edits,
/// masks and log-probabilities is taken when a step first asks for it, and kept; steps that ask for
/// nothing cost nothing. Called by the thread that launches steps.
class Sampler {
 public:
  Sampler(SamplerConfig config, Stream& stream, ScratchArena& scratch);

  /// Where and how a step's tokens are drawn; all in memory of the stream's device.
  struct Draw {
    TensorView logits;                           ///< [samples, vocab] f32: edits change it
    const kernels::SamplingRow* rows = nullptr;  ///< [samples]
    TensorView tokens;                           ///< [samples] i32, written
    TensorView last_tokens;                      ///< [rows] i32: written too, at these indices:
    TensorView last_rows;                        ///< [samples] i32
  };

  /// Enqueues edits and the draw of `batch.samples`, and the log-probabilities that they ask for.
  void draw(const Batch& batch, int slot, const Draw& draw);

  /// Prepares the log-probabilities of batch.scores: what the step's forward pass has to be given.
  /// Null if there are none. Valid until the slot is used again.
  const ScoredTokens* score(const Batch& batch, int slot);

  /// Enqueues what brings them to the host. After the forward pass.
  void read_scores(const Batch& batch, int slot);

  /// After the step was done: fills batch.logprobs and batch.score_logprobs. `tokens` are what was
  /// drawn.
  void collect(Batch& batch, int slot, std::span<const TokenId> tokens);

 private:
  /// Arrays of the host and their twins on the device: filled, copied there, or copied back.
  struct Block {
    Buffer host, device;
    void reserve(std::size_t bytes, Device on);
  };

  struct Slot {
    Block edits;                        // arguments of a draw
    Block scores;                       // arguments of scoring
    Block draw_results, score_results;  // RowLogprobs
    std::optional<ScoredTokens> scored;
  };

  struct DrawArrays;
  DrawArrays stage(const Batch& batch, Slot& slot);
  void read_back(const Block& block, std::int64_t count);

  SamplerConfig config_;
  Stream& stream_;
  ScratchArena& scratch_;
  Tensor score_logits_;  // [kScoreSlice, vocab] f32, once a step has asked for scores
  std::vector<Slot> slots_;
};

}  // namespace minisgl
