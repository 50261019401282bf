// Text generation for an embedding program: load a model once, ask it many times.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "minisgl/error.h"
#include "minisgl/sampling_params.h"

namespace minisgl {

/// What can be chosen when a model is loaded. The defaults suit a CPU.
struct LlmOptions {
  std::string model;  ///< a GGUF file, a Hugging Face folder, or "org/name"
  /// "cpu", "cuda" (the first GPU), "cuda:1", ...; "auto": a GPU if there is one. A GPU computes in
  /// bf16, whatever `compute` says.
  std::string device = "auto";
  int num_threads = 0;  ///< 0: one for each processor that the process may use
  /// "exact": activations and KV cache are f32. "bf16": what enters a product with weights is
  /// rounded to bfloat16, and the KV cache is bfloat16.
  std::string compute = "exact";
  /// Weights that are not quantised are rounded to "float32", "float16" or "bfloat16"; "auto": as
  /// they are.
  std::string dtype = "auto";
  /// Keys and values in the cache: "auto", as they are computed; "fp8_e4m3", on a GPU: rounded to
  /// that, so that twice as many fit.
  std::string kv_cache_dtype = "auto";
  bool dummy_weights = false;  ///< random weights: a folder with config.json alone will do
  /// "auto": sampling defaults are those of the model's generation_config.json; "none": ours.
  std::string generation_config = "auto";
  std::string simd = "auto";  ///< "plain", "avx2", "avx512"
  std::string attention_backend = "auto";
  std::string cache_type = "radix";  ///< prefix cache: "radix" or "naive"
  std::int32_t page_size = 0;        ///< tokens of a KV page; 0: 1 on a CPU, 64 on a GPU
  std::int32_t num_pages = 0;        ///< 0: from the available memory
  double memory_ratio = 0.5;         ///< share of the available memory for the KV cache
  std::int32_t max_running_requests = 256;
  std::int32_t max_seq_len = 0;  ///< prompt and answer together; 0: as the model was trained
  /// Prompt tokens computed in one step; 0: 256 on a CPU, 8192 on a GPU.
  std::int32_t max_prefill_length = 0;
  bool overlap = true;  ///< plan a step while the one before it runs
  /// Requests of the largest graph; 0: no graphs. -1: by the free memory on a GPU, none on a CPU.
  std::int32_t graph_max_batch_size = -1;
  std::vector<std::int32_t> graph_batch_sizes = {};  ///< these instead, if there are any
  /// On a GPU: a request's tokens do not depend on the requests beside it; slow. On a CPU they
  /// never do.
  bool deterministic = false;
  bool check_graphs =
      false;  ///< stop when an input of a graph was not refreshed; slow, for debugging
  std::string served_model_name = {};  ///< empty: the file's or folder's name

  /// For chats: a file with a Jinja template, or the name of one of the model's; empty: its
  /// default.
  std::string chat_template = {};
  /// A JSON object of template variables that a request's chat_template_kwargs override.
  std::string default_chat_template_kwargs = {};
  bool parse_special_in_messages = false;  ///< else special tokens in messages are plain text
  /// How answers write tool calls: "none", "hermes", "llama3_json", "mistral"; "auto": as the chat
  /// template shows them.
  std::string tool_call_parser = "auto";
  /// Whether answers begin with reasoning: "none", "think" (<think>...</think>); "auto": if the
  /// chat template knows of it.
  std::string reasoning_parser = "auto";
};

/// A token with its log-probability under the model's own distribution: before temperature,
/// penalties, biases and filters.
struct TextLogprob {
  std::int32_t token = -1;
  /// What the token stands for, which may be part of a character; a special token's text. Empty if
  /// the model's vocabulary has none for it, or there is no tokenizer.
  std::string bytes = {};
  double logprob = 0;  ///< -inf for a token that the model holds to be impossible
};

/// At one position of an answer or a prompt.
struct TextLogprobs {
  TextLogprob chosen = {};
  std::vector<TextLogprob> top = {};  ///< the most likely, in falling order
};

/// The stop text that was found, or the token that ended an answer; neither when something else
/// did.
using StopReason = std::variant<std::monostate, std::string, std::int32_t>;

/// One answer.
struct Completion {
  std::string text = {};
  std::vector<std::int32_t> token_ids = {};  ///< the end token included
  std::string finish_reason = {};            ///< "stop", "length", "abort", "error"
  int prompt_tokens = 0;
  int cached_tokens = 0;      ///< prompt tokens that came from the prefix cache
  int completion_tokens = 0;  ///< as many as token_ids
  std::string error = {};     ///< why, for "error"
  StopReason stop_reason = {};
  /// One for each of token_ids, if num_logprobs asked for it, and their sum.
  std::vector<TextLogprobs> logprobs = {};
  double cumulative_logprob = 0;
  /// One for each token of the prompt, if prompt_logprobs asked for it; the first has none.
  std::vector<std::optional<TextLogprobs>> prompt_logprobs = {};
};

/// A prompt: text, or token ids if there are any.
struct Prompt {
  Prompt(std::string prompt_text) : text(std::move(prompt_text)) {}  // NOLINT: "text" is a prompt
  Prompt(const char* prompt_text) : text(prompt_text) {}             // NOLINT
  Prompt(std::vector<std::int32_t> ids) : token_ids(std::move(ids)) {}  // NOLINT
  std::string text;
  std::vector<std::int32_t> token_ids;
};

/// A loaded model. Thread-safe: calls from several threads share its batches and prefix cache.
class Llm {
 public:
  /// Throws Error, in one line, when the model cannot be loaded or does not fit.
  explicit Llm(const LlmOptions& options);
  ~Llm();
  Llm(Llm&&) noexcept;
  Llm& operator=(Llm&&) noexcept;

  /// `params` with what the model's generation_config.json advises in place of our defaults.
  SamplingParams with_model_defaults(SamplingParams params = {}) const;

  /// One completion for each prompt, in order; all are computed together. A prompt that cannot be
  /// served gets finish_reason "error" and does not disturb the others.
  std::vector<Completion> generate(std::span<const Prompt> prompts, const SamplingParams& sampling);
  /// With parameters of its own for each prompt.
  std::vector<Completion> generate(std::span<const Prompt> prompts,
                                   std::span<const SamplingParams> sampling);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace minisgl
