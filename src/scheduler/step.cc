#include "scheduler/step.h"

#include <algorithm>
#include <limits>

namespace minisgl {
namespace {

SampleRow sample_row(const Request& request, std::size_t batch_row) {
  const SamplingParams& sampling = request.sampling;
  constexpr std::int64_t kMaxTopK = std::numeric_limits<std::int32_t>::max();
  SampleRow row;
  row.batch_row = static_cast<std::int32_t>(batch_row);
  row.request = request.id;
  row.temperature = sampling.is_greedy() ? 0.0F : static_cast<float>(sampling.temperature);
  row.top_k = static_cast<std::int32_t>(std::clamp<std::int64_t>(sampling.top_k, 0, kMaxTopK));
  row.top_p = static_cast<float>(sampling.top_p);
  row.min_p = static_cast<float>(sampling.min_p);
  row.seed = request.seed;
  row.position = request.device_len - request.prompt_len;
  return row;
}

}  // namespace

void Step::fill(const std::vector<Sequence*>& decoding, const std::vector<Sequence*>& extending,
                const PageTable& page_table) {
  // Not `batch = Batch()`: the vectors keep their memory from step to step.
  batch.rows.clear();
  batch.token_ids.clear();
  batch.samples.clear();
  batch.inputs = {};
  batch.attention.reset();
  batch.slot = -1;
  batch.page_table = &page_table;
  batch.num_decode = static_cast<std::int32_t>(decoding.size());
  batch.num_rows = static_cast<std::int32_t>(decoding.size() + extending.size());

  sequences.assign(decoding.begin(), decoding.end());
  sequences.insert(sequences.end(), extending.begin(), extending.end());
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const Request& request = sequences[i]->request;
    batch.rows.push_back({request.row, request.cached_len, request.device_len});
    if (i < decoding.size()) {
      batch.token_ids.push_back(-1);
    } else {
      batch.token_ids.insert(batch.token_ids.end(), request.tokens.begin() + request.cached_len,
                             request.tokens.begin() + request.device_len);
    }
    // A chunk that ends inside its prompt has no meaningful logits.
    if (request.device_len >= request.prompt_len) batch.samples.push_back(sample_row(request, i));
  }
}

}  // namespace minisgl
