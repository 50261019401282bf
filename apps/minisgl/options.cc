#include <cstdlib>
#include <iostream>
#include <iterator>

#include "base/env.h"
#include "commands.h"

namespace minisgl::app {

void add_model_flag(CLI::App& app, std::string& model) {
  app.add_option("--model,--model-path", model, "GGUF file, or Hugging Face folder")->required();
}

void add_engine_flags(CLI::App& app, LlmOptions& o) {
  add_model_flag(app, o.model);
  o.overlap = !env_bool("MINISGL_DISABLE_OVERLAP_SCHEDULING", false);
  const std::string group = "Engine";
  app.add_option("--threads", o.num_threads, "Compute threads; 0: one for each processor that may be used")
      ->check(CLI::NonNegativeNumber)->capture_default_str()->group(group);
  app.add_option("--compute", o.compute, "Arithmetic: exact keeps activations and KV cache in f32")
      ->check(CLI::IsMember({"exact"}))->capture_default_str()->group(group);
  app.add_option("--simd", o.simd, "Instruction set of the kernels: auto, plain, avx2, avx512")
      ->capture_default_str()->group(group);
  app.add_option("--attention-backend,--attn", o.attention_backend, "Attention: auto, fa, ref")
      ->capture_default_str()->group(group);
  app.add_option("--cache-type,--cache", o.cache_type, "Prefix cache: radix, naive")->capture_default_str()->group(group);
  app.add_option("--page-size", o.page_size, "Tokens of a KV page")->check(CLI::PositiveNumber)
      ->capture_default_str()->group(group);
  app.add_option("--num-pages", o.num_pages, "Pages of the KV cache; 0: from the available memory")
      ->check(CLI::NonNegativeNumber)->capture_default_str()->group(group);
  app.add_option("--memory-ratio", o.memory_ratio, "Share of the available memory that the KV cache may take")
      ->check(CLI::Range(0.01, 1.0))->capture_default_str()->group(group);
  app.add_option("--max-running-requests", o.max_running_requests, "Requests that run at once")
      ->check(CLI::PositiveNumber)->capture_default_str()->group(group);
  app.add_option("--max-seq-len-override", o.max_seq_len, "Tokens of prompt and answer together; 0: as the model was trained")
      ->check(CLI::NonNegativeNumber)->capture_default_str()->group(group);
  app.add_option("--max-prefill-length,--max-extend-length", o.max_prefill_length,
                 "Prompt tokens computed in one step; longer prompts are chunked")
      ->check(CLI::PositiveNumber)->capture_default_str()->group(group);
  app.add_option("--cuda-graph-max-bs,--graph", o.graph_max_batch_size,
                 "Requests of the largest graph of a decode step; 0: no graphs; -1: by the free memory, none on a CPU")
      ->check(CLI::Range(-1, 1 << 20))->capture_default_str()->group(group);
  app.add_flag("--check-graphs", o.check_graphs, "Stop when an input of a graph was not refreshed (slow)")->group(group);
  app.add_flag("!--no-overlap", o.overlap, "Do not plan a step while the one before it runs")->group(group);
}

std::string read_standard_input() {
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

}  // namespace minisgl::app
