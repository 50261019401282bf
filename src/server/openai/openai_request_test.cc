// What the bodies of OpenAI's endpoints, and of /generate, come to.

#include <gtest/gtest.h>

#include "server/api_fixture_for_test.h"
#include "server/generate/generate.h"
#include "server/openai/chat.h"
#include "server/openai/completion.h"

namespace minisgl::openai {
namespace {

class OpenAiRequestTest : public testing_util::ApiFixture {
 protected:
  ApiRequest chat(const std::string& more) const {
    return open(open_chat, R"({"messages":[{"role":"user","content":"hi"}])" + more + "}").request;
  }
  ApiRequest completion(const std::string& more) const {
    return open(open_completion, R"({"prompt":"hi")" + more + "}").request;
  }
  std::string chat_error(const std::string& more) const {
    return error_of(open_chat, R"({"messages":[{"role":"user","content":"hi"}])" + more + "}");
  }
  std::string completion_error(const std::string& more) const {
    return error_of(open_completion, R"({"prompt":"hi")" + more + "}");
  }
  std::string prompt_error(const std::string& prompt) const {
    return error_of(open_completion, "{\"prompt\":" + prompt + "}");
  }
};

TEST_F(OpenAiRequestTest, AbsentAndNullFieldsTakeOpenAisDefaults) {
  for (const char* more : {"", R"(,"temperature":null,"top_p":null,"max_tokens":null,"n":null,
      "max_completion_tokens":null,"stop":null,"stream":null,"stream_options":null,"seed":null,
      "logprobs":null,"top_logprobs":null,"logit_bias":null,"response_format":null,"tools":null,
      "tool_choice":null,"presence_penalty":null,"chat_template_kwargs":null,"model":null)"}) {
    const ApiRequest r = chat(more);
    EXPECT_EQ(r.model, "m");
    EXPECT_EQ(r.param, "messages");
    EXPECT_FALSE(r.stream);
    EXPECT_FALSE(r.include_usage);
    EXPECT_EQ(r.num_choices(), 1U);
    EXPECT_EQ(r.sampling.temperature, 1.0);
    EXPECT_EQ(r.sampling.top_p, 1.0);
    EXPECT_EQ(r.sampling.top_k, -1);
    EXPECT_EQ(r.sampling.max_tokens, -1) << "a chat goes on to the end of the context";
    EXPECT_EQ(r.sampling.seed, std::nullopt);
    EXPECT_EQ(std::get<MarkedText>(r.prompts[0]).text, "user:hi\nassistant:");
  }
  EXPECT_EQ(completion("").sampling.max_tokens, 16);
  EXPECT_EQ(completion("").sampling.temperature, 1.0);
}

TEST_F(OpenAiRequestTest, GenerateHasUpstreamsDefaults) {
  const ApiRequest r =
      open(open_generate, R"({"prompt":"a","max_tokens":7,"ignore_eos":true})").request;
  EXPECT_TRUE(r.stream);
  EXPECT_EQ(r.sampling.temperature, 0.0);
  EXPECT_EQ(r.sampling.max_tokens, 7);
  EXPECT_TRUE(r.sampling.ignore_eos);
}

TEST_F(OpenAiRequestTest, WhatTheModelAdvisesIsTheDefaultAndTheRequestWins) {
  use({.sampling_defaults = {.temperature = 0.6, .top_k = 20}});
  const auto sampling = [&](Open read, const std::string& body) {
    return open(read, body).request.sampling;
  };
  SamplingParams s = sampling(open_completion, R"({"prompt":"hi","top_k":null})");
  EXPECT_EQ(s.temperature, 0.6);
  EXPECT_EQ(s.top_k, 20);
  EXPECT_EQ(s.top_p, 1.0);
  s = sampling(open_completion, R"({"prompt":"hi","temperature":0,"top_k":-1,"top_p":0.5})");
  EXPECT_EQ(s.temperature, 0.0);
  EXPECT_EQ(s.top_k, -1);
  EXPECT_EQ(s.top_p, 0.5);
  EXPECT_EQ(sampling(open_generate, R"({"prompt":"hi"})").temperature, 0.0)
      << "/generate has upstream's defaults";
}

TEST_F(OpenAiRequestTest, EverySamplingFieldArrives) {
  const SamplingParams s = chat(R"(,"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"seed":-1,
      "max_tokens":9,"stop":["a","b"],"stop_token_ids":[3,999],"ignore_eos":true)")
                               .sampling;
  EXPECT_EQ(s.temperature, 0.5);
  EXPECT_EQ(s.top_p, 0.9);
  EXPECT_EQ(s.top_k, 40);
  EXPECT_EQ(s.min_p, 0.1);
  EXPECT_EQ(s.seed, 0xffffffffffffffffU);
  EXPECT_EQ(s.max_tokens, 9);
  EXPECT_EQ(s.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(s.stop_token_ids, (std::vector<TokenId>{3, 999}));
  EXPECT_TRUE(s.ignore_eos);
  EXPECT_EQ(chat(R"(,"stop":"x")").sampling.stop, (std::vector<std::string>{"x"}));
}

TEST_F(OpenAiRequestTest, MaxCompletionTokensWinsOverItsOldName) {
  EXPECT_EQ(chat(R"(,"max_tokens":9,"max_completion_tokens":3)").sampling.max_tokens, 3);
  EXPECT_EQ(chat(R"(,"max_completion_tokens":3)").sampling.max_tokens, 3);
  EXPECT_EQ(chat(R"(,"max_tokens":0)").sampling.max_tokens, 0);
}

TEST_F(OpenAiRequestTest, BadValuesAreRefusedAndNamed) {
  EXPECT_EQ(chat_error(R"(,"max_tokens":"8")"),
            "400 max_tokens: max_tokens must be an integer of at least 0, not \"8\"");
  EXPECT_EQ(chat_error(R"(,"max_tokens":-1)"),
            "400 max_tokens: max_tokens must be an integer of at least 0, not -1");
  EXPECT_EQ(chat_error(R"(,"stream":"true")"),
            "400 stream: stream must be true or false, not \"true\"");
  EXPECT_EQ(chat_error(R"(,"temperature":-1)"),
            "400 temperature: temperature must be a number from 0 to 2, not -1");
  EXPECT_EQ(chat_error(R"(,"temperature":3)"),
            "400 temperature: temperature must be a number from 0 to 2, not 3");
  EXPECT_EQ(chat_error(R"(,"top_p":1.5)"),
            "400 top_p: top_p must be a number from 0 to 1, not 1.5");
  EXPECT_EQ(chat_error(R"(,"n":0)"), "400 n: n must be an integer from 1 to 128, not 0");
  EXPECT_EQ(chat_error(R"(,"stop":["a",""])"),
            "400 stop: stop must be a string or an array of strings that are not empty, not \"\"");
  EXPECT_EQ(chat_error(R"(,"stop":5)"),
            "400 stop: stop must be a string or an array of strings that are not empty, not 5");
  EXPECT_EQ(
      chat_error(
          R"(,"stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])"),
      "400 stop: stop has 17 strings, at most 16 are allowed");
  EXPECT_EQ(chat_error(R"(,"stop_token_ids":[1000])"),
            "400 stop_token_ids: stop_token_ids has 1000 where the model's token ids are integers "
            "from 0 to 999");
}

TEST_F(OpenAiRequestTest, WhatIsNotSupportedIsRefusedAndNamedButItsNeutralValuePasses) {
  const std::pair<const char*, const char*> refused[] = {{"suffix", "\"x\""},
                                                         {"functions", R"([{"name":"f"}])"},
                                                         {"audio", "{}"},
                                                         {"use_beam_search", "true"},
                                                         {"allowed_token_ids", "[5]"},
                                                         {"prompt_logprobs", "1"},
                                                         {"function_call", "\"always\""}};
  for (const auto& [field, value] : refused) {
    const std::string error = completion_error(std::string(",\"") + field + "\":" + value);
    EXPECT_TRUE(error.starts_with(std::string("400 ") + field + ": ")) << error;
    EXPECT_TRUE(error.ends_with("is not supported here; leave it out")) << error;
  }
  EXPECT_TRUE(chat_error(R"(,"echo":true)").starts_with("400 echo: "));
  EXPECT_EQ(chat_error(R"(,"logprobs":false,"logit_bias":{},"presence_penalty":0,
      "frequency_penalty":0.0,"repetition_penalty":1.0,"response_format":{"type":"text"},
      "tool_choice":"auto","echo":false,"best_of":1,"suffix":"","functions":[],
      "user":"u","unknown_field":{"a":1})"),
            "no error");
}

TEST_F(OpenAiRequestTest, PenaltiesBiasesAndLengthsArrive) {
  const SamplingParams s = completion(R"(,"presence_penalty":0.5,"frequency_penalty":-2,
      "repetition_penalty":1.25,"logit_bias":{"5":-100,"999":2.5},"min_tokens":3,
      "include_stop_str_in_output":true,"skip_special_tokens":false)")
                               .sampling;
  EXPECT_EQ(s.presence_penalty, 0.5);
  EXPECT_EQ(s.frequency_penalty, -2.0);
  EXPECT_EQ(s.repetition_penalty, 1.25);
  EXPECT_EQ(s.logit_bias, (std::vector<LogitBias>{{5, -100}, {999, 2.5}}));
  EXPECT_EQ(s.min_tokens, 3);
  EXPECT_TRUE(s.include_stop_str_in_output);
  EXPECT_FALSE(s.skip_special_tokens);
  EXPECT_TRUE(chat(R"(,"no_stop_trim":true)").sampling.include_stop_str_in_output);
}

TEST_F(OpenAiRequestTest, BadPenaltiesAndBiasesAreRefusedAndNamed) {
  EXPECT_EQ(chat_error(R"(,"presence_penalty":3)"),
            "400 presence_penalty: presence_penalty must be a number from -2 to 2, not 3");
  EXPECT_EQ(chat_error(R"(,"repetition_penalty":0)"),
            "400 repetition_penalty: repetition_penalty must be greater than 0");
  EXPECT_EQ(chat_error(R"(,"logit_bias":{"1000":1})"),
            "400 logit_bias: logit_bias has the key \"1000\" where the model's token ids are "
            "integers from 0 to 999");
  EXPECT_EQ(chat_error(R"(,"logit_bias":{"5":101})"),
            "400 logit_bias: logit_bias must be numbers from -100 to 100, not 101");
  EXPECT_EQ(chat_error(R"(,"min_tokens":-1)"),
            "400 min_tokens: min_tokens must be an integer of at least 0, not -1");
}

TEST_F(OpenAiRequestTest, ConstraintsHaveManyNames) {
  using Kind = ResponseFormat::Kind;
  const std::tuple<const char*, Kind, const char*> cases[] = {
      {R"("response_format":{"type":"json_object"})", Kind::kJsonObject, ""},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":{"a":1}}})",
       Kind::kJsonSchema, "{\"a\":1}"},
      {R"("guided_json":"{\"a\": 1}")", Kind::kJsonSchema, "{\"a\": 1}"},
      {R"("guided_choice":["a","b"])", Kind::kChoice, "[\"a\",\"b\"]"},
      {R"("regex":"a+")", Kind::kRegex, "a+"},
      {R"("ebnf":"root ::= \"a\"")", Kind::kGrammar, "root ::= \"a\""},
      {R"("structured_outputs":{"regex":"b"})", Kind::kRegex, "b"},
      {R"("structured_outputs":{"json_object":true})", Kind::kJsonObject, ""},
  };
  for (const auto& [field, kind, text] : cases) {
    const ResponseFormat format = completion(std::string(",") + field).sampling.response_format;
    EXPECT_EQ(format.kind, kind) << field;
    EXPECT_EQ(format.text, text) << field;
  }
  EXPECT_EQ(completion_error(R"(,"regex":"a","guided_choice":["b"])"),
            "400 regex: guided_choice and regex are two constraints of one answer; give one of "
            "them");
  EXPECT_EQ(completion_error(R"(,"guided_choice":[5])"),
            "400 guided_choice: guided_choice must be an array of strings that is not empty, not "
            "5");
  EXPECT_TRUE(
      completion_error(R"(,"response_format":{"type":"xml"})").starts_with("400 response_format"));
}

TEST_F(OpenAiRequestTest, AnotherModelIsNotFoundUnlessAnyIsAccepted) {
  EXPECT_EQ(chat_error(R"(,"model":"no-such")"),
            "404 model: the model \"no-such\" is not served here; this server has \"m\"");
  EXPECT_TRUE(chat_error(R"(,"model":"")").starts_with("404 model"));
  EXPECT_EQ(chat(R"(,"model":"m")").model, "m");
  rules_.aliases = {"n", "o"};
  EXPECT_EQ(chat(R"(,"model":"o")").model, "m") << "the reply names the first";
  EXPECT_EQ(chat_error(R"(,"model":"no-such")"),
            "404 model: the model \"no-such\" is not served here; this server has \"m\", \"n\", "
            "\"o\"");
  rules_.accept_any_model = true;
  EXPECT_EQ(chat(R"(,"model":"no-such")").model, "m") << "the reply names what really answered";
}

TEST_F(OpenAiRequestTest, FourFormsOfPrompts) {
  const auto prompts = [&](const std::string& prompt) {
    return open(open_completion, "{\"prompt\":" + prompt + "}").request.prompts;
  };
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(std::get<std::string>(prompts("\"a\"").at(0)), "a");
  EXPECT_EQ(prompts(R"(["a","b"])").size(), 2U);
  EXPECT_EQ(std::get<std::string>(prompts(R"(["a","b"])").at(1)), "b");
  EXPECT_EQ(std::get<Ids>(prompts("[5,6.0]").at(0)), (Ids{5, 6}));
  EXPECT_EQ(std::get<Ids>(prompts("[[5],[6,999]]").at(1)), (Ids{6, 999}));
}

TEST_F(OpenAiRequestTest, TokenIdsOutsideTheVocabularyAreRefused) {
  for (const char* id :
       {"1000", "-1", "4294967297", "1.5", "18446744073709551615", "\"5\"", "true"}) {
    const std::string expected = std::string("400 prompt: prompt has ") + id +
                                 " where the model's token ids are integers from 0 to 999";
    EXPECT_EQ(prompt_error(std::string("[1,") + id + "]"), expected);
  }
  EXPECT_EQ(prompt_error("[999]"), "no error");
}

TEST_F(OpenAiRequestTest, EmptyAndMisshapenPromptsAreRefused) {
  for (const char* prompt : {"[]", "[[]]", "[[1],[]]", "5", "{}", "null"})
    EXPECT_TRUE(prompt_error(prompt).starts_with("400 prompt: prompt ")) << prompt;
  EXPECT_NE(prompt_error("[[]]").find("found an array without token ids"), std::string::npos);
}

TEST_F(OpenAiRequestTest, ChatsTakeARawPromptInPlaceOfMessages) {
  const ApiRequest r = open(open_chat, R"({"prompt":"raw"})").request;
  EXPECT_EQ(std::get<std::string>(r.prompts.at(0)), "raw");
  EXPECT_EQ(r.param, "prompt");
  EXPECT_EQ(error_of(open_chat, "{}"), "400 messages: messages is missing");
}

TEST_F(OpenAiRequestTest, TemplateVariablesAndToolsReachTheTemplate) {
  const auto text = [&](const char* more) {
    return std::get<MarkedText>(chat(more).prompts[0]).text;
  };
  EXPECT_EQ(text(R"(,"chat_template_kwargs":{"enable_thinking":false},"documents":[{"text":"d"}],
                 "tools":[{"function":{"name":"f"},"b":1,"a":2}],"add_generation_prompt":false)"),
            "user:hi\ntools:[{\"function\":{\"name\":\"f\"},\"b\":1,\"a\":2}]\n"
            "kwargs:{\"enable_thinking\":false,\"documents\":[{\"text\":\"d\"}]}\n");
  EXPECT_EQ(text(R"(,"tools":[{"function":{"name":"f"}}],"tool_choice":"none")"),
            "user:hi\nassistant:");
}

TEST_F(OpenAiRequestTest, UsageOfAStreamIsAskedForInStreamOptions) {
  EXPECT_TRUE(chat(R"(,"stream":true,"stream_options":{"include_usage":true})").include_usage);
  EXPECT_FALSE(chat(R"(,"stream":true,"stream_options":{"include_usage":false})").include_usage);
  EXPECT_FALSE(chat(R"(,"stream":true,"stream_options":{})").include_usage);
  EXPECT_EQ(chat_error(R"(,"stream_options":{"include_usage":true})"),
            "400 stream_options: stream_options is allowed only together with \"stream\": true");
}

TEST_F(OpenAiRequestTest, RepetitionsOfAPromptCountTheirSeedUp) {
  const ApiRequest r = open(open_completion, R"({"prompt":["a","b"],"n":3,"seed":11})").request;
  ASSERT_EQ(r.num_choices(), 6U);
  const auto request = r.generate_request(4);  // prompt 1, repetition 1
  EXPECT_EQ(std::get<std::string>(request.prompt), "b");
  EXPECT_EQ(request.sampling.seed, 12U);
  EXPECT_EQ(r.generate_request(3).sampling.seed, 11U);
  EXPECT_EQ(completion_error(R"(,"n":129)"), "400 n: n must be an integer from 1 to 128, not 129");
  EXPECT_EQ(error_of(open_completion, R"({"prompt":["a","b"],"n":65})"),
            "400 prompt: 2 prompts with n = 65 are 130 answers; one request may ask for 128");
}

}  // namespace
}  // namespace minisgl::openai
