#pragma once

#include <vector>

#include "core/batch.h"
#include "scheduler/sequence.h"

namespace minisgl {

/// A batch and whose rows it has. Stays where it is from launch to collection.
struct Step {
  Batch batch;
  std::vector<Sequence*> sequences;  ///< one for each of the batch's rows, padding excluded

  /// Makes the batch of `decoding` (their next token is on the device) and then `extending`
  /// sequences (prompt tokens [cached_len, device_len)), in this order. Whatever the step held
  /// before is dropped. Reads the ledgers; changes none.
  void fill(const std::vector<Sequence*>& decoding, const std::vector<Sequence*>& extending,
            const PageTable& page_table);

  /// Fills edits and masks of the rows that are sampled, for a model with `vocab_size` tokens: with
  /// fill(), or, if the batch's sampling waits, when the tokens of the step before are known.
  /// Sequences that have ended get none. Returns those whose constraint allows no token.
  std::vector<Sequence*> fill_edits(std::int32_t vocab_size);
};

}  // namespace minisgl
