// How fast the kernels on a GPU are, beside what its memory and its tensor cores allow.
//
//   build/benchmarks/gpu_kernels_bench [FILTER]     rows whose name contains FILTER
//
// A case is a graph of launches over different memory, more than the L2 holds, replayed a few
// times; the time of one launch is the median replay's share. Shapes: Qwen3-0.6B.

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/flashinfer/xqa.h"
#include "kernels/cuda/ops.h"
#include "kernels/norm.h"
#include "kernels/sampling.h"
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

class Bench {
 public:
  Bench(cuda::CudaStream& stream, std::string filter)
      : stream_(stream), filter_(std::move(filter)) {
    fmt::print("{:<44} {:>9} {:>8} {:>9}\n", "kernel", "us", "GB/s", "TFLOP/s");
  }

  bool wants(const std::string& name) const { return name.find(filter_) != std::string::npos; }

  void measure(const Case& c) {
    if (!wants(c.name)) return;
    for (int i = 0; i < 2; ++i) c.run(i);  // what is done only once
    stream_.synchronize();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check_cuda(cudaStreamBeginCapture(stream_.handle(), cudaStreamCaptureModeThreadLocal),
               "capture");
    for (int i = 0; i < c.launches; ++i) c.run(i);
    check_cuda(cudaStreamEndCapture(stream_.handle(), &graph), "capture");
    check_cuda(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
    std::vector<float> times;
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    check_cuda(cudaEventCreate(&begin), "event");
    check_cuda(cudaEventCreate(&end), "event");
    for (int i = 0; i < 12; ++i) {
      check_cuda(cudaEventRecord(begin, stream_.handle()), "record");
      check_cuda(cudaGraphLaunch(executable, stream_.handle()), "launch");
      check_cuda(cudaEventRecord(end, stream_.handle()), "record");
      check_cuda(cudaEventSynchronize(end), "wait");
      float ms = 0;
      check_cuda(cudaEventElapsedTime(&ms, begin, end), "time");
      if (i >= 3) times.push_back(ms);
    }
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    const double us = 1e3 * times[times.size() / 2] / c.launches;
    fmt::print("{:<44} {:>9.2f} {:>8} {:>9}\n", c.name, us,
               c.bytes > 0 ? fmt::format("{:.0f}", c.bytes / us / 1e3) : "",
               c.flops > 0 ? fmt::format("{:.0f}", c.flops / us / 1e6) : "");
    std::fflush(stdout);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
  }

 private:
  cuda::CudaStream& stream_;
  std::string filter_;
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

void products(Bench& bench, Stream& stream) {
  struct Shapes {
    const char* name;
    std::int64_t rows, cols;
    int copies;
    DType out;
  };
  ThreadPool pool(8);
  for (const Shapes s :
       {Shapes{"qkv", 4096, 1024, 28, DType::kBF16}, Shapes{"o", 1024, 2048, 28, DType::kBF16},
        Shapes{"gate_up", 6144, 1024, 28, DType::kBF16},
        Shapes{"down", 1024, 3072, 28, DType::kBF16},
        Shapes{"lm_head", 151936, 1024, 2, DType::kF32}}) {
    if (!bench.wants(std::string("linear ") + s.name)) continue;
    std::vector<kernels::PackedMatrix> weights;
    for (int i = 0; i < s.copies; ++i) {
      const Tensor numbers = random_numbers({s.rows, s.cols});
      Buffer data(static_cast<std::size_t>(numbers.view().bytes()), {.device = kGpu});
      cuda::copy_now(data.data(), numbers.view().data, data.size());
      weights.emplace_back(s.rows, s.cols, DType::kBF16, kernels::Packing::kGpuRows,
                           std::move(data));
    }
    for (const std::int64_t tokens : {1, 8, 16, 64, 256}) {
      const Tensor x = random_numbers({tokens, s.cols});
      const Tensor y({tokens, s.rows}, s.out, {.device = kGpu});
      bench.measure(
          {.name = fmt::format("linear {} [{}, {}], {} tokens", s.name, s.rows, s.cols, tokens),
           .bytes = 2.0 * static_cast<double>(s.rows * s.cols),
           .flops = 2.0 * static_cast<double>(s.rows * s.cols * tokens),
           .launches = s.copies * (s.copies == 2 ? 5 : 1),
           .run = [&](int i) {
             const kernels::PackedMatrix* const matrix =
                 &weights[static_cast<std::size_t>(i % s.copies)];
             kernels::linear(x, {&matrix, 1}, {}, y, stream);
           }});
    }
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

int run(const std::string& filter) {
  const auto stream = cuda::make_stream(kGpu);
  std::printf("%s\n", cuda::properties(kGpu).name.c_str());
  Bench bench(cuda::as_cuda(*stream), filter);
  products(bench, *stream);
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
  prompts(bench, *stream);
  small_kernels(bench, *stream);
  sampling(bench, *stream);
  return 0;
}

}  // namespace
}  // namespace minisgl

int main(int argc, char** argv) {
  try {
    return minisgl::run(argc > 1 ? argv[1] : "");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
