#include "kernels/logits.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/math.h"
#include "kernels/cpu/table.h"
#include "kernels/cuda/ops.h"

namespace minisgl::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t kBlock = 1024;  // tokens that are looked at together
constexpr std::int64_t kBitsPerWord = 32;

void check_logits(TensorView logits) {
  check_tensor(logits, {-1, -1}, DType::kF32, "logits");
  check(logits.dim(1) > 0 && logits.stride(1) == 1,
        "logits must be contiguous in their last dimension, and not empty");
}

std::span<float> row_of(TensorView logits, std::int32_t row) {
  return {reinterpret_cast<float*>(logits.data) + row * logits.stride(0),
          static_cast<std::size_t>(logits.dim(1))};
}

void apply(LogitEdit& edit, const LogitEditRow& row, float& logit) {
  edit.original = logit;
  float x = logit + edit.bias;
  if (edit.is_seen != 0) x = x > 0 ? x / row.repetition_penalty : x * row.repetition_penalty;
  x -= row.frequency_penalty * static_cast<float>(edit.count);
  if (edit.count > 0) x -= row.presence_penalty;
  logit = x;
}

void apply(std::span<const std::int32_t> mask, std::span<float> logits) {
  const auto vocab = static_cast<std::int64_t>(logits.size());
  for (std::int64_t begin = 0; begin < vocab; begin += kBitsPerWord) {
    const auto word = static_cast<std::uint32_t>(mask[begin / kBitsPerWord]);
    if (word == ~0U) continue;
    const std::int64_t n = std::min(vocab - begin, kBitsPerWord);
    float* x = &logits[begin];
    if (word == 0) {
      std::fill_n(x, n, -kInfinity);
      continue;
    }
    // Without a branch for each bit, which would be guessed wrong half of the time.
    for (std::int64_t i = 0; i < n; ++i) {
      const float unless_allowed[2] = {-kInfinity, x[i]};
      x[i] = unless_allowed[word >> i & 1U];
    }
  }
}

/// The most likely tokens of a row, in order.
class TopTokens {
 public:
  TopTokens(std::int32_t count, RowLogprobs& out) : count_(count), out_(out) { out_.num_top = 0; }

  /// Whether a token of this logit and a higher id than all before would be among them.
  bool wants(float logit) const {
    return out_.num_top < count_ ? logit > -kInfinity : count_ > 0 && logit > lowest();
  }

  void add(std::int32_t token, float logit) {
    std::int32_t at = out_.num_top < count_ ? out_.num_top++ : count_ - 1;
    for (; at > 0 && out_.logprobs[at - 1] < logit; --at) {
      out_.logprobs[at] = out_.logprobs[at - 1];
      out_.tokens[at] = out_.tokens[at - 1];
    }
    out_.logprobs[at] = logit;
    out_.tokens[at] = token;
  }

 private:
  float lowest() const { return out_.logprobs[count_ - 1]; }

  std::int32_t count_;
  RowLogprobs& out_;
};

/// log sum exp of a row whose maximum is `max`: in blocks, in one order on every machine.
double log_sum_exp(std::span<const float> logits, float max) {
  const auto vocab = static_cast<std::int64_t>(logits.size());
  double sum = 0;
  for (std::int64_t begin = 0; begin < vocab; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, vocab - begin);
    float weights[kBlock];
    cpu_kernels().softmax_weights(&logits[begin], n, max, 1, 0, weights);
    double sums[16] = {};
    for (std::int64_t i = 0; i < n; ++i) sums[i % 16] += weights[i];
    for (const double part : sums) sum += part;
  }
  return max + std::log(sum);
}

float log_probability(float logit, double normalizer) {
  const auto value = static_cast<float>(logit - normalizer);
  return std::isnan(value) ? -kInfinity : value;
}

void find_top(std::span<const float> logits, std::int32_t top, RowLogprobs& out) {
  const auto vocab = static_cast<std::int64_t>(logits.size());
  const CpuKernels& kernels = cpu_kernels();
  TopTokens tokens(top, out);
  float max = -kInfinity;
  for (std::int64_t begin = 0; begin < vocab; begin += kBlock) {
    const std::int64_t end = std::min(vocab, begin + kBlock);
    const float block_max = kernels.scan_logits(&logits[begin], end - begin).max;
    max = std::max(max, block_max);
    if (!tokens.wants(block_max)) continue;
    for (std::int64_t id = begin; id < end; ++id)
      if (tokens.wants(logits[id])) tokens.add(static_cast<std::int32_t>(id), logits[id]);
  }
  out.normalizer = std::isfinite(max) ? log_sum_exp(logits, max) : kInfinity;
  for (std::int32_t i = 0; i < out.num_top; ++i)
    out.logprobs[i] = log_probability(out.logprobs[i], out.normalizer);
}

/// The logit before it was edited.
float original_logit(TensorView logits, const LogprobRow& row, std::int32_t token,
                     const LogitEdits& edits) {
  if (row.edit_row >= 0) {
    const LogitEditRow& edited = edits.rows[row.edit_row];
    for (std::int32_t i = edited.begin; i < edited.end; ++i)
      if (edits.edits[i].token == token) return edits.edits[i].original;
  }
  return row_of(logits, row.row)[static_cast<std::size_t>(token)];
}

}  // namespace

void edit_logits(TensorView logits, const LogitEdits& edits, Stream& stream) {
  check_logits(logits);
  if (edits.masks.data != nullptr) {
    check_tensor(edits.masks, {-1, ceil_div<std::int64_t>(logits.dim(1), kBitsPerWord)},
                 DType::kI32, "masks");
    check(edits.masks.is_contiguous(), "masks must be contiguous");
  }
  if (edits.num_rows == 0) return;
  if constexpr (cuda::kBuilt)
    if (!stream.device().is_cpu()) return gpu::edit_logits(logits, edits, stream);
  as_cpu(stream).run([=](ThreadPool& pool) {
    pool.parallel_for(edits.num_rows, [&](std::int64_t i) {
      const LogitEditRow& row = edits.rows[i];
      const std::span<float> x = row_of(logits, row.row);
      for (std::int32_t e = row.begin; e < row.end; ++e)
        apply(edits.edits[e], row, x[static_cast<std::size_t>(edits.edits[e].token)]);
      if (row.mask < 0) return;
      const std::int64_t words = edits.masks.dim(1);
      apply({edits.masks.as<std::int32_t>() + row.mask * words, static_cast<std::size_t>(words)},
            x);
    });
  });
}

void top_logprobs(TensorView logits, const LogprobRow* rows, std::int64_t n, RowLogprobs* out,
                  Stream& stream) {
  check_logits(logits);
  if (n == 0) return;
  if constexpr (cuda::kBuilt)
    if (!stream.device().is_cpu()) return gpu::top_logprobs(logits, rows, n, out, stream);
  as_cpu(stream).run([=](ThreadPool& pool) {
    pool.parallel_for(n, [&](std::int64_t i) {
      find_top(row_of(logits, rows[i].row), std::min(rows[i].top, kMaxTopLogprobs), out[i]);
    });
  });
}

void chosen_logprobs(TensorView logits, const LogprobRow* rows, std::int64_t n, TensorView tokens,
                     const LogitEdits& edits, RowLogprobs* out, Stream& stream) {
  check_logits(logits);
  check_tensor(tokens, {logits.dim(0)}, DType::kI32, "tokens");
  check(tokens.dim(0) <= 1 || tokens.stride(0) == 1, "tokens must be contiguous");
  if (n == 0) return;
  if constexpr (cuda::kBuilt)
    if (!stream.device().is_cpu())
      return gpu::chosen_logprobs(logits, rows, n, tokens, edits, out, stream);
  as_cpu(stream).run([=](ThreadPool&) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int32_t token = tokens.as<std::int32_t>()[rows[i].row];
      out[i].chosen =
          log_probability(original_logit(logits, rows[i], token, edits), out[i].normalizer);
    }
  });
}

}  // namespace minisgl::kernels
