#include "server/access_log.h"

#include <gtest/gtest.h>

#include "server/json.h"

namespace minisgl {
namespace {

AccessRecord record() {
  return {.client = "10.0.0.7",
          .method = "POST",
          .path = "/v1/chat/completions",
          .request_id = "abc",
          .status = 200,
          .seconds = 1.5,
          .first_byte_seconds = 0.25,
          .generated = true,
          .stream = true,
          .prompt_tokens = 12,
          .cached_tokens = 8,
          .completion_tokens = 34};
}

std::string logged(const AccessRecord& r, log::Format format) {
  log::set_level(log::Level::kInfo);
  log::set_format(format);
  testing::internal::CaptureStderr();
  write_access_log(r);
  log::set_format(log::Format::kText);
  return testing::internal::GetCapturedStderr();
}

TEST(AccessLogTest, ALineOfTextSaysAll) {
  EXPECT_TRUE(logged(record(), log::Format::kText)
                  .ends_with("POST /v1/chat/completions 200 in 1.500 s, first after 0.250 s, "
                             "12 (8 cached) + 34 tokens, from 10.0.0.7, id abc\n"));
  AccessRecord small = record();
  small.generated = false;
  small.path = "/v1/models";
  EXPECT_TRUE(logged(small, log::Format::kText)
                  .ends_with("POST /v1/models 200 in 1.500 s, from 10.0.0.7, id abc\n"));
}

TEST(AccessLogTest, ALineOfJsonHasAField) {
  const Json line = Json::parse(logged(record(), log::Format::kJson));
  EXPECT_EQ(line["level"], "info");
  EXPECT_EQ(line["request_id"], "abc");
  EXPECT_EQ(line["client"], "10.0.0.7");
  EXPECT_EQ(line["method"], "POST");
  EXPECT_EQ(line["path"], "/v1/chat/completions");
  EXPECT_EQ(line["status"], 200);
  EXPECT_EQ(line["duration_seconds"], 1.5);
  EXPECT_EQ(line["first_byte_seconds"], 0.25);
  EXPECT_EQ(line["stream"], 1);
  EXPECT_EQ(line["prompt_tokens"], 12);
  EXPECT_EQ(line["cached_tokens"], 8);
  EXPECT_EQ(line["completion_tokens"], 34);
}

TEST(AccessLogTest, ProbesThatSucceedAreNotWorthALine) {
  AccessRecord probe = record();
  probe.path = "/health";
  EXPECT_EQ(logged(probe, log::Format::kText), "");
  probe.status = 503;
  EXPECT_NE(logged(probe, log::Format::kText), "");
}

TEST(AccessLogTest, QueriesAndLongPathsAreCutOff) {
  EXPECT_EQ(loggable_path("/v1/models?api_key=secret"), "/v1/models");
  EXPECT_EQ(loggable_path("/" + std::string(5000, 'a')), "/" + std::string(199, 'a') + "...");
}

TEST(RequestIdTest, HarmlessIdsAreKeptAndOthersReplaced) {
  EXPECT_EQ(request_id_or_new("req_1-2.3"), "req_1-2.3");
  EXPECT_EQ(request_id_or_new(std::string(128, 'x')), std::string(128, 'x'));
  for (const std::string& bad :
       {std::string(), std::string(129, 'x'), std::string("a b"), std::string("a\"b"),
        std::string("\xc3\xa4"), std::string("a\tb")}) {
    const std::string id = request_id_or_new(bad);
    EXPECT_EQ(id.size(), 32U) << bad;
    EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos);
  }
  EXPECT_NE(request_id_or_new(""), request_id_or_new(""));
}

}  // namespace
}  // namespace minisgl
