#include "kernels/sampling.h"

#include <algorithm>
#include <atomic>

#include "base/math.h"
#include "kernels/cpu/sampling_row.h"
#include "kernels/cpu/table.h"
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

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

double philox_uniform(std::uint64_t seed, std::uint64_t position) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  return philox4x32({low(position), high(position), 0, 0}, {low(seed), high(seed)})[0] * 0x1p-32;
}

std::int64_t sampling_workspace_bytes(std::int64_t num_rows, std::int64_t vocab_size) {
  return std::clamp<std::int64_t>(num_rows, 1, kMaxRowsAtOnce) * row_bytes(vocab_size);
}

void sample(TensorView logits, const SamplingRow* rows, TensorView tokens, TensorView workspace,
            Stream& stream) {
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
