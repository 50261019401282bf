#include "server/sse.h"

#include <gtest/gtest.h>

namespace minisgl {
namespace {

TEST(SseTest, EventIsOneDataLineAndAnEmptyLine) {
  EXPECT_EQ(sse_event(R"({"a":1})"), "data: {\"a\":1}\n\n");
  EXPECT_EQ(sse_event(""), "data: \n\n");
}

TEST(SseTest, AnEventMayHaveAName) {
  EXPECT_EQ(sse_event("{}", "ping"), "event: ping\ndata: {}\n\n");
}

TEST(SseTest, EveryKindOfLineEndStartsAnotherDataLine) {
  EXPECT_EQ(sse_event("a\nb\r\nc\rd\n"), "data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n");
}

}  // namespace
}  // namespace minisgl
