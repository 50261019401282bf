#include "core/request.h"

#include <gtest/gtest.h>

namespace minisgl {
namespace {

// Ledger of a prompt of 5 tokens and 3 of an answer, as steps are launched: (extend_len,
// device_len) are the numbers of queries and of keys.
TEST(RequestTest, ThreeLengthsDescribeChunksPrefillAndDecode) {
  Request request;
  request.prompt_len = 5;
  request.max_device_len = 8;
  request.device_len = 2;  // a first chunk of 2
  EXPECT_EQ(request.extend_len(), 2);
  request.complete_step();
  EXPECT_EQ(request.cached_len, 2);
  EXPECT_EQ(request.extend_len(), 3) << "the rest of the prompt is next";
  request.complete_step();
  EXPECT_EQ(request.cached_len, 5);
  EXPECT_EQ(request.extend_len(), 1) << "then the first token of the answer";
  EXPECT_EQ(request.remain_len(), 2);
  EXPECT_TRUE(request.can_decode());
  request.complete_step();
  request.complete_step();
  EXPECT_EQ(request.device_len, 8);
  EXPECT_FALSE(request.can_decode()) << "three tokens were drawn";
}

}  // namespace
}  // namespace minisgl
