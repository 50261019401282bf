// Speed of paged_attention(): microseconds of one layer of SmolLM2-135M (9 query heads, 3 KV heads
// of 64) beside the time of only reading the keys and values; pages of 16, shuffled.
//
//   attention_bench [--simd NAME] [--threads N] [--seconds S] [--layers N]
//
// Prints the best and the median of many repetitions, which go through 30 layers in turn (so that
// decode reads memory; with one layer, the caches), and for prefill the share of the peak that
// 2 * 2 * keys * head_dim operations for each query and head come to.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>
#include <vector>

#include "base/math.h"
#include "kernels/attention.h"
#include "kernels/simd.h"
#include "testing/random.h"

namespace minisgl::kernels {
namespace {

constexpr std::int32_t kHeads = 9;
constexpr std::int32_t kKvHeads = 3;
constexpr std::int32_t kHeadDim = 64;
constexpr std::int32_t kPage = 16;
constexpr int kMaxLayers = 30;

/// Seconds: of this thread's processor time (which other programs disturb less), or of the wall
/// clock when there are several threads.
double now(bool one_thread) {
  timespec time{};
  clock_gettime(one_thread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

struct Case {
  const char* name;
  std::int32_t rows, queries, keys;
};

/// One step's arguments and the keys and values of all layers.
struct Step {
  explicit Step(const Case& c, int threads)
      : pages(ceil_div(c.keys, kPage)),
        slots(std::int64_t{c.rows} * pages * kPage),
        layer_floats(slots * kKvHeads * kHeadDim),
        pool({2, kMaxLayers, layer_floats}, DType::kF32),
        q({std::int64_t{c.rows} * c.queries, kHeads, kHeadDim}, DType::kF32),
        out({std::int64_t{c.rows} * c.queries, kHeads, kHeadDim}, DType::kF32),
        cu({c.rows + 1}, DType::kI32),
        lengths({c.rows}, DType::kI32),
        table({c.rows, pages}, DType::kI32),
        workspace(
            {paged_attention_workspace_bytes(q.view().dim(0), kHeads, kHeadDim, c.keys, threads)},
            DType::kU8) {
    testing_util::Random random(1);
    for (std::int64_t i = 0; i < pool.view().numel(); ++i)
      pool.view().as<float>()[i] = random.uniform();
    for (std::int64_t i = 0; i < q.view().numel(); ++i)
      q.view().as<float>()[i] = random.uniform() * 4;
    auto* ids = table.view().as<std::int32_t>();
    for (std::int64_t i = 0; i < table.view().numel(); ++i) ids[i] = static_cast<std::int32_t>(i);
    for (std::int64_t i = table.view().numel() - 1; i > 0; --i)
      std::swap(ids[i], ids[random.below(i + 1)]);
    for (std::int32_t i = 0; i < c.rows; ++i) {
      cu.view().as<std::int32_t>()[i + 1] = (i + 1) * c.queries;
      lengths.view().as<std::int32_t>()[i] = c.keys;
    }
    args = {.q = q,
            .kv = {.num_heads = kKvHeads,
                   .head_dim = kHeadDim,
                   .slot_stride = kKvHeads * kHeadDim,
                   .head_stride = kHeadDim,
                   .num_slots = slots,
                   .page_size = kPage},
            .cu_seqlens_q = cu,
            .cache_seqlens = lengths,
            .page_table = table,
            .scale = 0.125F,
            .max_seqlen_q = c.queries,
            .max_seqlen_k = c.keys,
            .out = out};
  }

  void use_layer(int layer) {
    args.kv.k = pool.view().data + layer * layer_floats * 4;
    args.kv.v = args.kv.k + kMaxLayers * layer_floats * 4;
  }

  std::int32_t pages;
  std::int64_t slots, layer_floats;
  Tensor pool, q, out, cu, lengths, table, workspace;
  PagedAttentionArgs args;
};

/// Reads the keys and values of a layer, in order.
float read_all(const Step& step, ThreadPool& pool) {
  std::vector<float> sums(pool.num_threads() * 16);
  const auto threads = pool.num_threads();
  pool.parallel_for(threads, [&](std::int64_t part) {
    float acc[16] = {};
    for (const std::byte* base : {step.args.kv.k, step.args.kv.v}) {
      const auto* p = reinterpret_cast<const float*>(base);
      const std::int64_t per_part = step.layer_floats / threads / 64 * 64;
      for (std::int64_t i = part * per_part; i < (part + 1) * per_part; i += 16)
        for (int j = 0; j < 16; ++j) acc[j] += p[i + j];
    }
    sums[part * 16] = acc[0] + acc[7];
  });
  return sums[0];
}

struct Times {
  double best = 1e9, median = 0;
};

template <class Body>
Times measure(double seconds, int layers, bool one_thread, const Body& body) {
  std::vector<double> times;
  const double end = now(one_thread) + seconds;
  while (now(one_thread) < end || times.size() < 3) {
    const double start = now(one_thread);
    for (int layer = 0; layer < layers; ++layer) body(layer);
    times.push_back((now(one_thread) - start) / layers * 1e6);
  }
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2]};
}

int run(int argc, char** argv) {
  int threads = 1;
  double seconds = 0.5;
  int layers = kMaxLayers;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    if (option == "--simd") set_simd(argv[i + 1]);
    if (option == "--threads") threads = std::atoi(argv[i + 1]);
    if (option == "--layers") layers = std::clamp(std::atoi(argv[i + 1]), 1, kMaxLayers);
    if (option == "--seconds") seconds = std::atof(argv[i + 1]);
  }
  constexpr Case kCases[] = {
      {"decode 128", 1, 1, 128},
      {"decode 1500", 1, 1, 1500},
      {"decode 8000", 1, 1, 8000},
      {"batch 16, 512", 16, 1, 512},
      {"prefill 512", 1, 512, 512},
      {"prefill 64", 1, 64, 64},
      {"extend 512 of 2048", 1, 512, 2048},
  };
  std::printf("%s, %d threads; us for one layer\n", std::string(name(active_simd())).c_str(),
              threads);
  std::printf("%-20s %9s %9s | %9s %9s | %6s | GFLOP/s\n", "", "best", "median", "read", "median",
              "ratio");
  for (const Case& c : kCases) {
    Step step(c, threads);
    CpuStream stream(threads);
    Times attention, reading;
    volatile float sink = 0;
    stream.submit([&] {
      for (int round = 0; round < 3; ++round) {  // alternately, because others use the machine too
        const Times a = measure(seconds / 3, layers, threads == 1, [&](int layer) {
          step.use_layer(layer);
          paged_attention(step.args, step.workspace, stream);
        });
        const Times r = measure(seconds / 6, layers, threads == 1, [&](int layer) {
          step.use_layer(layer);
          stream.run([&](ThreadPool& pool) { sink = read_all(step, pool); });
        });
        attention = {std::min(attention.best, a.best), a.median};
        reading = {std::min(reading.best, r.best), r.median};
      }
    });
    stream.synchronize();
    const double pairs = static_cast<double>(c.rows) * c.queries * (c.keys - (c.queries - 1) / 2.0);
    std::printf("%-20s %9.1f %9.1f | %9.1f %9.1f | %6.2f | %.1f\n", c.name, attention.best,
                attention.median, reading.best, reading.median, attention.best / reading.best,
                pairs * kHeads * kHeadDim * 4 / attention.best / 1e3);
  }
  return 0;
}

}  // namespace
}  // namespace minisgl::kernels

int main(int argc, char** argv) { return minisgl::kernels::run(argc, argv); }
