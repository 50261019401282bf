#include "server/json.h"

#include <gtest/gtest.h>

#include "minisgl/error.h"

namespace minisgl {
namespace {

template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const RequestError& e) {
    return std::string(e.what()) + " [" + e.param() + "]";
  }
  return "no error";
}

TEST(JsonTest, BrokenBodiesSayWhere) {
  const auto error = [](std::string_view body) { return error_of([&] { parse_object(body); }); };
  EXPECT_NE(error(R"({"model":)").find("the body is not JSON: parse error at line 1, column 10"),
            std::string::npos)
      << error(R"({"model":)");
  EXPECT_NE(error("").find("unexpected end of input"), std::string::npos);
  EXPECT_NE(error("{\"prompt\":\"\xff\xfe\"}").find("invalid string: ill-formed UTF-8 byte"),
            std::string::npos);
  EXPECT_EQ(error("[]"), "the body must be a JSON object, not an array []");
  EXPECT_EQ(error("12"), "the body must be a JSON object, not 12 []");
  EXPECT_NE(error(R"({"a":1e999})").find("number overflow"), std::string::npos);
}

TEST(JsonTest, BodiesThatAreCostlyToWalkAreRefused) {
  const std::string deep = R"({"a":)" + std::string(200'000, '[') + std::string(200'000, ']') + "}";
  EXPECT_EQ(error_of([&] { parse_object(deep); }), "the body nests deeper than 100 levels []");
}

TEST(JsonTest, DumpNeverThrows) { EXPECT_EQ(dump("a\xff\n"), "\"a\xEF\xBF\xBD\\n\""); }

TEST(JsonTest, IntegersAreExactOrRefused) {
  EXPECT_EQ(as_integer(Json::parse("-3")), -3);
  EXPECT_EQ(as_integer(Json::parse("8.0")), 8);
  EXPECT_EQ(as_integer(Json::parse("9223372036854775807")), 9223372036854775807);
  for (const char* text : {"1.5", "9223372036854775808", "1e300", "true", "\"8\"", "null"})
    EXPECT_EQ(as_integer(Json::parse(text)), std::nullopt) << text;
}

TEST(JsonTest, FieldsNameWhatIsWrong) {
  const Json object = Json::parse(
      R"({"t":"hot","n":0,"b":"true","s":1,"big":1e300,"nothing":null,"o":[],"ok":0.5})");
  const Fields f(object);
  EXPECT_EQ(error_of([&] { f.number("t", 1, 0, 2); }),
            "t must be a number from 0 to 2, not \"hot\" [t]");
  EXPECT_EQ(error_of([&] { f.number("big", 1, 0, 2); }),
            "big must be a number from 0 to 2, not 1e+300 [big]");
  EXPECT_EQ(error_of([&] { f.integer("n", 1, 128); }),
            "n must be an integer from 1 to 128, not 0 [n]");
  EXPECT_EQ(error_of([&] { f.integer("ok"); }), "ok must be an integer, not 0.5 [ok]");
  EXPECT_EQ(error_of([&] { f.boolean("b", false); }), "b must be true or false, not \"true\" [b]");
  EXPECT_EQ(error_of([&] { f.string("s"); }), "s must be a string, not 1 [s]");
  EXPECT_EQ(error_of([&] { f.object("o"); }), "o must be an object, not an array [o]");
  EXPECT_EQ(f.number("nothing", 7, 0, 1), 7) << "null means the default";
  EXPECT_EQ(f.number("absent", 7, 0, 1), 7);
  EXPECT_EQ(f.number("ok", 7, 0, 1), 0.5);
}

TEST(JsonTest, LongValuesAreShortenedInMessagesAtACharacter) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "\u00e9";
  const std::string shown = describe(text);
  EXPECT_LT(shown.size(), 70U);
  EXPECT_TRUE(shown.ends_with("\u00e9..."));
}

}  // namespace
}  // namespace minisgl
