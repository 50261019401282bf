#include "scheduler/prefill_queue.h"

#include <algorithm>

namespace minisgl {
namespace {

bool admit(Sequence& sequence, std::int64_t reserved_pages, CacheManager& cache, RowTable& rows) {
  if (rows.num_free() == 0) return false;
  Request& request = sequence.request;
  request.row = rows.allocate();
  if (!cache.admit(request, reserved_pages)) {
    rows.free(request.row);
    request.row = RowId{-1};
    return false;
  }
  sequence.cached_tokens = request.cached_len;
  return true;
}

}  // namespace

const Sequence* PrefillQueue::started() const {
  if (waiting_.empty() || !waiting_.begin()->second->admitted()) return nullptr;
  return waiting_.begin()->second;
}

void PrefillQueue::schedule(std::int64_t budget_tokens, std::int64_t reserved_pages,
                            CacheManager& cache, RowTable& rows, std::vector<Sequence*>& out) {
  while (budget_tokens > 0 && !waiting_.empty()) {
    Sequence& sequence = *waiting_.begin()->second;
    Request& request = sequence.request;
    if (!sequence.admitted()) {
      if (!admit(sequence, reserved_pages, cache, rows)) return;
      reserved_pages += cache.pages_to_come(request);
    }
    const std::int64_t rest = request.prompt_len - request.cached_len;
    const std::int64_t chunk = std::min(budget_tokens, rest);
    request.device_len = request.cached_len + static_cast<std::int32_t>(chunk);
    budget_tokens -= chunk;
    out.push_back(&sequence);
    if (chunk == rest) waiting_.erase(waiting_.begin());
  }
}

}  // namespace minisgl
