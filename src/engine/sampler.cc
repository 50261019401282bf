#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/math.h"
#include "kernels/gather.h"

namespace minisgl {
namespace {

/// Prompt tokens whose logits exist at the same time.
constexpr std::int64_t kScoreSlice = 64;
constexpr std::size_t kAlignment = 64;

/// Places arrays one after the other in a block of memory, or, without one, counts.
class Layout {
 public:
  explicit Layout(std::byte* block) : block_(block) {}
  template <class T>
  T* place(std::int64_t count) {
    std::byte* at = block_ == nullptr ? nullptr : block_ + bytes_;
    bytes_ += round_up(static_cast<std::size_t>(count) * sizeof(T), kAlignment);
    return reinterpret_cast<T*>(at);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* block_;
  std::size_t bytes_ = 0;
};

bool is_edited(const SampleRow& row) { return !row.edits.empty() || row.mask >= 0; }

PositionLogprobs to_position(const kernels::RowLogprobs& row, TokenId chosen) {
  PositionLogprobs result{.chosen = {chosen, row.chosen}, .top = {}};
  for (std::int32_t i = 0; i < row.num_top; ++i)
    result.top.push_back({row.tokens[i], row.logprobs[i]});
  return result;
}

const kernels::RowLogprobs* results_in(const Buffer& buffer) {
  return reinterpret_cast<const kernels::RowLogprobs*>(buffer.data());
}

}  // namespace

/// The arguments of a draw.
struct Sampler::DrawArrays {
  /// `block` may be null.
  DrawArrays(std::byte* block, const Batch& batch, std::int64_t vocab_size, Device device = kCpu) {
    for (const SampleRow& row : batch.samples) {
      num_rows += is_edited(row) ? 1 : 0;
      num_edits += static_cast<std::int64_t>(row.edits.size());
      num_logprobs += row.num_logprobs >= 0 ? 1 : 0;
    }
    Layout layout(block);
    rows = layout.place<kernels::LogitEditRow>(num_rows);
    edits = layout.place<kernels::LogitEdit>(num_edits);
    logprobs = layout.place<kernels::LogprobRow>(num_logprobs);
    constexpr std::int64_t kBitsPerWord = 32;
    const std::int64_t words = ceil_div(vocab_size, kBitsPerWord);
    const auto num_words = static_cast<std::int64_t>(batch.masks.size());
    auto* mask_words = layout.place<std::int32_t>(num_words);
    if (num_words > 0)
      masks = TensorView(reinterpret_cast<std::byte*>(mask_words), {num_words / words, words},
                         DType::kI32, device);
    bytes = layout.bytes();
  }

  bool empty() const { return num_rows == 0 && num_logprobs == 0; }

  std::int64_t num_rows = 0, num_edits = 0, num_logprobs = 0;
  kernels::LogitEditRow* rows = nullptr;
  kernels::LogitEdit* edits = nullptr;
  kernels::LogprobRow* logprobs = nullptr;
  TensorView masks = {};
  std::size_t bytes = 0;
};

void Sampler::Block::reserve(std::size_t bytes, Device on) {
  if (bytes <= host.size()) return;
  const std::size_t capacity = std::bit_ceil(bytes);  // so that a growing answer seldom asks
  host = {};
  device = {};
  host = Buffer(capacity, {.pinned_for = on});
  device = Buffer(capacity, {.device = on});
}

Sampler::Sampler(SamplerConfig config, Stream& stream, ScratchArena& scratch)
    : config_(config),
      stream_(stream),
      scratch_(scratch),
      slots_(static_cast<std::size_t>(config.num_slots)) {}

/// Fills the slot's arguments and starts their upload. Returns where they will be.
Sampler::DrawArrays Sampler::stage(const Batch& batch, Slot& slot) {
  const DrawArrays size(nullptr, batch, config_.vocab_size);
  if (size.empty()) return size;
  slot.edits.reserve(size.bytes, stream_.device());
  const DrawArrays host(slot.edits.host.data(), batch, config_.vocab_size);
  std::int32_t row = 0, edit = 0, logprob = 0;
  for (std::size_t i = 0; i < batch.samples.size(); ++i) {
    const SampleRow& sample = batch.samples[i];
    const auto of_logits = static_cast<std::int32_t>(i);
    if (sample.num_logprobs >= 0)
      host.logprobs[logprob++] = {
          .row = of_logits, .top = sample.num_logprobs, .edit_row = is_edited(sample) ? row : -1};
    if (!is_edited(sample)) continue;
    host.rows[row++] = {.row = of_logits,
                        .begin = edit,
                        .end = edit + static_cast<std::int32_t>(sample.edits.size()),
                        .mask = sample.mask,
                        .repetition_penalty = sample.repetition_penalty,
                        .frequency_penalty = sample.frequency_penalty,
                        .presence_penalty = sample.presence_penalty};
    for (const TokenEdit& e : sample.edits)
      host.edits[edit++] = {.token = e.token,
                            .count = e.count,
                            .is_seen = e.is_seen ? 1 : 0,
                            .bias = e.bias,
                            .original = 0};
  }
  if (!batch.masks.empty())
    std::memcpy(host.masks.data, batch.masks.data(), batch.masks.size() * sizeof(std::int32_t));
  stream_.copy(slot.edits.device.data(), slot.edits.host.data(), host.bytes);
  slot.draw_results.reserve(
      static_cast<std::size_t>(host.num_logprobs) * sizeof(kernels::RowLogprobs), stream_.device());
  return {slot.edits.device.data(), batch, config_.vocab_size, stream_.device()};
}

void Sampler::draw(const Batch& batch, int slot_index, const Draw& draw) {
  Slot& slot = slots_[static_cast<std::size_t>(slot_index)];
  const DrawArrays arrays = stage(batch, slot);
  auto* results = reinterpret_cast<kernels::RowLogprobs*>(slot.draw_results.device.data());
  stream_.submit([this, draw, arrays, results] {
    const std::int64_t samples = draw.logits.dim(0);
    const kernels::LogitEdits edits{.rows = arrays.rows,
                                    .num_rows = arrays.num_rows,
                                    .edits = arrays.edits,
                                    .masks = arrays.masks};
    // Of the model's distribution: before the edits.
    kernels::top_logprobs(draw.logits, arrays.logprobs, arrays.num_logprobs, results, stream_);
    kernels::edit_logits(draw.logits, edits, stream_);
    const ScratchScope scope(scratch_);
    const TensorView workspace = scratch_.alloc(
        {kernels::sampling_workspace_bytes(samples, config_.vocab_size, stream_.device())},
        DType::kU8);
    kernels::sample(draw.logits, draw.rows, draw.tokens, workspace, stream_);
    kernels::scatter(draw.tokens, draw.last_rows, draw.last_tokens, stream_);
    kernels::chosen_logprobs(draw.logits, arrays.logprobs, arrays.num_logprobs, draw.tokens, edits,
                             results, stream_);
  });
  read_back(slot.draw_results, arrays.num_logprobs);
}

const ScoredTokens* Sampler::score(const Batch& batch, int slot_index) {
  const auto count = static_cast<std::int64_t>(batch.scores.size());
  if (count == 0) return nullptr;
  Slot& slot = slots_[static_cast<std::size_t>(slot_index)];
  if (score_logits_.view().data == nullptr)
    score_logits_ = Tensor({kScoreSlice, config_.vocab_size}, DType::kF32,
                           {.device = stream_.device(), .lazy = stream_.device().is_cpu()});
  struct Arrays {
    Arrays(std::byte* block, std::int64_t n) {
      Layout layout(block);
      tokens = layout.place<std::int32_t>(n);
      targets = layout.place<std::int32_t>(n);
      rows = layout.place<kernels::LogprobRow>(n);
      bytes = layout.bytes();
    }
    std::int32_t* tokens;
    std::int32_t* targets;
    kernels::LogprobRow* rows;
    std::size_t bytes;
  };
  slot.scores.reserve(Arrays(nullptr, count).bytes, stream_.device());
  slot.score_results.reserve(static_cast<std::size_t>(count) * sizeof(kernels::RowLogprobs),
                             stream_.device());
  const Arrays host(slot.scores.host.data(), count);
  for (std::int64_t i = 0; i < count; ++i) {
    const ScoreRow& score = batch.scores[static_cast<std::size_t>(i)];
    host.tokens[i] = score.token;
    host.targets[i] = score.target;
    host.rows[i] = {.row = static_cast<std::int32_t>(i % kScoreSlice),
                    .top = score.num_logprobs,
                    .edit_row = -1};
  }
  stream_.copy(slot.scores.device.data(), slot.scores.host.data(), host.bytes);

  const Arrays device(slot.scores.device.data(), count);
  const Device on = stream_.device();
  const TensorView targets(reinterpret_cast<std::byte*>(device.targets), {count}, DType::kI32, on);
  auto* results = reinterpret_cast<kernels::RowLogprobs*>(slot.score_results.device.data());
  slot.scored = ScoredTokens{
      .rows = TensorView(reinterpret_cast<std::byte*>(device.tokens), {count}, DType::kI32, on),
      .logits = score_logits_.view(),
      .take = [this, targets, rows = device.rows, results](std::int64_t begin, TensorView logits) {
        const std::int64_t n = logits.dim(0);
        kernels::top_logprobs(logits, rows + begin, n, results + begin, stream_);
        kernels::chosen_logprobs(logits, rows + begin, n, targets.slice(begin, begin + n), {},
                                 results + begin, stream_);
      }};
  return &*slot.scored;
}

void Sampler::read_scores(const Batch& batch, int slot_index) {
  read_back(slots_[static_cast<std::size_t>(slot_index)].score_results,
            static_cast<std::int64_t>(batch.scores.size()));
}

/// Enqueues the copy of results to the host.
void Sampler::read_back(const Block& block, std::int64_t count) {
  if (count == 0) return;
  stream_.copy(block.host.data(), block.device.data(),
               static_cast<std::size_t>(count) * sizeof(kernels::RowLogprobs));
}

void Sampler::collect(Batch& batch, int slot_index, std::span<const TokenId> tokens) {
  const Slot& slot = slots_[static_cast<std::size_t>(slot_index)];
  batch.logprobs.clear();
  batch.score_logprobs.clear();
  const kernels::RowLogprobs* result = results_in(slot.draw_results.host);
  for (std::size_t i = 0; i < batch.samples.size(); ++i)
    if (batch.samples[i].num_logprobs >= 0)
      batch.logprobs.push_back(to_position(*result++, tokens[i]));
  result = results_in(slot.score_results.host);
  for (const ScoreRow& row : batch.scores)
    batch.score_logprobs.push_back(to_position(*result++, row.target));
}

}  // namespace minisgl
