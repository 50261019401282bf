// The subcommands of the minisgl program. Each adds its flags to `app` and returns what runs it:
// the exit code. Results go to standard output and nothing else does.

#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "minisgl/llm.h"

namespace minisgl::app {

using Command = std::function<int()>;

Command add_serve(CLI::App& app);
Command add_generate(CLI::App& app);
Command add_shell(CLI::App& app);
Command add_bench(CLI::App& app);
Command add_tokenize(CLI::App& app);
Command add_detokenize(CLI::App& app);
Command add_render(CLI::App& app);
Command add_perplexity(CLI::App& app);
Command add_pull(CLI::App& app);

/// --model, required: a GGUF file, a Hugging Face folder, or a name in the cache.
void add_model_flag(CLI::App& app, std::string& model);
/// All that LlmOptions holds, --model included.
void add_engine_flags(CLI::App& app, LlmOptions& options);

/// Flags of mini-sglang that have nothing to choose from here, so that its command lines work.
void add_upstream_flags(CLI::App& app);

/// What LlmOptions says about chats: the template, its variables, special tokens in messages.
void add_chat_flags(CLI::App& app, LlmOptions& options);

/// Accepts a number of at least `min`, and at most `max` if given.
CLI::Validator number_from(double min, std::optional<double> max = {});

/// Accepts a whole number of at least `min`, and at most `max`, or what 32 bits hold.
CLI::Validator whole_number_from(std::int64_t min, std::optional<std::int32_t> max = {});

/// All of standard input.
std::string read_standard_input();

}  // namespace minisgl::app
