#include "kernels/sampling.h"

#include <algorithm>
#include <atomic>

#include "base/math.h"
#include "kernels/cpu/sampling_row.h"
#include "kernels/cpu/table.h"
#include "kernels/cuda/ops.h"
#include "kernels/philox.h"

namespace minisgl::kernels {
namespace {

constexpr std::int64_t kMaxRowsAtOnce = 16;

std::int64_t padded(std::int64_t vocab_size) { return round_up<std::int64_t>(vocab_size, 16); }

/// Weights and candidates, four bytes each.
std::int64_t row_bytes(std::int64_t vocab_size) { return 8 * padded(vocab_size); }

std::int32_t sample_row(std::span<const float> logits, const SamplingRow& row, std::byte* memory) {
  if (cpu::is_greedy(row))
    return cpu_kernels()
        .scan_logits(logits.data(), static_cast<std::int64_t>(logits.size()))
        .argmax;
  const auto vocab = static_cast<std::int64_t>(logits.size());
  const cpu::SamplingScratch scratch{
      .weights = {reinterpret_cast<float*>(memory), logits.size()},
      .candidates = {reinterpret_cast<std::int32_t*>(memory) + padded(vocab), logits.size()}};
  return cpu::draw(cpu::filtered_probabilities(logits, row, scratch),
                   philox_uniform(row.seed, row.position));
}

}  // namespace

double philox_uniform(std::uint64_t seed, std::uint64_t position) {
  return philox_bits(seed, position) * 0x1p-32;
}

std::int64_t sampling_workspace_bytes(std::int64_t num_rows, std::int64_t vocab_size,
                                      Device device) {
  if constexpr (cuda::kBuilt)
    if (!device.is_cpu()) return gpu::sampling_workspace_bytes(num_rows, vocab_size);
  return std::clamp<std::int64_t>(num_rows, 1, kMaxRowsAtOnce) * row_bytes(vocab_size);
}

void sample(TensorView logits, const SamplingRow* rows, TensorView tokens, TensorView workspace,
            Stream& stream) {
  if constexpr (cuda::kBuilt)
    if (!stream.device().is_cpu()) return gpu::sample(logits, rows, tokens, workspace, stream);
  check_tensor(logits, {-1, -1}, DType::kF32, "logits");
  const std::int64_t num_rows = logits.dim(0);
  const std::int64_t vocab = logits.dim(1);
  check_tensor(tokens, {num_rows}, DType::kI32, "tokens");
  check_tensor(workspace, {-1}, DType::kU8, "workspace");
  check(vocab > 0 && logits.stride(1) == 1 && (num_rows <= 1 || tokens.stride(0) == 1),
        "logits and tokens must be contiguous in their last dimension, and logits not empty");
  check(workspace.numel() >= row_bytes(vocab), "workspace has ", workspace.numel(),
        " bytes, needs at least ", row_bytes(vocab));
  if (num_rows == 0) return;
  as_cpu(stream).run([=](ThreadPool& pool) {
    std::atomic<std::int64_t> next{0};
    const std::int64_t workers = std::min(
        {std::int64_t{pool.num_threads()}, num_rows, workspace.numel() / row_bytes(vocab)});
    pool.parallel_for(workers, [&](std::int64_t worker) {
      for (std::int64_t i = next++; i < num_rows; i = next++) {
        const float* row = reinterpret_cast<const float*>(logits.data) + i * logits.stride(0);
        reinterpret_cast<std::int32_t*>(tokens.data)[i] =
            sample_row({row, static_cast<std::size_t>(vocab)}, rows[i],
                       workspace.data + worker * row_bytes(vocab));
      }
    });
  });
}

}  // namespace minisgl::kernels
