// How fast the kernels on a GPU are, beside what its memory and its tensor cores allow.
//
//   build/benchmarks/gpu_kernels_bench [--json] [FILTER...]
//
// Rows whose name contains one of the FILTERs; without one, all. --json: one JSON object a row on
// standard output, and the table on standard error.
//
// Memory's read bandwidth is measured first: shares are of it. A case is a graph of launches over
// different memory, more than the L2 holds, replayed a few times; the time of one launch is the
// median replay's share. Shapes: Qwen3-0.6B.

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/flashinfer/xqa.h"
#include "kernels/cuda/ops.h"
#include "kernels/norm.h"
#include "kernels/sampling.h"
#include "read_bandwidth.h"
#include "tensor/cuda/device.h"
#include "tensor/cuda/error.h"
#include "tensor/cuda/stream.h"
#include "tensor/half.h"
#include "testing/random.h"

namespace minisgl {
namespace {

using cuda::check_cuda;

struct Case {
  std::string name;
  double bytes = 0;  ///< that one launch must read and write
  double flops = 0;
  int launches = 28;
  std::function<void(int)> run;  ///< launch number i, on memory of its own
};

struct Options {
  bool json = false;
  std::vector<std::string> filters;
};

/// Median milliseconds of a replayed graph of c.launches launches.
double milliseconds(const Case& c, cuda::CudaStream& stream) {
  for (int i = 0; i < 2; ++i) c.run(i);  // what is done only once
  stream.synchronize();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check_cuda(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < c.launches; ++i) c.run(i);
  check_cuda(cudaStreamEndCapture(stream.handle(), &graph), "capture");
  check_cuda(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
  std::vector<float> times;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check_cuda(cudaEventCreate(&begin), "event");
  check_cuda(cudaEventCreate(&end), "event");
  for (int i = 0; i < 12; ++i) {
    check_cuda(cudaEventRecord(begin, stream.handle()), "record");
    check_cuda(cudaGraphLaunch(executable, stream.handle()), "launch");
    check_cuda(cudaEventRecord(end, stream.handle()), "record");
    check_cuda(cudaEventSynchronize(end), "wait");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin, end), "time");
    if (i >= 3) times.push_back(ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

class Bench {
 public:
  Bench(cuda::CudaStream& stream, Options options)
      : stream_(stream), options_(std::move(options)), table_(options_.json ? stderr : stdout) {
    fmt::print(table_, "{:<52} {:>9} {:>8} {:>7} {:>9}\n", "kernel", "us", "GB/s", "share",
               "TFLOP/s");
    measure_reads();
  }

  bool wants(const std::string& name) const {
    return options_.filters.empty() ||
           std::any_of(options_.filters.begin(), options_.filters.end(),
                       [&](const std::string& f) { return name.find(f) != std::string::npos; });
  }

  /// Runs a group of cases. One that fails is reported and does not keep the others from running.
  template <class F>
  void group(const std::string& name, F&& run) {
    try {
      run();
    } catch (const std::exception& e) {
      failed_ = true;
      cudaGraph_t unfinished = nullptr;  // of a capture that was under way
      cudaStreamEndCapture(stream_.handle(), &unfinished);
      cudaGetLastError();
      fmt::print(stderr, "error: {}: {}\n", name, e.what());
    }
  }
  bool failed() const { return failed_; }

  void measure(const Case& c) {
    if (wants(c.name)) print(c, 1e3 * milliseconds(c, stream_) / c.launches);
  }

 private:
  void measure_reads() {
    constexpr std::int64_t kBytes = std::int64_t{4} << 30;
    const Buffer data(static_cast<std::size_t>(kBytes), {.device = kGpu});
    const Buffer sink(256, {.device = kGpu});
    Case reads;
    reads.name = "read 4 GiB";
    reads.bytes = kBytes;
    reads.launches = 4;
    reads.run = [&](int) {
      read_memory(data.data(), kBytes, reinterpret_cast<std::uint32_t*>(sink.data()),
                  stream_.handle());
    };
    const double us = 1e3 * milliseconds(reads, stream_) / reads.launches;
    peak_ = reads.bytes / us;
    print(reads, us);
  }

  void print(const Case& c, double us) const {
    fmt::print(table_, "{:<52} {:>9.2f} {:>8} {:>7} {:>9}\n", c.name, us,
               c.bytes > 0 ? fmt::format("{:.0f}", c.bytes / us / 1e3) : "",
               c.bytes > 0 ? fmt::format("{:.1f} %", 100 * c.bytes / us / peak_) : "",
               c.flops > 0 ? fmt::format("{:.0f}", c.flops / us / 1e6) : "");
    std::fflush(table_);
    if (!options_.json) return;
    nlohmann::ordered_json row = {{"kernel", c.name}, {"us", us}};
    if (c.bytes > 0) {
      row["gb_per_s"] = c.bytes / us / 1e3;
      row["read_share"] = c.bytes / us / peak_;
    }
    if (c.flops > 0) row["tflop_per_s"] = c.flops / us / 1e6;
    std::puts(row.dump().c_str());
    std::fflush(stdout);
  }

  cuda::CudaStream& stream_;
  Options options_;
  std::FILE* table_;
  double peak_ = 0;  // bytes a microsecond
  bool failed_ = false;
};

/// Random bf16 numbers in a GPU's memory: a block of them, repeated.
Tensor random_numbers(const Shape& shape, DType dtype = DType::kBF16) {
  constexpr std::int64_t kBlock = 1 << 20;
  static const Tensor block = [] {
    Tensor host({kBlock}, DType::kBF16);
    testing_util::Random random(1);
    for (std::int64_t i = 0; i < kBlock; ++i)
      host.view().as<BFloat16>()[i] = to_bf16(random.uniform());
    return copied_to(host, kGpu);
  }();
  Tensor result(shape, dtype, {.device = kGpu});
  if (dtype != DType::kBF16) return result;
  for (std::int64_t at = 0; at < shape.numel(); at += kBlock)
    cuda::copy_now(result.view().data + 2 * at, block.view().data,
                   static_cast<std::size_t>(2 * std::min(kBlock, shape.numel() - at)));
  return result;
}

Tensor on_gpu(const std::vector<std::int32_t>& values, const Shape& shape) {
  Tensor host(shape, DType::kI32);
  std::copy(values.begin(), values.end(), host.view().as<std::int32_t>());
  return copied_to(host, kGpu);
}

/// `copies` matrices of random numbers, each in memory of its own.
std::vector<kernels::PackedMatrix> random_matrices(std::int64_t rows, std::int64_t cols,
                                                   int copies) {
  std::vector<kernels::PackedMatrix> matrices;
  const Tensor numbers = random_numbers({rows, cols});
  for (int i = 0; i < copies; ++i) {
    Buffer data(static_cast<std::size_t>(numbers.view().bytes()), {.device = kGpu});
    cuda::copy_now(data.data(), numbers.view().data, data.size());
    matrices.emplace_back(rows, cols, DType::kBF16, kernels::Packing::kGpuRows, std::move(data));
  }
  return matrices;
}

struct ProductCase {
  std::string name;
  std::int64_t rows, cols, tokens;
  DType out = DType::kBF16;
};

void product(Bench& bench, Stream& stream, const ProductCase& c,
             const std::vector<kernels::PackedMatrix>& weights) {
  constexpr int kFewLaunches = 8;
  const auto copies = static_cast<int>(weights.size());
  const Tensor x = random_numbers({c.tokens, c.cols});
  const Tensor y({c.tokens, c.rows}, c.out, {.device = kGpu});
  bench.measure({.name = c.name,
                 .bytes = 2.0 * static_cast<double>(c.rows * c.cols),
                 .flops = 2.0 * static_cast<double>(c.rows * c.cols * c.tokens),
                 .launches = copies < kFewLaunches ? kFewLaunches / copies * copies : copies,
                 .run = [&](int i) {
                   const kernels::PackedMatrix* const matrix =
                       &weights[static_cast<std::size_t>(i % copies)];
                   kernels::linear(x, {&matrix, 1}, {}, y, stream);
                 }});
}

/// So many matrices that none is in the L2 when its turn comes again.
int cold_copies(std::int64_t rows, std::int64_t cols) {
  constexpr std::int64_t kColdBytes = 1'200'000'000;
  return static_cast<int>(std::max<std::int64_t>(2, kColdBytes / (2 * rows * cols) + 1));
}

/// The products of a step: Qwen3-0.6B's, and 14B's for one token.
void products(Bench& bench, Stream& stream) {
  struct Shapes {
    const char* name;
    std::int64_t rows, cols;
    DType out = DType::kBF16;
  };
  const auto name_of = [](const Shapes& s, std::int64_t tokens) {
    return fmt::format("linear {} [{}, {}], {} tokens", s.name, s.rows, s.cols, tokens);
  };
  const auto measure = [&](const Shapes& s, const std::vector<std::int64_t>& all_tokens) {
    if (std::none_of(all_tokens.begin(), all_tokens.end(),
                     [&](std::int64_t tokens) { return bench.wants(name_of(s, tokens)); }))
      return;
    const auto weights = random_matrices(s.rows, s.cols, cold_copies(s.rows, s.cols));
    for (const std::int64_t tokens : all_tokens)
      product(bench, stream, {name_of(s, tokens), s.rows, s.cols, tokens, s.out}, weights);
  };
  for (const Shapes s :
       {Shapes{"qkv", 4096, 1024}, Shapes{"o", 1024, 2048}, Shapes{"gate_up", 6144, 1024},
        Shapes{"down", 1024, 3072}, Shapes{"lm_head", 151936, 1024, DType::kF32}})
    measure(s, {1, 8, 16, 64, 256});
  for (const Shapes s : {Shapes{"14B qkv", 7168, 5120}, Shapes{"14B o", 5120, 5120},
                         Shapes{"14B gate_up", 34816, 5120}, Shapes{"14B down", 5120, 17408},
                         Shapes{"14B lm_head", 151936, 5120, DType::kF32}})
    measure(s, {1, 64});
}

/// One token with square matrices of more and more megabytes.
void gemv_curve(Bench& bench, Stream& stream) {
  constexpr std::int64_t kSideStep = 64;
  for (const int megabytes : {2, 4, 8, 16, 30, 64, 100, 128, 256}) {
    const std::int64_t side =
        static_cast<std::int64_t>(std::sqrt(megabytes * 1e6 / 2) / kSideStep + 0.5) * kSideStep;
    const std::string name = fmt::format("gemv {} MB [{}, {}]", megabytes, side, side);
    if (bench.wants(name))
      product(bench, stream, {name, side, side, 1},
              random_matrices(side, side, cold_copies(side, side)));
  }
}

struct AttentionCase {
  std::int32_t rows, keys, queries;
  bool in_tiles = false;  ///< prompts: FlashInfer's kernel for Hopper
  std::int32_t dim = 128, heads = 16, kv_heads = 8;
  std::int32_t page = 256;
  bool with_xqa = false;
  bool fp8 = false;  ///< keys and values

  std::string name() const {
    std::string text = fmt::format("attention {} x {} keys, {} quer{}", rows, keys, queries,
                                   queries == 1 ? "y" : "ies");
    if (dim != 128 || heads != 16) text += fmt::format(", {}/{} heads of {}", heads, kv_heads, dim);
    if (fp8) text += ", fp8";
    if (with_xqa) text += " (XQA)";
    return queries == 1 ? text : text + (in_tiles ? " (tiles)" : " (ours)");
  }
};

/// Pages of all sequences, mixed by a stride.
Tensor mixed_pages(std::int64_t rows, std::int64_t pages) {
  std::vector<std::int32_t> table;
  for (std::int64_t i = 0; i < rows * pages; ++i)
    table.push_back(static_cast<std::int32_t>((i * 7919) % (rows * pages)));
  return on_gpu(table, {rows, pages});
}

Tensor tiles_of(const AttentionCase& c) {
  const std::vector<kernels::gpu::PrefillRow> rows(static_cast<std::size_t>(c.rows),
                                                   {c.queries, c.keys});
  std::vector<std::int32_t> tiles(static_cast<std::size_t>(
      2 * kernels::gpu::max_prefill_tiles(c.rows, std::int64_t{c.rows} * c.queries, c.dim)));
  const std::int64_t count = kernels::gpu::prefill_tiles(rows, 0, c.dim, tiles);
  tiles.resize(static_cast<std::size_t>(2 * count));
  return on_gpu(tiles, {count, 2});
}

void attention(Bench& bench, Stream& stream, const AttentionCase& c) {
  if (!bench.wants(c.name()) ||
      (c.in_tiles && !kernels::gpu::takes_prefill_tiles(kGpu, c.dim, c.page)) ||
      (c.with_xqa && !kernels::gpu::xqa_built()))
    return;
  const DType kv_type = c.fp8 ? DType::kF8E4M3 : DType::kBF16;
  const std::int64_t row_bytes = 2 * bytes_of(kv_type, std::int64_t{c.keys} * c.kv_heads * c.dim);
  const std::int64_t layers =
      std::clamp<std::int64_t>((std::int64_t{1} << 30) / (row_bytes * c.rows), 2, 28);
  const std::int64_t pages = (c.keys + c.page - 1) / c.page;
  const Shape pool{pages * c.rows * c.page, c.kv_heads, c.dim};
  std::vector<Tensor> k, v;
  for (std::int64_t i = 0; i < layers; ++i) {
    k.push_back(random_numbers(pool, kv_type));
    v.push_back(random_numbers(pool, kv_type));
  }
  std::vector<std::int32_t> lengths(static_cast<std::size_t>(c.rows), c.keys), offsets{0};
  for (std::int32_t i = 0; i < c.rows; ++i) offsets.push_back(offsets.back() + c.queries);
  const Tensor page_table = mixed_pages(c.rows, pages), cache_seqlens = on_gpu(lengths, {c.rows}),
               cu_seqlens = on_gpu(offsets, {c.rows + 1}),
               tiles = c.in_tiles ? tiles_of(c) : Tensor();
  const Shape q_shape{std::int64_t{c.rows} * c.queries, c.heads, c.dim};
  const Tensor q = random_numbers(q_shape);
  const Tensor out(q_shape, DType::kBF16, {.device = kGpu});
  const kernels::gpu::XqaShape xqa{c.heads, c.kv_heads, c.dim};
  if (c.with_xqa) kernels::gpu::prepare_xqa(xqa, kGpu);
  const Tensor workspace(
      {std::max(kernels::gpu::paged_attention_workspace_bytes(c.heads, c.kv_heads, c.dim),
                kernels::gpu::xqa_workspace_bytes(xqa))},
      DType::kU8, {.device = kGpu});
  const double pairs =
      c.queries == 1 ? static_cast<double>(c.keys) : c.queries * (c.keys - c.queries / 2.0);
  const auto run = [&](int i) {
    const auto at = static_cast<std::size_t>(i);
    const kernels::PagedAttentionArgs args{.q = q,
                                           .kv = {.k = k[at].view().data,
                                                  .v = v[at].view().data,
                                                  .dtype = kv_type,
                                                  .num_heads = c.kv_heads,
                                                  .head_dim = c.dim,
                                                  .slot_stride = std::int64_t{c.kv_heads} * c.dim,
                                                  .head_stride = c.dim,
                                                  .num_slots = pool[0],
                                                  .page_size = c.page},
                                           .cu_seqlens_q = cu_seqlens,
                                           .cache_seqlens = cache_seqlens,
                                           .page_table = page_table,
                                           .scale = 1.0F / std::sqrt(static_cast<float>(c.dim)),
                                           .max_seqlen_q = c.queries,
                                           .max_seqlen_k = c.keys,
                                           .out = out,
                                           .prefill_tiles = tiles.view()};
    if (c.with_xqa) {
      kernels::gpu::xqa_decode(args, workspace, stream);
    } else {
      kernels::paged_attention(args, workspace, stream);
    }
  };
  bench.measure({.name = c.name(),
                 .bytes = c.queries == 1 ? static_cast<double>(row_bytes * c.rows) : 0,
                 .flops = 4.0 * c.rows * pairs * c.heads * c.dim,
                 .launches = static_cast<int>(layers),
                 .run = run});
}

void prompts(Bench& bench, Stream& stream) {
  for (const bool in_tiles : {false, true}) {
    for (const std::int32_t queries : {16, 32, 64, 128, 256, 512, 2048})
      attention(bench, stream, {1, 4096, queries, in_tiles});
    for (const std::int32_t queries : {16, 32, 64, 128, 256})
      attention(bench, stream, {32, 512, queries, in_tiles});
    attention(bench, stream, {4, 3000, 3000, in_tiles});
    attention(bench, stream, {1, 8192, 8192, in_tiles});
    attention(bench, stream, {1, 8192, 8192, in_tiles, 64});
    attention(bench, stream, {2, 8192, 8192, in_tiles, 128, 40, 8});
  }
}

void small_kernels(Bench& bench, Stream& stream) {
  for (const std::int64_t tokens : {1, 64, 256}) {
    const Tensor x = random_numbers({tokens, 1024});
    const Tensor residual({tokens, 1024}, DType::kF32, {.device = kGpu});
    const Tensor weight({1024}, DType::kF32, {.device = kGpu});
    bench.measure(
        {.name = fmt::format("fused_add_rms_norm 1024, {} tokens", tokens),
         .bytes = static_cast<double>(tokens) * 1024 * 12,
         .run = [&](int) { kernels::fused_add_rms_norm(x, residual, weight, 1e-6F, stream); }});
    const Tensor gate_up = random_numbers({tokens, 6144});
    const Tensor y({tokens, 3072}, DType::kBF16, {.device = kGpu});
    bench.measure({.name = fmt::format("silu_and_mul 3072, {} tokens", tokens),
                   .bytes = static_cast<double>(tokens) * 3072 * 6,
                   .run = [&](int) { kernels::gpu::silu_and_mul(gate_up, y, stream); }});
  }
}

void sampling(Bench& bench, Stream& stream) {
  constexpr std::int64_t kVocab = 151936;
  for (const std::int64_t rows : {1, 8, 64, 256}) {
    const Tensor logits({rows, kVocab}, DType::kF32, {.device = kGpu});
    std::vector<float> host(static_cast<std::size_t>(kVocab));
    testing_util::Random random(2);
    for (float& x : host) x = 4 * random.uniform();
    for (std::int64_t i = 0; i < rows; ++i)
      cuda::copy_now(logits.view().data + 4 * i * kVocab,
                     reinterpret_cast<const std::byte*>(host.data()), host.size() * 4);
    const Tensor tokens({rows}, DType::kI32, {.device = kGpu});
    const Tensor workspace({kernels::sampling_workspace_bytes(rows, kVocab, kGpu)}, DType::kU8,
                           {.device = kGpu});
    struct Kind {
      const char* name;
      kernels::SamplingRow row;
    };
    for (const Kind kind :
         {Kind{"argmax", {}}, Kind{"temperature", {.temperature = 0.6F}},
          Kind{"top-k 50, top-p 0.95", {.temperature = 0.6F, .top_k = 50, .top_p = 0.95F}}}) {
      const std::vector<kernels::SamplingRow> how(static_cast<std::size_t>(rows), kind.row);
      const Buffer device_rows(how.size() * sizeof(how[0]), {.device = kGpu});
      cuda::copy_now(device_rows.data(), reinterpret_cast<const std::byte*>(how.data()),
                     device_rows.size());
      bench.measure({.name = fmt::format("sample {}, {} rows", kind.name, rows),
                     .bytes = 4.0 * static_cast<double>(rows * kVocab),
                     .launches = 10,
                     .run = [&](int) {
                       kernels::sample(
                           logits,
                           reinterpret_cast<const kernels::SamplingRow*>(device_rows.data()),
                           tokens, workspace, stream);
                     }});
    }
  }
}

int run(Options options) {
  const auto stream = cuda::make_stream(kGpu);
  fmt::print(options.json ? stderr : stdout, "{}\n", cuda::properties(kGpu).name);
  Bench bench(cuda::as_cuda(*stream), std::move(options));
  bench.group("gemv", [&] { gemv_curve(bench, *stream); });
  bench.group("products", [&] { products(bench, *stream); });
  bench.group("decode attention", [&] {
    for (const std::int32_t rows : {1, 8, 64, 256})
      for (const std::int32_t keys : {128, 1024, 4096}) {
        attention(bench, *stream, {rows, keys, 1});
        attention(bench, *stream, {.rows = rows, .keys = keys, .queries = 1, .fp8 = true});
        attention(bench, *stream,
                  {.rows = rows,
                   .keys = keys,
                   .queries = 1,
                   .page = kernels::gpu::kXqaPageSize,
                   .with_xqa = true});
      }
    attention(bench, *stream, {.rows = 64, .keys = 1024, .queries = 1, .heads = 40});
  });
  bench.group("prompts", [&] { prompts(bench, *stream); });
  bench.group("small kernels", [&] { small_kernels(bench, *stream); });
  bench.group("sampling", [&] { sampling(bench, *stream); });
  return bench.failed() ? 1 : 0;
}

}  // namespace
}  // namespace minisgl

int main(int argc, char** argv) {
  minisgl::Options options;
  for (const std::string& argument : std::vector<std::string>(argv + 1, argv + argc)) {
    if (argument == "--json")
      options.json = true;
    else
      options.filters.push_back(argument);
  }
  try {
    return minisgl::run(std::move(options));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
