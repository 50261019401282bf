#include <cstdint>
#include <iostream>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "attention/backend.h"
#include "base/env.h"
#include "commands.h"
#include "formats/file_kind.h"
#include "kvcache/prefix_cache.h"

namespace minisgl::app {
namespace {

/// A count; the help shows "N".
CLI::Option* count(CLI::Option* option, bool zero_allowed) {
  return option->check(whole_number_from(zero_allowed ? 0 : 1))
      ->type_name("N")
      ->capture_default_str();
}

CLI::Option* one_of(CLI::Option* option, std::span<const std::string_view> names) {
  const auto check = [names](const std::string& text) {
    std::string known;
    for (const std::string_view name : names) {
      if (name == text) return std::string();
      known += (known.empty() ? "" : ", ") + std::string(name);
    }
    return in_quotes(text) + " is not known; known are " + known;
  };
  return option->check(check)->type_name("NAME")->capture_default_str();
}

}  // namespace

CLI::Validator number_from(double min, std::optional<double> max) {
  const auto check = [min, max](const std::string& text) {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= min && (!max || value <= *max))
      return std::string();
    std::ostringstream what;
    what << in_quotes(text) << " is not a number " << (max ? "from " : "of at least ") << min;
    if (max) what << " to " << static_cast<std::int64_t>(*max);
    return what.str();
  };
  return {check, /*description=*/""};
}

CLI::Validator whole_number_from(std::int64_t min, std::optional<std::int32_t> max) {
  const std::int64_t most = max.value_or(std::numeric_limits<std::int32_t>::max());
  const auto check = [min, max, most](const std::string& text) {
    std::int64_t value = 0;
    const bool whole = CLI::detail::lexical_cast(text, value);
    if (whole && value >= min && value <= most) return std::string();
    const std::string from = std::to_string(min);
    return in_quotes(text) + " is not a whole number " +
           (max || (whole && value > most) ? "from " + from + " to " + std::to_string(most)
                                           : "of at least " + from);
  };
  return {check, /*description=*/""};
}

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
  static constexpr std::string_view kCompute[] = {"exact", "bf16"};
  static constexpr std::string_view kDtypes[] = {"auto", "float32", "float16", "bfloat16"};
  static constexpr std::string_view kKvCacheDtypes[] = {"auto", "fp8_e4m3"};
  static constexpr std::string_view kGenerationConfigs[] = {"auto", "none"};
  const std::vector<CLI::Option*> options{
      app.add_option("--device", o.device,
                     "Where the model runs: auto (a GPU if there is one), cpu, cuda, cuda:N")
          ->type_name("NAME")
          ->capture_default_str(),
      count(
          app.add_option("--threads", o.num_threads, "Compute threads; 0: one for each processor"),
          true),
      one_of(app.add_option("--compute", o.compute,
                            "Arithmetic; exact: activations and KV cache are f32; bf16: what "
                            "enters a product, and the cache, is bfloat16"),
             kCompute),
      one_of(app.add_option("--dtype", o.dtype,
                            "Type of weights that are not quantised: float32, float16, bfloat16; "
                            "auto: as in the file"),
             kDtypes),
      one_of(app.add_option("--kv-cache-dtype", o.kv_cache_dtype,
                            "Type of keys and values in the cache; auto: as they are computed; "
                            "fp8_e4m3: half of bf16's memory, on a GPU"),
             kKvCacheDtypes),
      app.add_flag("--dummy-weight", o.dummy_weights,
                   "Random weights: config.json alone will do, for benchmarks"),
      one_of(app.add_option("--generation-config", o.generation_config,
                            "Sampling defaults; auto: those of the model's generation_config.json; "
                            "none: the server's own"),
             kGenerationConfigs),
      app.add_option("--simd", o.simd, "Instruction set of the kernels: auto, plain, avx2, avx512")
          ->type_name("NAME")
          ->capture_default_str(),
      app.add_option("--attention-backend,--attn", o.attention_backend,
                     "Attention: auto, " + attention_backend_names() + ", or two as PREFILL,DECODE")
          ->type_name("NAME")
          ->capture_default_str(),
      one_of(app.add_option("--cache-type,--cache", o.cache_type, "Prefix cache: radix, naive"),
             prefix_cache_names()),
      count(app.add_option("--page-size", o.page_size,
                           "Tokens of a KV page; 0: 1 on a CPU, 64 on a GPU"),
            true),
      count(app.add_option("--num-pages", o.num_pages,
                           "Pages of the KV cache; 0: from the available memory"),
            true),
      app.add_option("--memory-ratio", o.memory_ratio,
                     "Share of the available memory for the KV cache")
          ->check(number_from(0.01, 1))
          ->type_name("X")
          ->capture_default_str(),
      count(app.add_option("--max-running-requests", o.max_running_requests,
                           "Requests that run at once"),
            false),
      count(app.add_option("--max-seq-len-override", o.max_seq_len,
                           "Tokens of prompt and answer together; 0: the model's context"),
            true),
      count(
          app.add_option("--max-prefill-length,--max-extend-length", o.max_prefill_length,
                         "Prompt tokens of one step, longer prompts are chunked; 0: 256 on a CPU, "
                         "8192 on a GPU"),
          true),
      app.add_flag_callback(
          "--no-overlap", [&o] { o.overlap = false; },
          "Plan a step only when the one before it is done"),
      app.add_option(
             "--cuda-graph-max-bs,--graph", o.graph_max_batch_size,
             "Requests of the largest graph of a decode step; 0: no graphs; -1: by the device")
          ->check(whole_number_from(-1, 1 << 20))
          ->type_name("N")
          ->capture_default_str(),
      app.add_flag("--deterministic", o.deterministic,
                   "GPU: an answer does not depend on the requests beside it, as on a CPU; slow"),
      app.add_flag("--check-graphs", o.check_graphs,
                   "Stop when an input of a graph was not refreshed; slow")};
  for (CLI::Option* option : options) option->group("Engine");
}

void add_upstream_flags(CLI::App& app) {
  const auto auto_or_fused = [](const std::string& text) {
    return text == "auto" || text == "fused"
               ? std::string()
               : in_quotes(text) + " is not known; known are auto, fused";
  };
  const std::vector<CLI::Option*> options{
      app.add_option("--moe-backend")->check(auto_or_fused),
      app.add_flag("--disable-pynccl"),
  };
  for (CLI::Option* option : options) option->group("");  // not in the help: they change nothing
}

void add_chat_flags(CLI::App& app, LlmOptions& o) {
  const std::vector<CLI::Option*> options{
      app.add_option("--chat-template", o.chat_template,
                     "Jinja file, or the name of one of the model's templates, to use for chats")
          ->type_name("FILE"),
      app.add_option("--default-chat-template-kwargs", o.default_chat_template_kwargs,
                     "Variables of the template, such as {\"enable_thinking\": false}; a request's "
                     "chat_template_kwargs win")
          ->type_name("JSON"),
      app.add_flag("--parse-special-in-messages", o.parse_special_in_messages,
                   "Special tokens in messages count as such; without it they are plain text"),
      app.add_option("--tool-call-parser", o.tool_call_parser,
                     "How answers write tool calls: none, hermes, llama3_json, mistral; auto: as "
                     "the chat template shows")
          ->type_name("NAME")
          ->capture_default_str(),
      app.add_option("--reasoning-parser", o.reasoning_parser,
                     "How answers write reasoning: none, think (<think>...</think>); auto: as the "
                     "chat template shows")
          ->type_name("NAME")
          ->capture_default_str()};
  for (CLI::Option* option : options) option->group("Chats");
}

std::string read_standard_input() {
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

}  // namespace minisgl::app
