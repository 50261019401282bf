// What is done to logits before a token is drawn, and log-probabilities. Implementations:
// kernels/logits.cc, kernels/ref/logits.cc, kernels/cuda/logits.cu.

#pragma once

#include <cstdint>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace minisgl::kernels {

/// Of one token of one row. Plain data: lies in a device buffer.
struct LogitEdit {
  std::int32_t token = 0;
  std::int32_t count = 0;    ///< how often the answer has it
  std::int32_t is_seen = 0;  ///< 1: the prompt or the answer has it
  float bias = 0;            ///< -inf: the token is not drawn
  float original = 0;        ///< written by edit_logits(): the logit before
};

/// Of one row.
struct LogitEditRow {
  std::int32_t row = 0;             ///< of the logits
  std::int32_t begin = 0, end = 0;  ///< its edits, each of another token
  std::int32_t mask = -1;           ///< row of the masks; -1: none
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
};

/// All of a step, in memory of the stream's device.
struct LogitEdits {
  const LogitEditRow* rows = nullptr;
  std::int64_t num_rows = 0;
  LogitEdit* edits = nullptr;
  TensorView masks = {};  ///< [M, ceil(vocab / 32)] i32: bit t % 32 of word t / 32 allows token t
};

/// In each of the rows, for each of its edits, with x = logits[row][token]:
///   x += bias;  if is_seen: x = x > 0 ? x / repetition_penalty : x * repetition_penalty;
///   x -= frequency_penalty * count;  if count > 0: x -= presence_penalty
/// rounded to f32 after each operation, and then -inf for every token that the mask does not allow.
/// Logits that no row names keep their bits.
///
/// Shapes   logits [S, vocab] f32, changed in place; rows with distinct `row`
/// Timing   enqueued on `stream`; does not allocate and does not synchronise.
/// Source   repetition: Keskar et al. 2019, "CTRL", section 4.1, with the sign rule of Hugging
///          Face's RepetitionPenaltyLogitsProcessor; the others: OpenAI's API reference; the order
///          is vLLM's.
void edit_logits(TensorView logits, const LogitEdits& edits, Stream& stream);

/// The most alternatives that top_logprobs() finds.
constexpr std::int32_t kMaxTopLogprobs = 50;

/// Which row of logits, and how many of its most likely tokens.
struct LogprobRow {
  std::int32_t row = 0;
  std::int32_t top = 0;        ///< in [0, kMaxTopLogprobs]
  std::int32_t edit_row = -1;  ///< of LogitEdits::rows, if the row was edited
};

/// Plain data, as large as the largest.
struct RowLogprobs {
  double normalizer = 0;  ///< log sum exp(logits); a token's log-probability is its logit less it
  float chosen = 0;       ///< written by chosen_logprobs()
  std::int32_t num_top = 0;                   ///< less than asked for if the vocabulary has no more
  std::int32_t tokens[kMaxTopLogprobs] = {};  ///< in falling order; of equals the lowest id first
  float logprobs[kMaxTopLogprobs] = {};
};

/// out[i]: normalizer and most likely tokens of logits[rows[i].row]. NaN counts as -inf. Where all
/// logits are -inf, or one is +inf, the log-probability of every token is -inf.
///
/// Shapes   logits [S, vocab] f32; rows, out: n each, in memory of the stream's device
/// Timing   enqueued on `stream`; does not allocate and does not synchronise.
/// The same bits for every instruction set and number of threads.
void top_logprobs(TensorView logits, const LogprobRow* rows, std::int64_t n, RowLogprobs* out,
                  Stream& stream);

/// out[i].chosen: the log-probability of tokens[rows[i].row], where out[i] has the normalizer of
/// that row. For logits that were edited since: what edit_logits() replaced is known from `edits`.
///
/// Shapes   logits [S, vocab] f32; tokens [S] i32
void chosen_logprobs(TensorView logits, const LogprobRow* rows, std::int64_t n, TensorView tokens,
                     const LogitEdits& edits, RowLogprobs* out, Stream& stream);

}  // namespace minisgl::kernels
