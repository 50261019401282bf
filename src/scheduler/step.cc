#include "scheduler/step.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <span>

#include "base/math.h"

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
  row.repetition_penalty = static_cast<float>(sampling.repetition_penalty);
  row.frequency_penalty = static_cast<float>(sampling.frequency_penalty);
  row.presence_penalty = static_cast<float>(sampling.presence_penalty);
  row.num_logprobs = sampling.num_logprobs.value_or(-1);
  return row;
}

/// The logits of every token of a prompt but its last say how likely the next one was.
void add_scores(const Request& request, std::int32_t first_token, std::vector<ScoreRow>& scores) {
  if (!request.sampling.prompt_logprobs) return;
  for (std::int32_t at = request.cached_len; at < request.device_len; ++at) {
    if (at + 1 >= request.prompt_len) return;
    scores.push_back({.token = first_token + at - request.cached_len,
                      .target = request.tokens[at + 1],
                      .num_logprobs = *request.sampling.prompt_logprobs});
  }
}

/// Adds a row of `words` words to `masks` and lets the constraint fill it. The row's number; -1
/// without a mask; nothing if no token is allowed.
std::optional<std::int32_t> add_mask(TokenConstraint& constraint, std::size_t words,
                                     std::vector<std::int32_t>& masks) {
  const std::size_t begin = masks.size();
  masks.resize(begin + words, 0);
  const std::span<std::int32_t> mask = std::span(masks).subspan(begin);
  if (!constraint.fill(mask)) {
    masks.resize(begin);
    return -1;
  }
  if (std::all_of(mask.begin(), mask.end(), [](std::int32_t word) { return word == 0; })) {
    masks.resize(begin);
    return std::nullopt;
  }
  return static_cast<std::int32_t>(begin / words);
}

}  // namespace

void Step::fill(const std::vector<Sequence*>& decoding, const std::vector<Sequence*>& extending,
                const PageTable& page_table) {
  // Not `batch = Batch()`: the vectors keep their memory from step to step.
  batch.rows.clear();
  batch.token_ids.clear();
  batch.samples.clear();
  batch.scores.clear();
  batch.masks.clear();
  batch.sampling_waits = false;
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
    const auto first_token = static_cast<std::int32_t>(batch.token_ids.size());
    batch.rows.push_back({request.row, request.cached_len, request.device_len});
    if (i < decoding.size()) {
      batch.token_ids.push_back(-1);
    } else {
      batch.token_ids.insert(batch.token_ids.end(), request.tokens.begin() + request.cached_len,
                             request.tokens.begin() + request.device_len);
    }
    if (i >= decoding.size()) add_scores(request, first_token, batch.scores);
    // A chunk that ends inside its prompt has no meaningful logits.
    if (request.device_len < request.prompt_len) continue;
    batch.samples.push_back(sample_row(request, i));
    // The first token of an answer has none before it that could be unknown.
    batch.sampling_waits |= i < decoding.size() && sequences[i]->follows_tokens();
  }
}

std::vector<Sequence*> Step::fill_edits(std::int32_t vocab_size) {
  constexpr std::int32_t kBitsPerWord = 32;
  const auto words = static_cast<std::size_t>(ceil_div(vocab_size, kBitsPerWord));
  std::vector<Sequence*> stuck;
  for (SampleRow& row : batch.samples) {
    Sequence& sequence = *sequences[static_cast<std::size_t>(row.batch_row)];
    if (sequence.ended) continue;
    if (sequence.edits != nullptr) row.edits = sequence.edits->before(row.position);
    if (sequence.request.constraint == nullptr) continue;
    if (const auto mask = add_mask(*sequence.request.constraint, words, batch.masks)) {
      row.mask = *mask;
    } else {
      stuck.push_back(&sequence);
    }
  }
  return stuck;
}

}  // namespace minisgl
