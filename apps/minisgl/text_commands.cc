// tokenize, detokenize, render, perplexity: what scripts use.

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "hub/cache.h"
#include "llm/local_generator.h"
#include "tokenizer/chat_renderer.h"
#include "tokenizer/tokenizer.h"

namespace minisgl::app {
namespace {

using Json = nlohmann::ordered_json;

Json parse_standard_input(const char* expected) {
  Json json = Json::parse(read_standard_input(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded())
    throw Error(std::string("standard input is not JSON: expected ") + expected);
  return json;
}

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

int perplexity(const LlmOptions& options, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error("cannot read " + path);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::vector<TokenId> ids =
      load_tokenizer(hub::find_model(options.model))->encode(text, {.add_special = true});
  if (ids.size() < 2) throw Error(path + " has fewer than two tokens: there is nothing to predict");
  LlmOptions one = options;
  one.max_running_requests = 1;
  const std::vector<double> scores = open_engine(one)->token_logprobs(ids);
  double sum = 0;
  for (const double score : scores) sum += score;
  const Json result = {{"tokens", ids.size()},
                       {"perplexity", std::exp(-sum / static_cast<double>(scores.size()))}};
  print(result.dump() + "\n");
  return 0;
}

}  // namespace

Command add_tokenize(CLI::App& app) {
  struct Options {
    std::string model;
    EncodeOptions encode;
  };
  auto options =
      std::make_shared<Options>();  // shared: the flags write to it until the command runs
  add_model_flag(app, options->model);
  app.add_flag("--add-special", options->encode.add_special,
               "Add the special tokens that begin and end a text");
  app.add_flag("--special-as-text", options->encode.special_as_text,
               "Special tokens in the text are ordinary text");
  return [options] {
    const std::vector<TokenId> ids = load_tokenizer(hub::find_model(options->model))
                                         ->encode(read_standard_input(), options->encode);
    print(Json(ids).dump() + "\n");
    return 0;
  };
}

Command add_detokenize(CLI::App& app) {
  struct Options {
    std::string model;
    bool skip_special = false;
  };
  auto options = std::make_shared<Options>();
  add_model_flag(app, options->model);
  app.add_flag("--skip-special", options->skip_special, "Leave special tokens out");
  return [options] {
    const Json json = parse_standard_input("an array of token ids");
    std::vector<TokenId> ids;
    if (!json.is_array()) throw Error("standard input is not an array of token ids");
    for (const Json& id : json) {
      if (!id.is_number_integer() ||
          id.get<std::int64_t>() != static_cast<TokenId>(id.get<std::int64_t>()))
        throw Error("not a token id: " + id.dump());
      ids.push_back(id.get<TokenId>());
    }
    print(load_tokenizer(hub::find_model(options->model))->decode(ids, options->skip_special));
    return 0;
  };
}

Command add_render(CLI::App& app) {
  struct Options {
    LlmOptions llm;
    bool ids = false;
  };
  auto options = std::make_shared<Options>();
  add_model_flag(app, options->llm.model);
  add_chat_flags(app, options->llm);
  app.add_flag("--ids", options->ids, "Print the token ids of the prompt instead of its text");
  return [options] {
    const Json json = parse_standard_input("an object with \"messages\"");
    if (!json.is_object() || !json.contains("messages"))
      throw Error("the request has no \"messages\"");
    const auto field = [&](const char* name) { return json.contains(name) ? json[name] : Json(); };
    const std::unique_ptr<Tokenizer> tokenizer =
        load_tokenizer(hub::find_model(options->llm.model));
    Json kwargs = field("chat_template_kwargs");
    if (json.contains("documents")) kwargs["documents"] = json["documents"];
    const MarkedText prompt = ChatRenderer(*tokenizer, chat_options(options->llm))
                                  .render(json["messages"], field("tools"), kwargs,
                                          json.value("add_generation_prompt", true));
    print(options->ids ? Json(tokenizer->encode(prompt)).dump() + "\n" : prompt.text);
    return 0;
  };
}

Command add_perplexity(CLI::App& app) {
  struct Options {
    LlmOptions llm;
    std::string file;
  };
  auto options = std::make_shared<Options>();
  add_engine_flags(app, options->llm);
  app.add_option("--file", options->file, "Text to score as one window")->required();
  return [options] { return perplexity(options->llm, options->file); };
}

}  // namespace minisgl::app
