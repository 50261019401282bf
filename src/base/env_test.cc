#include "base/env.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "minisgl/error.h"

namespace minisgl {
namespace {

constexpr const char* kName = "MINISGL_ENV_TEST";

TEST(EnvTest, UnsetAndEmptyGiveTheDefault) {
  unsetenv(kName);
  EXPECT_EQ(env_int(kName, 5), 5);
  setenv(kName, "", 1);
  EXPECT_EQ(env_double(kName, 0.5), 0.5);
  EXPECT_TRUE(env_bool(kName, true));
}

TEST(EnvTest, ValuesParse) {
  setenv(kName, "-3", 1);
  EXPECT_EQ(env_int(kName, 5), -3);
  setenv(kName, "0.25", 1);
  EXPECT_EQ(env_double(kName, 1), 0.25);
  setenv(kName, "YES", 1);
  EXPECT_TRUE(env_bool(kName, false));
  setenv(kName, "off", 1);
  EXPECT_FALSE(env_bool(kName, true));
}

TEST(EnvTest, AValueThatDoesNotParseIsNamed) {
  setenv(kName, "7x", 1);
  try {
    env_int(kName, 5);
    FAIL() << "expected Error";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "the environment variable MINISGL_ENV_TEST is \"7x\", which is not an integer");
  }
}

}  // namespace
}  // namespace minisgl
