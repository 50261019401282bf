#include "server/answer.h"

#include <gtest/gtest.h>

#include "core/request_faults.h"
#include "server/api_fixture_for_test.h"
#include "server/generate/generate.h"
#include "server/openai/chat.h"
#include "server/openai/completion.h"

namespace minisgl {
namespace {

using openai::open_chat;
using openai::open_completion;
using testing_util::update;

const std::string kChat = R"({"messages":[{"role":"user","content":"hi"}])";

class AnswerTest : public testing_util::ApiFixture {};

TEST_F(AnswerTest, ChatIsOneObject) {
  Answer answer = this->answer(open_chat, kChat + "}");
  EXPECT_EQ(answer.add(0, update("Hel", 1)), "");
  EXPECT_FALSE(answer.finished());
  answer.add(0, update("lo", 2, FinishReason::kStop));
  ASSERT_TRUE(answer.finished());
  EXPECT_EQ(answer.whole().status, 200);
  EXPECT_EQ(answer.whole().body,
            R"({"id":"chatcmpl-1","object":"chat.completion","created":99,"model":"m",)"
            R"("choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},)"
            R"("logprobs":null,"finish_reason":"stop"}],)"
            R"("usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,)"
            R"("prompt_tokens_details":{"cached_tokens":3}}})");
}

TEST_F(AnswerTest, ChatStreamHasTheRoleFirstAndTheReasonOnce) {
  Answer answer = this->answer(open_chat, kChat + R"(,"stream":true})");
  const std::string head =
      R"(data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":99,"model":"m","choices":[{"index":0,"delta":)";
  EXPECT_EQ(answer.add(0, update("", 1)), "") << "text that is held back makes no chunk";
  EXPECT_EQ(answer.add(0, update("a\n", 2)),
            head + R"({"role":"assistant","content":"a\n"},"logprobs":null,"finish_reason":null}]})"
                   "\n\n");
  EXPECT_EQ(answer.add(0, update("b", 3)),
            head + R"({"content":"b"},"logprobs":null,"finish_reason":null}]})"
                   "\n\n");
  EXPECT_EQ(answer.add(0, update("", 4, FinishReason::kLength)),
            head + R"({},"logprobs":null,"finish_reason":"length"}]})"
                   "\n\ndata: [DONE]\n\n");
  EXPECT_TRUE(answer.finished());
  EXPECT_EQ(answer.add(0, update("late", 5)), "") << "nothing follows the end";
}

TEST_F(AnswerTest, StreamWithoutAnyTextStillHasRoleAndReason) {
  Answer answer = this->answer(open_chat, kChat + R"(,"stream":true})");
  const std::string events = answer.add(0, update("", 0, FinishReason::kLength));
  EXPECT_NE(events.find(R"("delta":{"role":"assistant","content":""})"), std::string::npos);
  EXPECT_NE(events.find(R"("finish_reason":"length")"), std::string::npos);
}

TEST_F(AnswerTest, UsageIsAnExtraChunkBeforeTheEnd) {
  Answer answer = this->answer(
      open_completion, R"({"prompt":"p","stream":true,"stream_options":{"include_usage":true}})");
  EXPECT_NE(answer.add(0, update("a", 1)).find(R"("usage":null)"), std::string::npos);
  const std::string events = answer.add(0, update("", 2, FinishReason::kStop));
  EXPECT_TRUE(events.ends_with(
      R"(data: {"id":"cmpl-1","object":"text_completion","created":99,"model":"m","choices":[],)"
      R"("usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,)"
      R"("prompt_tokens_details":{"cached_tokens":3}}})"
      "\n\ndata: [DONE]\n\n"))
      << events;
}

TEST_F(AnswerTest, ChoicesInterleaveAndOneDoneEndsAll) {
  Answer answer = this->answer(open_completion, R"({"prompt":["p","q"],"n":2,"stream":true})");
  std::string all;
  for (const std::size_t i : {3U, 0U, 2U, 1U}) {
    EXPECT_FALSE(answer.finished());
    all += answer.add(i, update("x", 1));
    all += answer.add(i, update("", 2, FinishReason::kStop));
  }
  std::size_t num_done = 0;
  for (std::size_t at = all.find("[DONE]"); at != std::string::npos;
       at = all.find("[DONE]", at + 1))
    ++num_done;
  EXPECT_EQ(num_done, 1U);
  EXPECT_TRUE(all.ends_with("data: [DONE]\n\n"));
  const Usage usage = answer.usage();
  EXPECT_EQ(usage.prompt_tokens, 14) << "each of two prompts once";
  EXPECT_EQ(usage.cached_tokens, 6);
  EXPECT_EQ(usage.completion_tokens, 8);
}

TEST_F(AnswerTest, ChoicesAreInOrderOfTheirIndex) {
  Answer answer = this->answer(open_completion, R"({"prompt":"p","n":2})");
  answer.add(1, update("second", 1, FinishReason::kStop));
  answer.add(0, update("first", 1, FinishReason::kLength));
  const Json body = Json::parse(answer.whole().body);
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["choices"][0]["text"], "first");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["choices"][1]["text"], "second");
  EXPECT_EQ(body["choices"][1]["index"], 1);
}

TEST_F(AnswerTest, FramesOfGenerateSurviveLineEndsInTheText) {
  Answer answer = this->answer(open_generate, R"({"prompt":"p"})");
  EXPECT_EQ(answer.add(0, update("a\n\nb", 1)), "data: {\"text\":\"a\\n\\nb\"}\n\n");
  EXPECT_EQ(answer.add(0, update("", 2, FinishReason::kStop)),
            "data: {\"text\":\"\",\"finish_reason\":\"stop\"}\n\ndata: [DONE]\n\n");
}

TEST_F(AnswerTest, EngineErrorsEndAStreamWithAnEventAndOthersWithAStatus) {
  GenerateUpdate broken = update("", 1, FinishReason::kError);
  broken.error = "out of luck";
  Answer stream = answer(open_chat, kChat + R"(,"stream":true})");
  EXPECT_EQ(
      stream.add(0, broken),
      R"(data: {"error":{"message":"out of luck","type":"server_error","param":null,"code":null}})"
      "\n\ndata: [DONE]\n\n");
  EXPECT_TRUE(stream.finished());
  Answer whole = answer(open_chat, kChat + R"(,"n":2})");
  EXPECT_EQ(whole.add(1, broken), "");
  EXPECT_TRUE(whole.finished()) << "one broken choice ends all";
  EXPECT_EQ(whole.whole().status, 500);
  GenerateUpdate stuck = update("", 1, FinishReason::kError);
  stuck.error = kNoTokenCanFollow;
  Answer impossible = answer(open_chat, kChat + "}");
  impossible.add(0, stuck);
  EXPECT_EQ(impossible.whole().status, 400) << "what the request asked for cannot be";
  EXPECT_NE(impossible.whole().body.find("invalid_request_error"), std::string::npos);
  Answer aborted = answer(open_chat, kChat + "}");
  aborted.add(0, update("", 1, FinishReason::kAbort));
  EXPECT_EQ(aborted.whole().status, 503);
}

}  // namespace
}  // namespace minisgl
