// Decode steps from graphs, on a machine without a GPU: padding, replay, and what happens when one
// input is not copied to where the graph reads it.
//
//   build/examples/cuda_graph MODEL    a GGUF file or a Hugging Face folder
//
// Given Qwen3-0.6B in f32, it prints the ids that the chapter gives beside its own; those weights
// are not part of the project, and this has not been run with them.
//
// Prints what it finds; the exit status is 0 if everything is as it should be. docs/graphs.md
// explains it. After mini-sglang from scratch, chapter 18, examples/ch18_cuda_graph.py.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "llm/local_generator.h"
#include "scheduler/scheduler.h"

namespace {

using minisgl::TokenId;
using Ids = std::vector<TokenId>;

constexpr int kMaxTokens = 6;

/// What a run did and gave.
struct Result {
  std::vector<Ids> answers;          // of the prompts, in order
  std::vector<std::int32_t> sizes;   // that were captured
  std::vector<std::string> replays;  // "3->4" for each replay
  std::string error;                 // that ended it, or ""
};

struct Options {
  std::int32_t graph_max_batch_size = 0;
  std::string left_out = {};  // an input that is not copied
  bool check_graphs = false;
};

/// The prompts' ids; fixed ones for a model without a tokenizer, or with fewer ids than it has.
std::vector<Ids> prompts_of(const std::string& model) {
  const std::int64_t vocab = minisgl::read_model_config(model).vocab_size;
  std::vector<Ids> prompts;
  try {
    const auto tokenizer = minisgl::load_tokenizer(model);
    for (const char* text :
         {"The capital of France is", "List three prime numbers:", "def fibonacci(n):"})
      prompts.push_back(tokenizer->encode(text, {.add_special = true}));
  } catch (const minisgl::Error&) {
    prompts.clear();
  }
  const auto fits = [&](const Ids& ids) {
    return !ids.empty() && *std::max_element(ids.begin(), ids.end()) < vocab;
  };
  if (prompts.empty() || !std::all_of(prompts.begin(), prompts.end(), fits))
    prompts = {{1, 2, 3, 4, 5}, {11, 12, 13, 14}, {7, 7, 7, 7, 7, 7}};
  return prompts;
}

Result run(const std::string& model, const std::vector<Ids>& prompts, const Options& options) {
  const auto engine = minisgl::open_engine({.model = model,
                                            .num_pages = 512,
                                            .max_running_requests = 8,
                                            .max_seq_len = 128,
                                            .graph_max_batch_size = options.graph_max_batch_size,
                                            .check_graphs = options.check_graphs});
  Result result{
      .answers = std::vector<Ids>(prompts.size()), .sizes = {}, .replays = {}, .error = {}};
  if (minisgl::GraphRunner* graphs = engine->graphs()) {
    result.sizes = graphs->batch_sizes();
    graphs->leave_out(options.left_out);
    graphs->set_observer([&](minisgl::ReplayPoint point, const minisgl::Batch& batch) {
      if (point == minisgl::ReplayPoint::kEnd)
        result.replays.push_back(fmt::format("{}->{}", batch.num_rows, batch.rows.size()));
    });
  }
  minisgl::Scheduler scheduler(*engine, {.overlap = false},
                               [&](std::span<const minisgl::TokenEvent> events) {
                                 for (const minisgl::TokenEvent& event : events) {
                                   if (event.has_token)
                                     result.answers[event.request.value].push_back(event.token);
                                   if (!event.error.empty()) result.error = event.error;
                                 }
                               });
  for (std::size_t i = 0; i < prompts.size(); ++i)
    scheduler.submit({{i}, prompts[i], {.max_tokens = kMaxTokens, .ignore_eos = true}});
  try {
    while (scheduler.step()) {
    }
  } catch (const minisgl::Error& e) {
    result.error = e.what();
  }
  return result;
}

/// Counted from 1; 0 if they are equal.
std::size_t first_difference(const Ids& a, const Ids& b) {
  const auto [at, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return at == a.end() && other == b.end() ? 0 : static_cast<std::size_t>(at - a.begin()) + 1;
}

/// What chapter 18 prints for its first prompt, or nothing if this is another model than its.
struct ChapterIds {
  Ids correct, wrong;
};
ChapterIds chapter_ids(const std::string& model, const Ids& prompt) {
  const minisgl::ModelConfig config = minisgl::read_model_config(model);
  const Ids the_capital_of_france_is = {785, 6722, 315, 9625, 374};
  if (config.architecture != "Qwen3ForCausalLM" || config.hidden_size != 1024 ||
      config.num_layers != 28 || prompt != the_capital_of_france_is)
    return {};
  return {.correct = {12095, 13, 576, 6722, 315, 15344},
          .wrong = {12095, 1103, 9736, 6686, 374, 264}};
}

int show(const std::string& model) {
  const std::vector<Ids> prompts = prompts_of(model);
  const Result eager = run(model, prompts, {});
  const Result graph = run(model, prompts, {.graph_max_batch_size = 4});
  const bool same = eager.answers == graph.answers;
  fmt::print("recorded batch sizes: [{}]\n", fmt::join(graph.sizes, ", "));
  fmt::print("the replay of each decode step (real batch size->padded):\n");
  for (const std::string& line : graph.replays) fmt::print("{}\n", line);
  fmt::print("matches the output without a graph: {}\n", same ? "True" : "False");

  const Result wrong = run(model, prompts, {.graph_max_batch_size = 4, .left_out = "positions"});
  const bool unnoticed = wrong.answers == eager.answers;
  fmt::print("matches the correct output after positions was not copied: {}\n",
             unnoticed ? "True" : "False");
  const ChapterIds chapter = chapter_ids(model, prompts[0]);
  const auto show_ids = [](const char* what, const Ids& ids, const Ids& in_chapter) {
    fmt::print("  {:<8} [{}]", what, fmt::join(ids, ", "));
    if (!in_chapter.empty()) fmt::print("   the chapter's: [{}]", fmt::join(in_chapter, ", "));
    fmt::print("\n");
  };
  show_ids("correct:", eager.answers[0], chapter.correct);
  show_ids("wrong:", wrong.answers[0], chapter.wrong);
  if (const std::size_t token = first_difference(eager.answers[0], wrong.answers[0]))
    fmt::print("  they part at token {}, and nothing has reported an error\n", token);

  const Result checked = run(
      model, prompts, {.graph_max_batch_size = 4, .left_out = "positions", .check_graphs = true});
  fmt::print("with check_graphs: {}\n", checked.error);
  const bool found = checked.error == "graph input positions was not refreshed for this step";
  return same && !unnoticed && wrong.error.empty() && found ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: {} MODEL\n", argv[0]);
    return 2;
  }
  try {
    return show(argv[1]);
  } catch (const minisgl::Error& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 1;
  }
}
