#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "scheduler/cache_manager.h"
#include "scheduler/row_table.h"
#include "scheduler/sequence.h"

namespace minisgl {

/// Sequences whose prompt is not computed yet, first come first served.
///
/// At most one of them, the first, has a part of its prompt computed. One that cannot be admitted
/// yet waits, and those behind it wait too: a large request is not starved by small ones. (One that
/// could never be admitted is refused before it comes here.)
///
/// Not thread-safe. Source: mini-sglang scheduler/prefill.py.
class PrefillQueue {
 public:
  void push(Sequence& sequence) { waiting_.emplace(sequence.arrival, &sequence); }
  /// Nothing if it is not in the queue.
  void remove(const Sequence& sequence) { waiting_.erase(sequence.arrival); }

  bool empty() const { return waiting_.empty(); }
  std::int64_t size() const { return static_cast<std::int64_t>(waiting_.size()); }

  /// The sequence that has a part of its prompt computed, or nullptr.
  const Sequence* started() const;

  /// Takes up to `budget_tokens` prompt tokens from the front of the queue, admitting sequences as
  /// rows and pages allow. Appends each to `out` with request.device_len set to the end of its
  /// chunk; those whose prompt ends in this step leave the queue. `reserved_pages` are those still
  /// to come to all admitted sequences.
  void schedule(std::int64_t budget_tokens, std::int64_t reserved_pages, CacheManager& cache,
                RowTable& rows, std::vector<Sequence*>& out);

 private:
  std::map<std::int64_t, Sequence*> waiting_;  // by arrival
};

}  // namespace minisgl
