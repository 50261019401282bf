#include "server/server_metrics.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>
#include <string>

#include "minisgl/error.h"
#include "server/process_stats.h"
#include "server/server_fixture_for_test.h"

namespace minisgl {
namespace {

using std::chrono::milliseconds;
using namespace testing_util;

/// The value of the series that begins with `series`, -1 if there is none.
double value_of(const std::string& text, const std::string& series) {
  const std::size_t at = text.find("\n" + series);
  if (at == std::string::npos) return -1;
  const std::size_t space = text.find("} ", at);
  return std::stod(text.substr(space + 2));
}

GenerateUpdate update(int num_tokens, int completion_tokens, FinishReason finish) {
  GenerateUpdate u;
  u.tokens.assign(static_cast<std::size_t>(num_tokens), 5);
  u.finish = finish;
  u.prompt_tokens = 7;
  u.completion_tokens = completion_tokens;
  return u;
}

TEST(ServerMetricsTest, TimesOfAnAnswerFallIntoTheirBuckets) {
  FakeGenerator generator;
  ServerMetrics metrics(4096);
  const RequestTimer::Clock::time_point start{std::chrono::hours(1)};
  RequestTimer timer(metrics, start);
  timer.observe(update(1, 1, FinishReason::kNone), start + milliseconds(300));
  timer.observe(update(1, 2, FinishReason::kNone), start + milliseconds(360));  // 60 ms
  timer.observe(update(2, 4, FinishReason::kNone), start + milliseconds(560));  // 2 x 100 ms
  GenerateUpdate last = update(1, 5, FinishReason::kStop);
  last.times = {.arrival = start + milliseconds(10),
                .scheduled = start + milliseconds(350),
                .first_token = start + milliseconds(900),
                .last_token = start + milliseconds(2600)};
  timer.observe(last, start + milliseconds(2300));  // 1740 ms
  const std::string text = metrics.text("m:", "x", generator);
  const auto bucket = [&](const std::string& name, const std::string& bound) {
    return value_of(text,
                    "m:" + name + "_bucket{model_name=\"x\",engine=\"0\",le=\"" + bound + "\"}");
  };
  EXPECT_EQ(bucket("time_to_first_token_seconds", "0.25"), 0);
  EXPECT_EQ(bucket("time_to_first_token_seconds", "0.5"), 1);
  EXPECT_EQ(bucket("inter_token_latency_seconds", "0.05"), 0);
  EXPECT_EQ(bucket("inter_token_latency_seconds", "0.075"), 1);
  EXPECT_EQ(bucket("inter_token_latency_seconds", "0.15"), 3);
  EXPECT_EQ(bucket("inter_token_latency_seconds", "+Inf"), 4) << "gaps between five tokens";
  EXPECT_EQ(bucket("time_per_output_token_seconds", "+Inf"), 4);
  EXPECT_EQ(bucket("request_time_per_output_token_seconds", "0.4"), 0) << "2 s by 4 gaps";
  EXPECT_EQ(bucket("request_time_per_output_token_seconds", "0.5"), 1);
  EXPECT_EQ(bucket("e2e_request_latency_seconds", "2.0"), 0);
  EXPECT_EQ(bucket("e2e_request_latency_seconds", "2.5"), 1);
  EXPECT_EQ(bucket("request_queue_time_seconds", "0.3"), 0) << "340 ms";
  EXPECT_EQ(bucket("request_queue_time_seconds", "0.5"), 1);
  EXPECT_EQ(bucket("request_prefill_time_seconds", "0.5"), 0) << "550 ms";
  EXPECT_EQ(bucket("request_prefill_time_seconds", "0.8"), 1);
  EXPECT_EQ(bucket("request_inference_time_seconds", "2.0"), 0) << "2250 ms";
  EXPECT_EQ(bucket("request_inference_time_seconds", "2.5"), 1);
  EXPECT_EQ(bucket("request_decode_time_seconds", "1.5"), 0);
  EXPECT_EQ(bucket("request_decode_time_seconds", "2.0"), 1);
  EXPECT_EQ(bucket("request_prompt_tokens", "5.0"), 0);
  EXPECT_EQ(bucket("request_prompt_tokens", "10.0"), 1);
  EXPECT_EQ(bucket("request_generation_tokens", "2.0"), 0);
  EXPECT_EQ(bucket("request_generation_tokens", "5.0"), 1);
}

TEST(ServerMetricsTest, EveryEndIsCountedUnderItsReason) {
  FakeGenerator generator;
  ServerMetrics metrics(4096);
  const auto end = [&](FinishReason reason, int times) {
    for (int i = 0; i < times; ++i)
      RequestTimer(metrics, RequestTimer::Clock::now()).observe(update(0, 0, reason));
  };
  end(FinishReason::kStop, 1);
  end(FinishReason::kLength, 2);
  end(FinishReason::kAbort, 3);
  end(FinishReason::kError, 4);
  const std::string text = metrics.text("m:", "x", generator);
  const auto count = [&](const std::string& reason) {
    return value_of(
        text, "m:request_success_total{model_name=\"x\",engine=\"0\",finished_reason=\"" + reason +
                  "\"}");
  };
  EXPECT_EQ(count("stop"), 1);
  EXPECT_EQ(count("length"), 2);
  EXPECT_EQ(count("abort"), 3);
  EXPECT_EQ(count("error"), 4);
  EXPECT_EQ(value_of(text, "m:time_to_first_token_seconds_count"), 0) << "none had a token";
}

TEST(ServerMetricsTest, TheProcessKnowsItsOwnSize) {
  const ProcessStats before = process_stats();
  EXPECT_GT(before.resident_bytes, 1e6);
  EXPECT_GT(before.virtual_bytes, before.resident_bytes);
  const double now = static_cast<double>(std::time(nullptr));
  EXPECT_NEAR(before.start_time, now, 3600) << "this test began within the hour";
  EXPECT_LE(before.start_time, now + 2);
  const int fd = ::dup(0);
  EXPECT_EQ(process_stats().open_fds, before.open_fds + 1);
  ::close(fd);
  EXPECT_GE(before.max_fds, before.open_fds);
}

class MetricsRouteTest : public ServerFixture {};

TEST_F(MetricsRouteTest, ServesWhatClientsDid) {
  fake_.eos_after = 3;
  start();
  ask(Client::post("/v1/chat/completions", chat(100, true)));  // 3 tokens and the end token
  ask(Client::post("/v1/chat/completions", chat(2, false)));
  ask(Client::post("/v1/completions", R"({"prompt":"abc","n":3,"max_tokens":1})"));
  {
    Client leaves(server_->port());
    leaves.send(
        Client::post("/v1/chat/completions",
                     R"({"messages":[{"role":"user","content":"hi"}],"n":2,"stream":true})"));
    leaves.read_until("\n\n");  // it has begun
  }
  ASSERT_TRUE(generator_->wait_for_live(0));
  const Reply reply = ask(Client::get("/metrics"));
  EXPECT_EQ(reply.status, 200);
  EXPECT_TRUE(reply.has_header("Content-Type: text/plain; version=0.0.4; charset=utf-8"));
  const std::string labels = "{model_name=\"fake/model\",engine=\"0\"";
  const auto value = [&](const std::string& name, const std::string& more = "}") {
    return value_of(reply.body, "minisgl:" + name + labels + more);
  };
  EXPECT_EQ(value("request_success_total", ",finished_reason=\"length\"}"), 4);
  EXPECT_GE(value("request_success_total", ",finished_reason=\"stop\"}"), 1);
  EXPECT_GE(value("request_generation_tokens_sum"), 4 + 2 + 3);
  EXPECT_GE(value("inter_token_latency_seconds_count"), 3 + 1);
  EXPECT_EQ(value("num_requests_running"), 0);
}

TEST_F(MetricsRouteTest, ThePrefixIsTheOperatorsChoice) {
  options_.metrics_prefix = "vllm:";
  start();
  const std::string text = ask(Client::get("/metrics")).body;
  EXPECT_NE(text.find("\nvllm:num_requests_running{"), std::string::npos);
  EXPECT_EQ(text.find("minisgl:"), std::string::npos);
  EXPECT_NE(text.find("\nprocess_resident_memory_bytes "), std::string::npos)
      << "names that are the same for every program";
}

TEST_F(MetricsRouteTest, APrefixThatPrometheusDoesNotTakeIsRefused) {
  options_.metrics_prefix = "my-app_";
  try {
    start();
    FAIL() << "expected Error";
  } catch (const Error& e) {
    EXPECT_EQ(
        std::string(e.what()),
        "--metrics-prefix is \"my-app_\": a name has letters, digits, \"_\" and \":\", and no "
        "digit first");
  }
}

}  // namespace
}  // namespace minisgl
