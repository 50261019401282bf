// generate: one prompt, streamed, or a file of requests.

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "base/log.h"
#include "commands.h"
#include "llm/generate_all.h"
#include "llm/local_generator.h"
#include "llm/sampling_json.h"
#include "ranks.h"

namespace minisgl::app {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  LlmOptions llm;
  RankFlags ranks;
  std::string prompt;
  std::string input;
  bool chat = false;
  bool json = false;
  SamplingParams sampling;
  std::int64_t seed = -1;
  /// Sets those of the parameters that were given on the command line.
  std::function<void(SamplingParams&)> given = [](SamplingParams&) {};

  /// What was given, else what the model advises, else our own defaults.
  SamplingParams sampling_for(const Generator& generator) const {
    SamplingParams params = generator.sampling_defaults().over(sampling);
    given(params);
    return params;
  }
};

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

/// JSON has no infinity.
double finite(double logprob) { return std::max(logprob, -9999.0); }

Json to_json(const TextLogprobs& position) {
  const auto convert = [](const TextLogprob& entry) {
    return Json{
        {"token_id", entry.token}, {"token", entry.bytes}, {"logprob", finite(entry.logprob)}};
  };
  Json result = convert(position.chosen);
  result["top_logprobs"] = Json::array();
  for (const TextLogprob& entry : position.top) result["top_logprobs"].push_back(convert(entry));
  return result;
}

std::string to_json_line(std::size_t index, const Completion& c) {
  Json line = {{"index", index},
               {"text", c.text},
               {"token_ids", c.token_ids},
               {"finish_reason", c.finish_reason},
               {"usage",
                {{"prompt_tokens", c.prompt_tokens},
                 {"completion_tokens", c.completion_tokens},
                 {"total_tokens", c.prompt_tokens + c.completion_tokens},
                 {"prompt_tokens_details", {{"cached_tokens", c.cached_tokens}}}}}};
  if (!c.error.empty()) line["error"] = c.error;
  if (const auto* text = std::get_if<std::string>(&c.stop_reason)) line["stop_reason"] = *text;
  if (const auto* id = std::get_if<std::int32_t>(&c.stop_reason)) line["stop_reason"] = *id;
  if (!c.logprobs.empty()) {
    line["cumulative_logprob"] = finite(c.cumulative_logprob);
    line["logprobs"] = Json::array();
    for (const TextLogprobs& position : c.logprobs) line["logprobs"].push_back(to_json(position));
  }
  if (!c.prompt_logprobs.empty()) {
    line["prompt_logprobs"] = Json::array();
    for (const auto& position : c.prompt_logprobs)
      line["prompt_logprobs"].push_back(position ? to_json(*position) : Json());
  }
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

GenerateRequest chat_request(const Generator& generator, const Json& messages, const Json& line) {
  const auto field = [&](const char* name) { return line.contains(name) ? line[name] : Json(); };
  Json kwargs = field("chat_template_kwargs");
  if (line.contains("documents")) kwargs["documents"] = line["documents"];
  return {.prompt = generator.render_chat(messages, field("tools"), kwargs, true),
          .sampling = {},
          .param = "messages"};
}

/// One line of an input file. Throws Error saying what is wrong with it.
GenerateRequest parse_line(const Generator& generator, const std::string& text,
                           const SamplingParams& defaults) {
  const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) throw Error("not a JSON object");
  const int kinds = static_cast<int>(line.contains("prompt")) +
                    static_cast<int>(line.contains("token_ids")) +
                    static_cast<int>(line.contains("messages"));
  if (kinds != 1)
    throw Error("exactly one of \"prompt\", \"token_ids\" and \"messages\" is needed");
  GenerateRequest request;
  if (line.contains("messages")) {
    request = chat_request(generator, line["messages"], line);
  } else if (line.contains("prompt")) {
    if (!line["prompt"].is_string()) throw Error("\"prompt\" is not a string");
    request.prompt = line["prompt"].get<std::string>();
  } else {
    if (!line["token_ids"].is_array()) throw Error("\"token_ids\" is not an array");
    std::vector<TokenId> ids;
    for (const Json& id : line["token_ids"]) {
      if (!id.is_number_integer())
        throw Error("\"token_ids\" holds " + id.dump() + ", which is not an integer");
      ids.push_back(id.get<TokenId>());
    }
    request.prompt = std::move(ids);
  }
  request.sampling =
      line.contains("sampling") ? sampling_from_json(line["sampling"], defaults) : defaults;
  return request;
}

/// Prints the lines in the order of the input as soon as they can be.
class OrderedOutput {
 public:
  explicit OrderedOutput(bool json) : json_(json) {}
  void add(std::size_t index, const Completion& completion) {
    waiting_[index] =
        json_ ? to_json_line(index, completion)
              : (completion.error.empty() ? completion.text : "error: " + completion.error) + "\n";
    for (auto next = waiting_.find(next_); next != waiting_.end(); next = waiting_.find(++next_)) {
      print(next->second);
      waiting_.erase(next);
    }
  }

 private:
  bool json_;
  std::size_t next_ = 0;
  std::map<std::size_t, std::string> waiting_;
};

int generate_file(const Options& options, const RankSetup& ranks) {
  std::ifstream file(options.input);
  if (!file) throw Error("cannot read " + options.input);
  LocalGenerator generator(options.llm, ranks);
  std::vector<GenerateRequest> requests;
  std::vector<std::size_t> indices;  // of the requests among the lines
  OrderedOutput output(options.json);
  bool failed = false;
  const SamplingParams sampling = options.sampling_for(generator);
  std::string text;
  for (std::size_t index = 0; std::getline(file, text);) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      requests.push_back(parse_line(generator, text, sampling));
      indices.push_back(index);
    } catch (const Error& e) {
      failed = true;
      output.add(index, {.finish_reason = "error", .error = e.what()});
    }
    ++index;
  }
  const std::vector<Completion> done =
      generate_all(generator, std::move(requests),
                   [&](std::size_t i, const Completion& c) { output.add(indices[i], c); });
  failed |= std::any_of(done.begin(), done.end(),
                        [](const Completion& c) { return c.finish_reason == "error"; });
  return failed ? 1 : 0;
}

int generate_one(const Options& options, const RankSetup& ranks) {
  LocalGenerator generator(options.llm, ranks);
  GenerateRequest request{.prompt = options.prompt};
  if (options.chat)
    request = chat_request(
        generator, Json::array({{{"role", "user"}, {"content", options.prompt}}}), Json::object());
  request.sampling = options.sampling_for(generator);

  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;
  Completion whole;
  generator.submit(std::move(request), [&](GenerateUpdate update) {
    if (!options.json) print(update.text);
    const std::lock_guard lock(mutex);
    done = update.finish != FinishReason::kNone;
    add_update(std::move(update), whole);
    if (done) ended.notify_all();
  });
  std::unique_lock lock(mutex);
  ended.wait(lock, [&] { return done; });
  print(options.json ? to_json_line(0, whole) : "\n");
  if (!whole.error.empty()) throw Error(whole.error);
  return 0;
}

}  // namespace

Command add_generate(CLI::App& app) {
  auto options = std::make_shared<Options>();
  SamplingParams& s = options->sampling;
  add_engine_flags(app, options->llm);
  add_rank_flags(app, options->ranks);
  add_chat_flags(app, options->llm);
  auto* prompt =
      app.add_option("--prompt", options->prompt, "Text to continue; the answer is streamed")
          ->type_name("TEXT");
  app.add_flag("--chat", options->chat, "The prompt is a user's message: apply the chat template")
      ->needs(prompt);
  app.add_option("--input", options->input,
                 "JSON lines, each an object with prompt, token_ids or messages, and sampling")
      ->type_name("FILE")
      ->excludes(prompt);
  app.add_flag("--json", options->json, "Print one JSON object for each answer");
  const auto number = [&app](const char* flag, auto& value, const char* help) {
    return app.add_option(flag, value, help)
        ->type_name("N")
        ->capture_default_str()
        ->group("Sampling");
  };
  number("--max-tokens", s.max_tokens, "Length of an answer at most");
  const CLI::Option* temperature =
      number("--temperature", s.temperature, "0: always the most likely token");
  const CLI::Option* top_k = number("--top-k", s.top_k, "Keep the N most likely tokens; -1: all");
  const CLI::Option* top_p =
      number("--top-p", s.top_p, "Keep the most likely tokens with this sum");
  const CLI::Option* min_p =
      number("--min-p", s.min_p, "Keep tokens with at least this share of the likeliest");
  options->given = [temperature, top_k, top_p, min_p, &s](SamplingParams& params) {
    if (temperature->count() > 0) params.temperature = s.temperature;
    if (top_k->count() > 0) params.top_k = s.top_k;
    if (top_p->count() > 0) params.top_p = s.top_p;
    if (min_p->count() > 0) params.min_p = s.min_p;
  };
  number("--presence-penalty", s.presence_penalty, "Off the logit of a token the answer has");
  number("--frequency-penalty", s.frequency_penalty,
         "The same, for each time that the answer has it");
  number("--repetition-penalty", s.repetition_penalty,
         "Divides the logit of a token that prompt or answer have");
  number("--min-tokens", s.min_tokens, "Length of an answer at least");
  app.add_option("--logprobs", s.num_logprobs,
                 "With --json: log-probabilities, and of so many of the most likely tokens")
      ->type_name("N")
      ->group("Sampling");
  app.add_option("--prompt-logprobs", s.prompt_logprobs, "The same for the prompt")
      ->type_name("N")
      ->group("Sampling");
  app.add_option("--seed", options->seed, "Repeatable draws")->type_name("N")->group("Sampling");
  app.add_flag("--ignore-eos", s.ignore_eos, "Go on after an end-of-sequence token")
      ->group("Sampling");
  app.add_option_function<std::string>(
         "--response-format",
         [&s](const std::string& text) {
           const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
           if (json.is_discarded()) throw CLI::ValidationError("--response-format", "not JSON");
           s.response_format = response_format_from_json(json);
         },
         "What answers have to look like: an object as in the OpenAI API, for example "
         "{\"type\":\"json_object\"}")
      ->type_name("JSON")
      ->group("Sampling");
  app.add_option("--stop", s.stop, "Text that ends an answer; may be given several times")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->group("Sampling");
  return [options, prompt] {
    if (options->seed >= 0) options->sampling.seed = static_cast<std::uint64_t>(options->seed);
    if (prompt->count() == 0 && options->input.empty()) {
      std::fputs(
          "minisgl: generate needs --prompt TEXT or --input FILE (see minisgl generate --help)\n",
          stderr);
      return 2;
    }
    log::set_level(log::Level::kWarning);  // the answer is what the user wants to see
    return with_ranks(options->ranks, options->llm, [&](const RankSetup& ranks) {
      return options->input.empty() ? generate_one(*options, ranks)
                                    : generate_file(*options, ranks);
    });
  };
}

}  // namespace minisgl::app
