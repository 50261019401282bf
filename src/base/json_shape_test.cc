#include "base/json_shape.h"

#include <gtest/gtest.h>

#include "minisgl/error.h"

namespace minisgl {
namespace {

std::string error_of(const std::string& text) {
  try {
    check_json_shape(text, "the body");
  } catch (const RequestError& e) {
    return e.what();
  }
  return "no error";
}

std::string object_of(int num_keys) {
  std::string text = "{";
  for (int i = 0; i < num_keys; ++i) text += "\"k" + std::to_string(i) + "\":0,";
  text.back() = '}';
  return text;
}

TEST(JsonShapeTest, DeepValuesAreRefused) {
  EXPECT_EQ(error_of(std::string(100, '[') + std::string(100, ']')), "no error");
  EXPECT_EQ(error_of(std::string(101, '[') + std::string(101, ']')),
            "the body nests deeper than 100 levels");
  EXPECT_EQ(error_of(R"({"a":)" + std::string(200'000, '{')),
            "the body nests deeper than 100 levels");
}

TEST(JsonShapeTest, WideObjectsAreRefusedButNotManyOfThem) {
  EXPECT_EQ(error_of(object_of(512)), "no error");
  EXPECT_EQ(error_of(object_of(513)), "an object in the body has more than 512 keys");
  EXPECT_EQ(error_of("[" + object_of(400) + "," + object_of(400) + "]"), "no error");
  EXPECT_EQ(error_of(R"({"a":)" + object_of(300) + R"(,"b":)" + object_of(513) + "}"),
            "an object in the body has more than 512 keys");
}

TEST(JsonShapeTest, BracketsAndColonsInsideStringsDoNotCount) {
  EXPECT_EQ(error_of("{\"a\":\"" + std::string(1000, '[') + std::string(1000, ':') + R"(\"{"})"),
            "no error");
}

TEST(JsonShapeTest, WhatIsNotJsonIsLeftToTheParser) {
  EXPECT_EQ(error_of("]]]" + std::string(500, '[')), "no error");
  EXPECT_EQ(error_of("\"\\"), "no error");
  EXPECT_EQ(error_of(""), "no error");
}

}  // namespace
}  // namespace minisgl
