// A real model, SmolLM2-135M-Instruct in GGUF, against transformers: prompts, ids, logits, greedy
// answers; and its independence of how it is computed.

#include <gtest/gtest.h>

#include <memory>

#include "sample_model.h"
#include "testing/golden.h"
#include "testing/random.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace minisgl {
namespace {

using testing_util::Outcome;
using testing_util::RunConfig;
using testing_util::ScheduledRun;

TEST(SampleModelTest, ChatsAreRenderedAndTokenizedAsTransformersDoes) {
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(sample_model_path());
  const ChatTemplate chat_template{std::string(tokenizer->chat_template())};
  const nlohmann::json golden = testing_util::read_json(sample_model_data() / "golden.json");
  int chats = 0;
  for (const auto& prompt : golden["prompts"]) {
    SCOPED_TRACE(prompt["name"].get<std::string>());
    const auto text = prompt["text"].get<std::string>();
    EXPECT_EQ(tokenizer->encode(text), prompt["ids"].get<std::vector<TokenId>>());
    if (!prompt.contains("messages")) continue;
    ++chats;
    ChatInput input;
    input.messages = nlohmann::ordered_json::parse(prompt["messages"].dump());
    input.add_generation_prompt = true;
    input.bos_token = tokenizer->bos_token();
    input.eos_token = tokenizer->eos_token();
    const MarkedText rendered = chat_template.render(input);
    EXPECT_EQ(rendered.text, text);
    EXPECT_EQ(tokenizer->encode(rendered), prompt["ids"].get<std::vector<TokenId>>());
  }
  EXPECT_EQ(chats, 12);
}

TEST(SampleModelTest, FirstLogitsAndGreedyAnswersAreThoseOfTransformers) {
  const nlohmann::json golden = testing_util::read_json(sample_model_data() / "golden.json");
  ScheduledRun run(sample_model_path(), {.threads = 2, .num_pages = 8192, .keep_logits = 1});
  testing_util::submit_golden(run, golden);
  run.finish();
  constexpr double kTolerance = 2e-3;
  for (std::size_t i = 0; i < golden["prompts"].size(); ++i) {
    const auto& prompt = golden["prompts"][i];
    SCOPED_TRACE(prompt["name"].get<std::string>());
    const Outcome& outcome = run.outcomes()[i];
    testing_util::expect_top_logits(outcome.logits.at(0), prompt["first_top10"], kTolerance);
    testing_util::expect_greedy(outcome.tokens, prompt["greedy"], prompt["margins"], kTolerance);
  }
}

TEST(SampleModelTest, LogitsDoNotDependOnHowARequestIsComputed) {
  const nlohmann::json golden = testing_util::read_json(sample_model_data() / "golden.json");
  std::vector<std::vector<TokenId>> prompts;
  for (const auto& prompt : golden["prompts"]) prompts.push_back(prompt["ids"]);
  for (int i = 0; i < 6; ++i) {  // follow-ups that share a prefix
    prompts.push_back(prompts[i]);
    const auto more = golden["prompts"][i]["greedy"].get<std::vector<TokenId>>();
    prompts.back().insert(prompts.back().end(), more.begin(), more.begin() + 20);
  }
  ASSERT_EQ(prompts.size(), 24U);
  const auto sampling = [](std::size_t i) {
    return SamplingParams{.max_tokens = 4 + static_cast<std::int64_t>(i % 9),
                          .ignore_eos = i % 2 == 0};
  };
  const std::vector<TokenId> eos_ids{2};

  std::vector<Outcome> alone;
  ScheduledRun one(sample_model_path(), {.threads = 1,
                                         .num_pages = 2048,
                                         .prefill_budget = 8192,
                                         .cache = "naive",
                                         .overlap = false,
                                         .eos_ids = eos_ids});
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    one.submit(prompts[i], sampling(i));
    one.finish();
  }
  alone = one.outcomes();

  testing_util::Random random(5);
  ScheduledRun run(
      sample_model_path(),
      {.threads = 2, .page_size = 16, .num_pages = 256, .prefill_budget = 32, .eos_ids = eos_ids});
  std::vector<bool> aborted(prompts.size(), false);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    run.submit(prompts[i], sampling(i));
    for (std::int64_t s = random.below(3); s > 0; --s) run.step();
    if (random.below(6) == 0) {
      aborted[i] = true;
      run.abort(i);
    }
  }
  run.finish();
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (run.outcomes()[i].finish == FinishReason::kAbort) {
      EXPECT_TRUE(aborted[i]);
      continue;
    }
    EXPECT_EQ(run.outcomes()[i].tokens, alone[i].tokens) << "request " << i;
    EXPECT_EQ(run.outcomes()[i].logits_hash, alone[i].logits_hash) << "request " << i;
  }
}

}  // namespace
}  // namespace minisgl
