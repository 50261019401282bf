// Speed of linear(): GB/s of weights and GFLOP/s for each type and number of tokens, on the shapes
// of SmolLM2-135M, and for all matrices of that model in turn (96 MB, more than the caches hold).
//
//   linear_bench [--simd NAME] [--seconds S] [--bf16] [types...]      default: 0.3 s a line, Q4_1
//
// --bf16 measures linear_bf16() beside linear(), with all matrices of the model.
//
// Prints the best of many repetitions; with one thread in its processor time.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/linear.h"
#include "kernels/simd.h"
#include "testing/random.h"

namespace minisgl::kernels {
namespace {

constexpr DType kTypes[] = {DType::kF32,  DType::kF16,    DType::kBF16,  DType::kQ4_0,
                            DType::kQ4_1, DType::kQ5_0,   DType::kQ5_1,  DType::kQ8_0,
                            DType::kQ2_K, DType::kQ3_K,   DType::kQ4_K,  DType::kQ5_K,
                            DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS};
constexpr std::int64_t kHidden = 576;
constexpr std::int64_t kQkv = 960;
constexpr std::int64_t kIntermediate = 1536;
constexpr std::int64_t kVocab = 49152;
constexpr int kLayers = 30;
constexpr std::int64_t kMaxTokens = 512;

/// Seconds: of this thread's processor time with one thread, which other programs disturb less,
/// else of the wall clock.
double now(int threads) {
  timespec time{};
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

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

/// Packed bytes as the kernels read them.
double bytes(const PackedMatrix& w) { return static_cast<double>(w.bytes()); }
double flops(const PackedMatrix& w, std::int64_t tokens) {
  return 2.0 * static_cast<double>(w.rows() * w.cols() * tokens);
}

struct Buffers {
  Tensor x;
  Tensor workspace;
  Tensor y;
  bool bf16 = false;  // of what is measured
  Buffers()
      : x({kMaxTokens, kIntermediate}, DType::kF32),
        workspace({kMaxTokens, kIntermediate}, DType::kF32),
        y({kMaxTokens, kVocab}, DType::kF32, {.device = kCpu, .lazy = true}) {
    const std::vector<float> values = testing_util::uniform(kMaxTokens * kIntermediate, 2);
    std::memcpy(x.view().data, values.data(), values.size() * sizeof(float));
  }
};

void multiply(const PackedMatrix& w, std::int64_t tokens, const Buffers& buffers, Stream& stream) {
  const PackedMatrix* matrices[] = {&w};
  const TensorView x(buffers.x.view().data, {tokens, w.cols()}, DType::kF32);
  const TensorView y(buffers.y.view().data, {tokens, w.rows()}, DType::kF32);
  if (buffers.bf16) {
    const TensorView workspace(buffers.workspace.view().data, x.shape, DType::kF32);
    linear_bf16(x, matrices, {}, y, workspace, stream);
  } else {
    linear(x, matrices, {}, y, stream);
  }
}

/// The shortest time of `work` as one task of the stream, repeated for `seconds`.
template <class Work>
double best_time(CpuStream& stream, double seconds, const Work& work) {
  double best = 1e9;
  stream.submit([&] {
    const int threads = stream.num_threads();
    const double end = now(threads) + seconds;
    do {
      const double start = now(threads);
      work();
      best = std::min(best, now(threads) - start);
    } while (now(threads) < end);
  });
  stream.synchronize();
  return best;
}

void bench_shapes(DType type, int threads, double seconds, const Buffers& buffers) {
  CpuStream stream(threads);
  ThreadPool pool(2);
  const std::int64_t shapes[][2] = {
      {kHidden, kHidden}, {kQkv, kHidden}, {2 * kIntermediate, kHidden}, {kHidden, kIntermediate}};
  for (const auto& [rows, cols] : shapes) {
    // As many copies as exceed the second-level caches, used in turn.
    std::vector<PackedMatrix> copies;
    for (double total = 0; total < 16e6 || copies.size() < 2; total += bytes(copies.back()))
      copies.push_back(random_matrix(type, rows, cols, pool));
    for (const std::int64_t tokens : {1, 4, 16, 256}) {
      const double time = best_time(stream, seconds,
                                    [&] {
                                      for (const PackedMatrix& w : copies)
                                        multiply(w, tokens, buffers, stream);
                                    }) /
                          static_cast<double>(copies.size());
      std::printf("%-7s [%4ld x %4ld]  M %3ld  %d threads  %8.1f us  %6.1f GB/s  %6.1f GFLOP/s\n",
                  std::string(name(type)).c_str(), rows, cols, tokens, threads, time * 1e6,
                  bytes(copies[0]) / time * 1e-9, flops(copies[0], tokens) / time * 1e-9);
    }
  }
}

/// All matrices of a model; the head is Q8_0 where the others are 4-bit.
struct Model {
  std::vector<PackedMatrix> layers;
  PackedMatrix head;

  Model(DType type, ThreadPool& pool) {
    for (int i = 0; i < kLayers; ++i) {
      layers.push_back(random_matrix(type, kQkv, kHidden, pool));
      layers.push_back(random_matrix(type, kHidden, kHidden, pool));
      layers.push_back(random_matrix(type, 2 * kIntermediate, kHidden, pool));
      layers.push_back(random_matrix(type, kHidden, kIntermediate, pool));
    }
    head = random_matrix(info(type).block_bytes < 20 || type == DType::kQ4_1 ? DType::kQ8_0 : type,
                         kVocab, kHidden, pool);
  }
};

void bench_model(const Model& model, DType type, int threads, double seconds,
                 const Buffers& buffers) {
  CpuStream stream(threads);
  for (const std::int64_t tokens : {1, 2, 4, 8, 16, 64, 512}) {
    const bool with_head = tokens <= 64;  // a prefill needs the last token's logits only
    const double time = best_time(stream, seconds, [&] {
      for (const PackedMatrix& w : model.layers) multiply(w, tokens, buffers, stream);
      multiply(model.head, with_head ? tokens : 1, buffers, stream);
    });
    double total_bytes = bytes(model.head);
    double total_flops = flops(model.head, with_head ? tokens : 1);
    for (const PackedMatrix& w : model.layers) {
      total_bytes += bytes(w);
      total_flops += flops(w, tokens);
    }
    std::printf(
        "%-7s %-5s whole model  M %3ld  %d threads  %8.2f ms  %6.1f GB/s  %6.1f GFLOP/s  %7.1f "
        "tok/s\n",
        std::string(name(type)).c_str(), buffers.bf16 ? "bf16" : "exact", tokens, threads,
        time * 1e3, total_bytes / time * 1e-9, total_flops / time * 1e-9,
        static_cast<double>(tokens) / time);
  }
}

int bench(int argc, char** argv) {
  double seconds = 0.3;
  bool with_bf16 = false;
  std::vector<DType> types;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--simd" && i + 1 < argc) {
      set_simd(argv[++i]);
    } else if (arg == "--bf16") {
      with_bf16 = true;
    } else if (arg == "--seconds" && i + 1 < argc) {
      seconds = std::atof(argv[++i]);
    } else {
      const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                       [&](DType type) { return name(type) == arg; });
      check(found != std::end(kTypes), "no weight type '", arg, "'");
      types.push_back(*found);
    }
  }
  if (types.empty()) types.push_back(DType::kQ4_1);
  std::printf("instruction set %s\n", std::string(name(active_simd())).c_str());
  Buffers buffers;
  ThreadPool pool(2);
  for (const DType type : types) {
    // Shapes whose columns are not whole blocks of this type cannot be stored in it.
    if (kHidden % info(type).block_elems != 0) {
      std::printf("%-7s has blocks of %d: no shapes of this model\n",
                  std::string(name(type)).c_str(), info(type).block_elems);
      continue;
    }
    const Model model(type, pool);
    for (const int threads : {1, 2}) {
      bench_model(model, type, threads, seconds, buffers);
      buffers.bf16 = with_bf16;
      if (with_bf16) bench_model(model, type, threads, seconds, buffers);
      buffers.bf16 = false;
    }
    if (with_bf16) continue;
    for (const int threads : {1, 2}) bench_shapes(type, threads, seconds, buffers);
  }
  return 0;
}

}  // namespace
}  // namespace minisgl::kernels

int main(int argc, char** argv) {
  try {
    return minisgl::kernels::bench(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
