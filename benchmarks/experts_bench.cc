// Speed of grouped_linear() on the shapes of one layer of Qwen3-30B-A3B (128 experts, 8 for each
// token), beside linear() on one dense matrix with as many weights as a token's experts have.
//
//   experts_bench [--seconds S] [--threads N] [types...]      default: 1 s a line, Q4_0
//
// Prints the best of many repetitions by the wall clock; each repetition takes other experts, so
// that weights come from memory.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/grouped_linear.h"
#include "kernels/linear.h"
#include "testing/random.h"

namespace minisgl::kernels {
namespace {

constexpr std::int64_t kExperts = 128;
constexpr std::int64_t kChosen = 8;
constexpr std::int64_t kHidden = 2048;
constexpr std::int64_t kIntermediate = 768;
constexpr std::int64_t kMaxTokens = 256;

/// Random bytes, with every 16-bit word a small f16, so that nothing is infinite.
PackedMatrix random_matrix(DType type, std::int64_t rows, std::int64_t cols, ThreadPool& pool) {
  Tensor weight({rows, cols}, type);
  testing_util::Random random(1);
  std::byte* data = weight.view().data;
  for (std::int64_t i = 0; i + 4 <= weight.view().bytes(); i += 4) {
    const auto bits = static_cast<std::uint32_t>(random.next()) & 0x1FFF1FFFU;
    std::memcpy(data + i, &bits, 4);
  }
  return pack_matrix(weight, {}, pool);
}

PackedExperts random_experts(DType type, std::int64_t rows, std::int64_t cols, ThreadPool& pool) {
  PackedExperts experts(kExperts);
  const PackedMatrix matrix = random_matrix(type, rows, cols, pool);
  for (std::int64_t e = 0; e < kExperts; ++e) experts.add(matrix);
  return experts;
}

/// Offsets of `tokens` tokens that go to 8 random experts each.
void choose(std::int64_t tokens, testing_util::Random& random, const Tensor& offsets) {
  auto* sums = offsets.view().as<std::int32_t>();
  std::fill_n(sums, kExperts + 1, 0);
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::array<bool, kExperts> taken{};
    for (std::int64_t j = 0; j < kChosen;) {
      const auto e = static_cast<std::size_t>(random.below(kExperts));
      if (taken[e]) continue;
      taken[e] = true;
      ++sums[e + 1];
      ++j;
    }
  }
  for (std::int64_t e = 0; e < kExperts; ++e) sums[e + 1] += sums[e];
}

/// The shortest wall time of work() as one task of the stream; prepare() goes before each.
template <class Prepare, class Work>
double best_time(CpuStream& stream, double seconds, const Prepare& prepare, const Work& work) {
  using Clock = std::chrono::steady_clock;
  double best = 1e9;
  stream.submit([&] {
    const auto begin = Clock::now();
    do {
      prepare();
      const auto start = Clock::now();
      work();
      best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
    } while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds);
  });
  stream.synchronize();
  return best;
}

void print(const char* what, std::int64_t tokens, double seconds, double bytes, double flops) {
  std::printf("  %-28s M %3ld  %9.1f us  %6.1f GB/s  %7.1f GFLOP/s\n", what, tokens, seconds * 1e6,
              bytes / seconds * 1e-9, flops / seconds * 1e-9);
}

void bench(DType type, int threads, double seconds) {
  ThreadPool pool(2);
  const PackedExperts gate = random_experts(type, kIntermediate, kHidden, pool);
  const PackedExperts up = random_experts(type, kIntermediate, kHidden, pool);
  const PackedExperts* const weights[] = {&gate, &up};
  // As many copies as exceed the caches, used in turn.
  std::vector<PackedMatrix> dense;
  for (int i = 0; i < 8; ++i)
    dense.push_back(random_matrix(type, kChosen * 2 * kIntermediate, kHidden, pool));
  const double token_bytes = static_cast<double>(dense[0].bytes());
  const Tensor x({kMaxTokens * kChosen, kHidden}, DType::kF32);
  const std::vector<float> values = testing_util::uniform(x.view().numel(), 2);
  std::copy(values.begin(), values.end(), x.view().as<float>());
  const Tensor y({kMaxTokens * kChosen, 2 * kIntermediate}, DType::kF32);
  const Tensor offsets({kExperts + 1}, DType::kI32);
  const Tensor workspace({grouped_linear_workspace_bytes(weights, kMaxTokens * kChosen)},
                         DType::kU8);
  testing_util::Random random(3);
  CpuStream stream(threads);
  std::printf("%s, %d threads, gate and up\n", std::string(name(type)).c_str(), threads);
  for (const std::int64_t tokens : {1L, 4L, 32L, 256L}) {
    const std::int64_t rows = tokens * kChosen;
    const double flops = 2.0 * static_cast<double>(rows * 2 * kIntermediate * kHidden);
    double read = 0;
    const double grouped = best_time(
        stream, seconds,
        [&] {
          choose(tokens, random, offsets);
          const auto* sums = offsets.view().as<std::int32_t>();
          std::int64_t active = 0;
          for (std::int64_t e = 0; e < kExperts; ++e) active += sums[e + 1] > sums[e];
          read = token_bytes * static_cast<double>(active) / kChosen;
        },
        [&] {
          grouped_linear({.x = x.view().slice(0, rows),
                          .offsets = offsets,
                          .weights = weights,
                          .y = y.view().slice(0, rows)},
                         workspace, stream);
        });
    print("experts", tokens, grouped, read, flops);
    std::size_t next = 0;
    const TensorView wide(y.view().data, {tokens, kChosen * 2 * kIntermediate}, DType::kF32);
    const double one = best_time(
        stream, seconds, [&] { next = (next + 1) % dense.size(); },
        [&] {
          const PackedMatrix* const matrix = &dense[next];
          linear(x.view().slice(0, tokens), {&matrix, 1}, {}, wide, stream);
        });
    print("one dense matrix", tokens, one, token_bytes, flops);
  }
}

DType type_called(std::string_view wanted) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1,
                           DType::kQ8_0, DType::kQ4_K, DType::kQ6_K})
    if (name(type) == wanted) return type;
  std::fprintf(stderr, "unknown type %s\n", std::string(wanted).c_str());
  std::exit(2);
}

}  // namespace
}  // namespace minisgl::kernels

int main(int argc, char** argv) {
  double seconds = 1;
  int threads = 2;
  std::vector<minisgl::DType> types;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--seconds" && i + 1 < argc) {
      seconds = std::atof(argv[++i]);
    } else if (arg == "--threads" && i + 1 < argc) {
      threads = std::atoi(argv[++i]);
    } else {
      types.push_back(minisgl::kernels::type_called(arg));
    }
  }
  if (types.empty()) types.push_back(minisgl::DType::kQ4_0);
  for (const minisgl::DType type : types) minisgl::kernels::bench(type, threads, seconds);
}
