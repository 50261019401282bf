#include "base/log.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace minisgl::log {
namespace {

constexpr std::int64_t kTime = 1'796'049'000'042;  // 2026-11-30 14:30:00.042 UTC

std::string written(std::string_view message, std::span<const Field> fields = {}) {
  testing::internal::CaptureStderr();
  write(Level::kError, message, fields);
  return testing::internal::GetCapturedStderr();
}

TEST(LogTest, AJsonLineHasTimeLevelMessageAndFields) {
  const Field fields[] = {
      {"path", std::string_view("/v1")}, {"status", std::int64_t{200}}, {"seconds", 0.25}};
  EXPECT_EQ(to_json(Level::kInfo, "GET /v1", fields, kTime),
            R"({"time":"2026-11-30T14:30:00.042Z","level":"info","message":"GET /v1",)"
            R"("path":"/v1","status":200,"seconds":0.25})");
}

TEST(LogTest, AJsonLineStaysJsonWhateverIsInIt) {
  const Field fields[] = {{"x", std::string_view("a\"b\\c\n\x01")},
                          {"y", std::numeric_limits<double>::quiet_NaN()}};
  EXPECT_EQ(
      to_json(Level::kWarning, "\xff", fields, kTime),
      "{\"time\":\"2026-11-30T14:30:00.042Z\",\"level\":\"warning\",\"message\":\"\xEF\xBF\xBD\","
      "\"x\":\"a\\\"b\\\\c\\u000a\\u0001\",\"y\":null}");
}

TEST(LogTest, ATextLineStaysOneLineAndSaysNothingToTheTerminal) {
  EXPECT_NE(written("a\x1b[2Jb\nc\xff")
                .find("a\xEF\xBF\xBD[2Jb\xEF\xBF\xBD"
                      "c\xEF\xBF\xBD\n"),
            std::string::npos);
}

TEST(LogTest, TheFormatIsChosenForAllLines) {
  const Field fields[] = {{"status", std::int64_t{200}}};
  EXPECT_EQ(written("message", fields).find("status"), std::string::npos);
  set_format(Format::kJson);
  const std::string line = written("message", fields);
  set_format(Format::kText);
  EXPECT_TRUE(line.starts_with("{\"time\":\"")) << line;
  EXPECT_TRUE(line.ends_with("\"level\":\"error\",\"message\":\"message\",\"status\":200}\n"))
      << line;
}

}  // namespace
}  // namespace minisgl::log
