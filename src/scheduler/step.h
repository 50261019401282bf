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
};

}  // namespace minisgl
