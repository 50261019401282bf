#include "pull/source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "minisgl/error.h"

namespace minisgl::pull {
namespace {

using testing::HasSubstr;

const std::string kCommit(40, 'a');
const std::string kSha256(64, 'b');
const std::string kSha1(40, 'c');

std::string listing(const std::string& files) {
  return R"({"sha": ")" + kCommit + R"(", "siblings": [)" + files + "]}";
}

std::string error_of(const Source& source, const std::string& body) {
  try {
    source.parse_listing(body);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class SourceTest : public testing::Test {
 protected:
  SourceTest() {
    // The environment of the test's user must not count.
    for (const char* name : {"HF_ENDPOINT", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) unsetenv(name);
    setenv("HF_TOKEN_PATH", "/no/such/file", 1);
    hub_ = make_source("huggingface");
  }
  std::unique_ptr<Source> hub_;
};

TEST_F(SourceTest, AListingGivesSizesAndHashes) {
  const RemoteModel model = hub_->parse_listing(
      listing(R"({"rfilename": "config.json", "size": 12, "blobId": ")" + kSha1 +
              R"("}, {"rfilename": "x/m.safetensors", "size": 5, "blobId": ")" + kSha1 +
              R"(", "lfs": {"sha256": ")" + kSha256 + R"(", "size": 5000000000}})"));
  EXPECT_EQ(model.commit, kCommit);
  ASSERT_EQ(model.files.size(), 2U);
  EXPECT_EQ(model.files[0].path, "config.json");
  EXPECT_EQ(model.files[0].size, 12);
  EXPECT_EQ(model.files[0].kind, Hash::kGitBlob);
  EXPECT_EQ(model.files[0].hash, kSha1);
  EXPECT_EQ(model.files[1].size, 5'000'000'000);
  EXPECT_EQ(model.files[1].kind, Hash::kSha256);
  EXPECT_EQ(model.files[1].hash, kSha256);
}

TEST_F(SourceTest, PathsThatLeadOutOfTheRepositoryAreLeftOut) {
  for (const char* path : {"../x", "/x", "a/../../x", "a//x", "", ".", "a/.", "x\\u0000y", "x\\ny"})
    EXPECT_TRUE(hub_->parse_listing(listing(R"({"rfilename": ")" + std::string(path) +
                                            R"(", "size": 1, "blobId": ")" + kSha1 + R"("})"))
                    .files.empty())
        << path;
}

TEST_F(SourceTest, AListingThatIsNoneIsAnErrorOfOneLine) {
  EXPECT_THAT(error_of(*hub_, "<html>"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(*hub_, "[]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(error_of(*hub_, "{}"), HasSubstr("names no commit"));
  EXPECT_THAT(error_of(*hub_, R"({"sha": "../../x"})"), HasSubstr("names no commit"));
  EXPECT_THAT(error_of(*hub_, R"({"sha": ")" + kCommit + R"("})"), HasSubstr("lists no files"));
  EXPECT_THAT(error_of(*hub_, listing(R"({"rfilename": "a", "blobId": "x"})")),
              HasSubstr("gives no size of 'a'"));
  EXPECT_THAT(error_of(*hub_, listing(R"({"rfilename": "a", "size": -1})")),
              HasSubstr("gives no size of 'a'"));
  EXPECT_THAT(error_of(*hub_, listing(R"({"rfilename": "a", "size": 1, "blobId": "../b"})")),
              HasSubstr("gives no hash of 'a'"));
  const auto modelscope = make_source("modelscope");
  EXPECT_THAT(error_of(*modelscope, R"({"Data": [], "Message": "no\nsuch"})"),
              HasSubstr("lists no files: 'no\\x0asuch'"));
  EXPECT_THAT(error_of(*modelscope, R"({"Data": null})"), HasSubstr("lists no files"));
}

TEST_F(SourceTest, ATokenThatWouldBreakAHeaderIsRefused) {
  setenv("HF_TOKEN", "hf_x\r\nX-Evil: 1", 1);
  EXPECT_THROW(make_source("huggingface"), Error);
  setenv("HF_TOKEN", " hf_x \n", 1);
  EXPECT_EQ(make_source("huggingface")->token(), "hf_x");
  unsetenv("HF_TOKEN");
}

TEST_F(SourceTest, WaitsDoubleUpToAMinuteUnlessTheServerSaysHowLong) {
  using std::chrono::milliseconds;
  const milliseconds second(1000);
  HttpReply reply;
  EXPECT_EQ(wait_time(reply, 0, second), second);
  EXPECT_EQ(wait_time(reply, 3, second), 8 * second);
  EXPECT_EQ(wait_time(reply, 6, second), 60 * second);
  EXPECT_EQ(wait_time(reply, 1000, second), 60 * second);
  reply.headers["retry-after"] = "7";
  EXPECT_EQ(wait_time(reply, 0, second), 7 * second);
  reply.headers["retry-after"] = "86400";
  EXPECT_EQ(wait_time(reply, 0, second), 60 * second);
  reply.headers["retry-after"] = "Fri, 31 Dec 1999 23:59:59 GMT";
  EXPECT_EQ(wait_time(reply, 1, second), 2 * second);
}

TEST_F(SourceTest, OnlyWhatMayPassIsTriedAgain) {
  for (const int status : {0, 408, 429, 500, 502, 503, 504})
    EXPECT_TRUE(may_pass({.status = status, .headers = {}, .body = {}, .fault = {}})) << status;
  for (const int status : {200, 400, 401, 403, 404, 416})
    EXPECT_FALSE(may_pass({.status = status, .headers = {}, .body = {}, .fault = {}})) << status;
  EXPECT_TRUE(may_pass({.status = 200, .headers = {}, .body = {}, .fault = "cut"}));
}

}  // namespace
}  // namespace minisgl::pull
