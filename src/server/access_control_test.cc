#include "server/access_control.h"

#include <gtest/gtest.h>

#include <string>

#include "minisgl/error.h"

namespace minisgl {
namespace {

using Headers = CorsPolicy::Headers;

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(ApiKeysTest, AnyOfTheKeysOpensInEitherHeader) {
  const ApiKeys keys({"sk-one", "sk-second"});
  EXPECT_TRUE(keys.accepts("Bearer sk-one", ""));
  EXPECT_TRUE(keys.accepts("bearer   sk-second ", ""));
  EXPECT_TRUE(keys.accepts("", "sk-one"));
  EXPECT_TRUE(keys.accepts("Bearer wrong", "sk-one"));
}

TEST(ApiKeysTest, NothingElseDoes) {
  const ApiKeys keys({"sk-one", "sk-second"});
  for (const char* wrong :
       {"", "Bearer", "Bearer ", "sk-one", "Basic sk-one", "Bearer sk-on", "Bearer sk-onee",
        "Bearer sk-onesk-one", "Bearer SK-ONE", "Bearer sk-one sk-second", "Bearersk-one"})
    EXPECT_FALSE(keys.accepts(wrong, "")) << wrong;
  EXPECT_FALSE(keys.accepts("", "Bearer sk-one"));
}

TEST(ApiKeysTest, KeysGuardAllButMonitoring) {
  const ApiKeys keys({"k"});
  for (const char* open : {"/health", "/metrics", "/version"}) EXPECT_FALSE(keys.guards(open));
  for (const char* path :
       {"/v1/models", "/v1", "/generate", "/flush_cache", "/", "/health/", "/metrics/../v1/models"})
    EXPECT_TRUE(keys.guards(path)) << path;
  EXPECT_FALSE(ApiKeys({}).guards("/v1/models"));
}

TEST(ApiKeysTest, AnEmptyKeyWouldOpenToAllAndIsRefused) {
  EXPECT_EQ(error_of([] { ApiKeys({"a", ""}); }),
            "an API key is empty: leave --api-key out for none");
  EXPECT_NE(error_of([] { ApiKeys({" "}); }), "");
}

TEST(CorsPolicyTest, WithoutOriginsNothingIsSaid) {
  const CorsPolicy none({});
  EXPECT_EQ(none.headers("https://a.example"), Headers{});
  EXPECT_FALSE(none.preflight("OPTIONS", "https://a.example", "POST", ""));
}

TEST(CorsPolicyTest, OnlyListedOriginsAreNamed) {
  const CorsPolicy policy({"https://a.example", "http://localhost:3000"});
  const Headers named{{"Vary", "Origin"},
                      {"Access-Control-Allow-Origin", "http://localhost:3000"},
                      {"Access-Control-Expose-Headers", "X-Request-Id, Retry-After"}};
  EXPECT_EQ(policy.headers("http://localhost:3000"), named);
  const Headers not_named{{"Vary", "Origin"}};
  for (const char* origin : {"", "https://b.example", "https://a.example.b.example", "null"})
    EXPECT_EQ(policy.headers(origin), not_named) << origin;
}

TEST(CorsPolicyTest, AStarNamesNobody) {
  const CorsPolicy policy({"*"});
  EXPECT_EQ(policy.headers("https://x.example").front(),
            (std::pair<std::string, std::string>{"Access-Control-Allow-Origin", "*"}));
  EXPECT_EQ(policy.headers(""), Headers{}) << "not a request of a browser";
}

TEST(CorsPolicyTest, APreflightIsToldWhatItAskedFor) {
  const CorsPolicy policy({"https://a.example"});
  const auto headers =
      policy.preflight("OPTIONS", "https://a.example", "POST", "authorization,content-type");
  ASSERT_TRUE(headers);
  EXPECT_EQ(*headers, (Headers{{"Vary", "Origin"},
                               {"Access-Control-Allow-Origin", "https://a.example"},
                               {"Access-Control-Expose-Headers", "X-Request-Id, Retry-After"},
                               {"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
                               {"Access-Control-Allow-Headers", "authorization,content-type"},
                               {"Access-Control-Max-Age", "600"}}));
  EXPECT_EQ(policy.preflight("OPTIONS", "https://b.example", "POST", ""),
            (Headers{{"Vary", "Origin"}}));
  EXPECT_FALSE(policy.preflight("OPTIONS", "https://a.example", "", "")) << "asks for Allow only";
  EXPECT_FALSE(policy.preflight("POST", "https://a.example", "POST", ""));
}

TEST(CorsPolicyTest, WhatNoBrowserSendsIsRefused) {
  for (const char* bad : {"", "a.example", "https://", "https://a.example/", "https://a.example/x",
                          "https://a.example, https://b.example", "://x"})
    EXPECT_TRUE(error_of([&] {
                  CorsPolicy({bad});
                }).starts_with("--cors-origin \"" + std::string(bad) + "\" is not an origin"))
        << bad;
}

}  // namespace
}  // namespace minisgl
