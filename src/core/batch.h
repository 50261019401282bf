// One step's work, as plain data.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/types.h"
#include "core/logprobs.h"
#include "core/page_table.h"
#include "tensor/tensor.h"

namespace minisgl {

/// A request's share of a step, copied from its ledger when the step was formed: the ledger goes
/// on while the step is in flight.
struct BatchRow {
  RowId row;
  std::int32_t cached_len = 0;  ///< keys already in the pool
  std::int32_t device_len = 0;  ///< keys after this step (number of keys that its last token sees)
  std::int32_t extend_len() const { return device_len - cached_len; }  ///< tokens to compute
};

/// What is done to the logit of one token (kernels/logits.h has the formulas).
struct TokenEdit {
  TokenId token = 0;
  std::int32_t count = 0;  ///< how often the answer has it
  bool is_seen = false;    ///< the prompt or the answer has it
  float bias = 0;          ///< -inf: it is not drawn
};

/// How the next token of one row is drawn. A pure function of these and the logits.
struct SampleRow {
  std::int32_t batch_row = 0;  ///< index into Batch::rows
  RequestId request;
  float temperature = 0;   ///< <= 0: argmax
  std::int32_t top_k = 0;  ///< <= 0: off
  float top_p = 1;
  float min_p = 0;
  std::uint64_t seed = 0;
  std::int64_t position = 0;  ///< of the token in the answer: 0 is the first
  float repetition_penalty = 1, frequency_penalty = 0, presence_penalty = 0;
  /// Of different tokens. Read while sampling is launched, not later; so are the masks.
  std::span<const TokenEdit> edits = {};
  std::int32_t mask = -1;          ///< row of Batch::masks; -1: every token may be drawn
  std::int32_t num_logprobs = -1;  ///< alternatives whose log-probabilities are wanted; -1: none
};

/// A prompt's token whose log-probability is wanted.
struct ScoreRow {
  std::int32_t token = 0;  ///< index, among the step's tokens, of the one before it
  TokenId target = 0;
  std::int32_t num_logprobs = 0;
};

/// What an attention backend made of a batch; every backend has its own.
struct AttentionMetadata {
  virtual ~AttentionMetadata() = default;
};

/// Device tensors of a step, made by the engine.
struct ForwardInputs {
  TensorView input_ids;   ///< [num_tokens] i32
  TensorView positions;   ///< [num_tokens] i32
  TensorView out_locs;    ///< [num_tokens] i32: where each token's keys and values go
  TensorView logit_rows;  ///< [num_samples] i32: tokens (of this step) that reach the LM head
};

/// Rows in this order: decode rows (extend_len 1, their token still on the device), then extending
/// rows, each in order of admission, then padding rows. A batch has no phase: num_decode splits it.
struct Batch {
  // Set by the scheduler.
  std::vector<BatchRow> rows;
  std::int32_t num_rows = 0;    ///< rows of requests; those after them are padding
  std::int32_t num_decode = 0;  ///< the first rows, whose input is the token last drawn for the row
  /// Ids to compute, row after row; -1 where the token is on the device only (decode rows).
  std::vector<TokenId> token_ids;
  std::vector<SampleRow>
      samples;  ///< ascending batch_row; a row that ends inside its prompt has none
  const PageTable* page_table = nullptr;  ///< read while the step is launched, not later
  std::vector<ScoreRow> scores;           ///< in ascending order of `token`
  /// Masks and edits of some row follow from the tokens of the step before: Executor::launch() does
  /// not draw, Executor::sample() does, once they are known and filled in.
  bool sampling_waits = false;
  std::vector<std::int32_t> masks;  ///< [M, ceil(vocab / 32)]: bit t % 32 of word t / 32 allows t

  // Set by the engine.
  ForwardInputs inputs;
  std::unique_ptr<AttentionMetadata> attention;
  std::int32_t slot = -1;  ///< which of the engine's staging slots holds it
  /// By collect(): one for each of the samples that asks for it, in order; one for each score.
  std::vector<PositionLogprobs> logprobs, score_logprobs;

  bool is_decode() const { return num_decode == num_rows; }
  std::int64_t num_tokens() const {
    std::int64_t sum = 0;
    for (const BatchRow& row : rows) sum += row.extend_len();
    return sum;
  }
};

}  // namespace minisgl
