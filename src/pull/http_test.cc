#include "pull/http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "minisgl/error.h"

namespace minisgl::pull {
namespace {

// What requests do over a connection is tested by tests/test_pull.py against a server.

TEST(HttpTest, AnOriginIsSchemeHostAndPort) {
  EXPECT_TRUE(same_origin("https://huggingface.co/a", "https://HuggingFace.co:443/b?c"));
  EXPECT_FALSE(same_origin("https://huggingface.co/a", "http://huggingface.co/a"));
  EXPECT_FALSE(same_origin("https://huggingface.co/a", "https://cdn.huggingface.co/a"));
  EXPECT_FALSE(same_origin("http://127.0.0.1:1/a", "http://127.0.0.1:2/a"));
  EXPECT_FALSE(same_origin("https://huggingface.co/", "https://huggingface.co@evil.org/"));
}

TEST(HttpTest, ARedirectMayBeRelative) {
  EXPECT_EQ(resolve_url("https://h/a/b?c", "d"), "https://h/a/d");
  EXPECT_EQ(resolve_url("https://h:8/a/b", "/d"), "https://h:8/d");
  EXPECT_EQ(resolve_url("https://h/a", "https://other/x?y"), "https://other/x?y");
  EXPECT_THROW(resolve_url("https://h/a", ""), Error);
  EXPECT_THROW(resolve_url("no address", "x"), Error);
}

TEST(HttpTest, PartsOfAnAddressAreEncoded) {
  EXPECT_EQ(encode_url("a b/c+d%\xC3\xA9~-._", /*keep_slashes=*/true), "a%20b/c%2Bd%25%C3%A9~-._");
  EXPECT_EQ(encode_url("refs/pr/1", /*keep_slashes=*/false), "refs%2Fpr%2F1");
}

}  // namespace
}  // namespace minisgl::pull
