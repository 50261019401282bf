#include <iostream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/backend.h"
#include "base/env.h"
#include "commands.h"
#include "kvcache/prefix_cache.h"

namespace minisgl::app {
namespace {

/// A number of something, 0 allowed or not; the help shows "N".
CLI::Option* count(CLI::Option* option, bool zero_allowed) {
  const CLI::Validator& range = zero_allowed
                                    ? static_cast<const CLI::Validator&>(CLI::NonNegativeNumber)
                                    : static_cast<const CLI::Validator&>(CLI::PositiveNumber);
  return option->check(range.description(""))->type_name("N")->capture_default_str();
}

CLI::Option* one_of(CLI::Option* option, std::span<const std::string_view> names) {
  const CLI::IsMember member(std::vector<std::string>(names.begin(), names.end()));
  return option->check(static_cast<const CLI::Validator&>(member).description(""))
      ->type_name("NAME")
      ->capture_default_str();
}

}  // namespace

void add_model_flag(CLI::App& app, std::string& model) {
  app.add_option(
         "--model,--model-path", model,
         "GGUF file, folder, or a name in the Hugging Face cache: org/name, org/name:Q4_K_M")
      ->type_name("MODEL")
      ->required();
}

void add_engine_flags(CLI::App& app, LlmOptions& o) {
  add_model_flag(app, o.model);
  o.overlap = !env_bool("MINISGL_DISABLE_OVERLAP_SCHEDULING", false);
  constexpr std::string_view kCompute[] = {"exact"};
  const std::vector<CLI::Option*> options{
      count(
          app.add_option("--threads", o.num_threads, "Compute threads; 0: one for each processor"),
          true),
      one_of(app.add_option("--compute", o.compute,
                            "Arithmetic; exact: activations and KV cache are f32"),
             kCompute),
      app.add_option("--simd", o.simd, "Instruction set of the kernels: auto, plain, avx2, avx512")
          ->type_name("NAME")
          ->capture_default_str(),
      app.add_option("--attention-backend,--attn", o.attention_backend,
                     "Attention: auto, " + attention_backend_names() + ", or two as PREFILL,DECODE")
          ->type_name("NAME")
          ->capture_default_str(),
      one_of(app.add_option("--cache-type,--cache", o.cache_type, "Prefix cache: radix, naive"),
             prefix_cache_names()),
      count(app.add_option("--page-size", o.page_size, "Tokens of a KV page"), false),
      count(app.add_option("--num-pages", o.num_pages,
                           "Pages of the KV cache; 0: from the available memory"),
            true),
      app.add_option("--memory-ratio", o.memory_ratio,
                     "Share of the available memory for the KV cache")
          ->check(CLI::Range(0.01, 1.0).description(""))
          ->type_name("X")
          ->capture_default_str(),
      count(app.add_option("--max-running-requests", o.max_running_requests,
                           "Requests that run at once"),
            false),
      count(app.add_option("--max-seq-len-override", o.max_seq_len,
                           "Tokens of prompt and answer together; 0: the model's context"),
            true),
      count(app.add_option("--max-prefill-length,--max-extend-length", o.max_prefill_length,
                           "Prompt tokens of one step; longer prompts are chunked"),
            false),
      app.add_flag_callback(
          "--no-overlap", [&o] { o.overlap = false; },
          "Plan a step only when the one before it is done"),
      app.add_option(
             "--cuda-graph-max-bs,--graph", o.graph_max_batch_size,
             "Requests of the largest graph of a decode step; 0: no graphs; -1: by the device")
          ->check(CLI::Range(-1, 1 << 20).description(""))
          ->type_name("N")
          ->capture_default_str(),
      app.add_flag("--check-graphs", o.check_graphs,
                   "Stop when an input of a graph was not refreshed; slow")};
  for (CLI::Option* option : options) option->group("Engine");
}

std::string read_standard_input() {
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

}  // namespace minisgl::app
