// What a request's answer says, with a tiny model behind it.

#include "llm/local_generator.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <variant>

#include "llm/generate_all.h"
#include "testing/tiny_model.h"

namespace minisgl {
namespace {

const std::string kPrompt = "The quick brown fox jumps over the lazy dog";

class LocalGeneratorTest : public testing::Test {
 protected:
  static LocalGenerator& generator() {
    static LocalGenerator instance({.model = testing_util::tiny_model("llama").string(),
                                    .num_threads = 2,
                                    .num_pages = 4096,
                                    .max_prefill_length = 8});
    return instance;
  }
  static const Tokenizer& tokenizer() { return generator().tokenizer(); }

  static Completion complete(SamplingParams sampling, std::string prompt = kPrompt) {
    std::vector<GenerateRequest> requests;
    requests.push_back({.prompt = std::move(prompt), .sampling = std::move(sampling)});
    return generate_all(generator(), std::move(requests), {}).at(0);
  }

  /// Ids and their texts of a greedy answer.
  static SamplingParams greedy(std::int64_t tokens) {
    return {.max_tokens = tokens, .ignore_eos = true};
  }
};

TEST_F(LocalGeneratorTest, LogProbabilitiesComeWithTheTokensBytesAndTheirSum) {
  SamplingParams sampling = greedy(12);
  sampling.num_logprobs = 4;
  const Completion c = complete(sampling);
  ASSERT_EQ(c.error, "");
  ASSERT_EQ(c.logprobs.size(), c.token_ids.size());
  double sum = 0;
  for (std::size_t i = 0; i < c.logprobs.size(); ++i) {
    const TextLogprobs& position = c.logprobs[i];
    EXPECT_EQ(position.chosen.token, c.token_ids[i]);
    EXPECT_EQ(position.chosen.bytes, tokenizer().token_bytes(c.token_ids[i]));
    EXPECT_LT(position.chosen.logprob, 0);
    ASSERT_EQ(position.top.size(), 4U);
    EXPECT_EQ(position.top[0].token, position.chosen.token) << "greedy";
    EXPECT_EQ(position.top[0].logprob, position.chosen.logprob);
    for (std::size_t k = 1; k < 4; ++k) {
      EXPECT_LE(position.top[k].logprob, position.top[k - 1].logprob);
      EXPECT_EQ(position.top[k].bytes, tokenizer().token_bytes(position.top[k].token));
    }
    sum += position.chosen.logprob;
  }
  EXPECT_NEAR(c.cumulative_logprob, sum, 1e-9);
  EXPECT_TRUE(c.prompt_logprobs.empty());
}

TEST_F(LocalGeneratorTest, WhoAsksForNoLogProbabilitiesGetsNone) {
  const Completion c = complete(greedy(4));
  EXPECT_TRUE(c.logprobs.empty());
  EXPECT_EQ(c.cumulative_logprob, 0);
}

TEST_F(LocalGeneratorTest, APromptIsScoredFromItsSecondTokenOnAlsoWithoutAnAnswer) {
  const std::vector<TokenId> ids = tokenizer().encode(kPrompt, {.add_special = true});
  ASSERT_GT(ids.size(), 8U) << "more than one chunk";
  const std::vector<double> expected =
      open_engine({.model = testing_util::tiny_model("llama"), .num_threads = 1, .num_pages = 4096})
          ->token_logprobs(ids);
  for (const std::int64_t tokens : {0, 2}) {
    SamplingParams sampling = greedy(tokens);
    sampling.prompt_logprobs = 1;
    const Completion c = complete(sampling);
    ASSERT_EQ(c.error, "");
    EXPECT_EQ(c.finish_reason, "length");
    EXPECT_EQ(c.completion_tokens, tokens);
    EXPECT_EQ(c.cached_tokens, 0);
    ASSERT_EQ(c.prompt_logprobs.size(), ids.size());
    EXPECT_FALSE(c.prompt_logprobs[0].has_value());
    for (std::size_t i = 1; i < ids.size(); ++i) {
      ASSERT_TRUE(c.prompt_logprobs[i].has_value());
      EXPECT_EQ(c.prompt_logprobs[i]->chosen.token, ids[i]);
      EXPECT_NEAR(c.prompt_logprobs[i]->chosen.logprob, expected[i - 1], 1e-4);
      EXPECT_EQ(c.prompt_logprobs[i]->top.size(), 1U);
    }
  }
}

TEST_F(LocalGeneratorTest, AnAnswerSaysWhichStopEndedIt) {
  const Completion free = complete(greedy(16));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(free.stop_reason));
  EXPECT_EQ(free.finish_reason, "length");
  ASSERT_GT(free.text.size(), 6U);
  const std::string stop = free.text.substr(free.text.size() - 4, 3);
  const std::size_t at = free.text.find(stop);

  SamplingParams sampling = greedy(16);
  sampling.stop = {"never there", stop};
  const Completion stopped = complete(sampling);
  EXPECT_EQ(stopped.finish_reason, "stop");
  EXPECT_EQ(stopped.text, free.text.substr(0, at));
  EXPECT_EQ(std::get<std::string>(stopped.stop_reason), stop);

  sampling.include_stop_str_in_output = true;
  const Completion whole = complete(sampling);
  EXPECT_EQ(whole.text, free.text.substr(0, at + stop.size()));
  EXPECT_EQ(std::get<std::string>(whole.stop_reason), stop);

  SamplingParams by_token = greedy(16);
  by_token.stop_token_ids = {free.token_ids.at(3)};
  const Completion ended = complete(by_token);
  EXPECT_EQ(ended.finish_reason, "stop");
  EXPECT_EQ(std::get<std::int32_t>(ended.stop_reason), free.token_ids.at(3));
  EXPECT_EQ(ended.token_ids.back(), free.token_ids.at(3));
}

TEST_F(LocalGeneratorTest, NoStopTextIsLookedForInTheFirstTokens) {
  const Completion free = complete(greedy(16));
  SamplingParams sampling = greedy(16);
  sampling.stop = {free.text.substr(0, 1)};
  EXPECT_EQ(complete(sampling).text, "");
  sampling.min_tokens = 16;
  const Completion c = complete(sampling);
  EXPECT_EQ(c.text, free.text);
  EXPECT_EQ(c.finish_reason, "length");
}

TEST_F(LocalGeneratorTest, ABiasOfAHundredForcesATokenAndSpecialOnesShowOnRequest) {
  const std::string special = tokenizer().bos_token();
  const std::optional<TokenId> id = tokenizer().token_to_id(special);
  ASSERT_TRUE(id && tokenizer().is_special(*id));
  SamplingParams sampling = greedy(3);
  sampling.logit_bias = {{*id, 100}};
  const Completion hidden = complete(sampling);
  EXPECT_EQ(hidden.token_ids, (std::vector<TokenId>{*id, *id, *id}));
  EXPECT_EQ(hidden.text, "");
  sampling.skip_special_tokens = false;
  EXPECT_EQ(complete(sampling).text, special + special + special);
}

TEST_F(LocalGeneratorTest, TimesFollowOneAnother) {
  RequestTimes times;
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;
  generator().submit({.prompt = kPrompt, .sampling = greedy(5)}, [&](const GenerateUpdate& update) {
    if (update.finish == FinishReason::kNone) return;
    const std::lock_guard lock(mutex);
    times = update.times;
    done = true;
    ended.notify_all();
  });
  std::unique_lock lock(mutex);
  ended.wait(lock, [&] { return done; });
  EXPECT_GT(times.arrival, RequestTimes::Time{});
  EXPECT_LE(times.arrival, times.scheduled);
  EXPECT_LE(times.scheduled, times.first_token);
  EXPECT_LT(times.first_token, times.last_token);
}

TEST_F(LocalGeneratorTest, ValuesOutOfTheirRangeAreRefusedByName) {
  SamplingParams sampling = greedy(3);
  sampling.logit_bias = {{generator().vocab_size(), 1}};
  EXPECT_EQ(complete(sampling).error,
            "logit_bias names token 640; the vocabulary has ids from 0 to 639");
  sampling = greedy(3);
  sampling.min_tokens = 4;
  EXPECT_EQ(complete(sampling).error, "min_tokens is 4; it must be between 0 and max_tokens, 3");
}

}  // namespace
}  // namespace minisgl
