#include "grammar/schema.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "minisgl/error.h"

namespace minisgl {
namespace {

using Json = nlohmann::ordered_json;

std::string no_error(const std::string& /*pattern*/) { return ""; }

Json enforceable(const char* schema) { return enforceable_schema(Json::parse(schema), no_error); }

std::string refusal(const char* schema, const PatternCheck& check = no_error) {
  try {
    enforceable_schema(Json::parse(schema), check);
  } catch (const RequestError& e) {
    EXPECT_EQ(e.param(), "response_format");
    EXPECT_EQ(e.code(), "unsupported_schema");
    const std::string start = "response_format: JSON schema: ";
    EXPECT_TRUE(std::string(e.what()).starts_with(start)) << e.what();
    return std::string(e.what()).substr(start.size());
  }
  return "accepted";
}

TEST(SchemaTest, WhatIsNotEnforcedIsRefusedWithItsPlace) {
  EXPECT_EQ(refusal(R"({"type":"object","properties":{"a/b":{"items":{"not":{}}}}})"),
            "\"not\" at #/properties/a~1b/items is not enforced");
  EXPECT_EQ(refusal(R"({"if":{},"then":{}})"), "\"if\" at # is not enforced");
  EXPECT_EQ(refusal(R"({"then":{}})"), "\"then\" at # is not enforced");
  EXPECT_EQ(refusal(R"({"type":"array","uniqueItems":true})"),
            "\"uniqueItems\" at # is not enforced");
  EXPECT_EQ(refusal(R"({"contains":{}})"), "\"contains\" at # is not enforced");
  EXPECT_EQ(refusal(R"({"type":"object","dependentRequired":{}})"),
            "\"dependentRequired\" at # is not enforced");
  EXPECT_EQ(refusal(R"({"$defs":{"x":{"minContains":1}},"$ref":"#/$defs/x"})"),
            "\"minContains\" at #/$defs/x is not enforced");
  EXPECT_EQ(refusal(R"({"anyOf":[{},{"type":"number","multipleOf":2}]})"),
            "\"multipleOf\" at #/anyOf/1 is only enforced of \"type\": \"integer\"");
  EXPECT_EQ(
      refusal(R"({"type":"integer","multipleOf":3,"minimum":0})"),
      "\"multipleOf\" at # is only enforced without bounds, or with two that are at most 10000 "
      "apart");
  EXPECT_EQ(refusal(R"({"type":"integer","multipleOf":0.5})"),
            "\"multipleOf\" at # is 0.5; of integers, 1 to 1024 is enforced");
  EXPECT_EQ(
      refusal(R"({"type":"string","format":"regex"})"),
      "\"format\" \"regex\" at # is not enforced; known are date, date-time, duration, email, "
      "hostname, ipv4, ipv6, time, uri, uuid");
  EXPECT_EQ(refusal(R"({"type":"string","pattern":"a","maxLength":3})"),
            "\"maxLength\" beside \"pattern\" at # is not enforced");
  EXPECT_EQ(refusal(R"({"type":"string","format":"date","minLength":3})"),
            "\"minLength\" beside \"format\" at # is not enforced");
  EXPECT_EQ(refusal(R"({"allOf":[{},{}]})"), "\"allOf\" at # has 2 schemas; only one is enforced");
  EXPECT_EQ(refusal(R"({"$ref":"#/$defs/x","$defs":{"x":{}},"maxLength":3})"),
            "\"maxLength\" beside \"$ref\" at # is not enforced");
  EXPECT_EQ(refusal(R"({"type":"string","anyOf":[{}]})"),
            "\"type\" beside \"anyOf\" at # is not enforced");
  EXPECT_EQ(refusal(R"({"enum":[1],"minimum":0})"),
            "\"minimum\" beside \"enum\" at # is not enforced");
  EXPECT_EQ(
      refusal(R"({"required":["b"],"properties":{"a":{}}})"),
      "\"required\" at # names \"b\", which is not among \"properties\"; that is not enforced");
  EXPECT_EQ(refusal(R"({"properties":{"a":{}},"patternProperties":{"b":{}}})"),
            "\"patternProperties\" at # is not enforced beside other properties");
  EXPECT_EQ(
      refusal(
          R"({"properties":{"a":{}},"additionalProperties":true,"propertyNames":{"pattern":"b"}})"),
      "\"propertyNames\" at # is not enforced beside other properties");
  EXPECT_EQ(refusal(R"({"type":"object","minProperties":1})"),
            "\"minProperties\" at # is only enforced of declared properties");
  EXPECT_EQ(refusal(R"({"type":"array","items":[{}]})"),
            "\"items\" at # is a list; use \"prefixItems\"");
}

TEST(SchemaTest, OneOfIsEnforcedIfItsOptionsExcludeEachOther) {
  const std::string refused =
      "\"oneOf\" at # is only enforced if its options visibly exclude each other (by type, by "
      "const "
      "or enum, or by such a required property); use \"anyOf\"";
  EXPECT_EQ(refusal(R"({"oneOf":[{"type":"integer"},{"type":"number"}]})"), refused);
  EXPECT_EQ(refusal(R"({"oneOf":[{"const":1},{"const":1.0}]})"), refused);
  EXPECT_EQ(refusal(R"({"oneOf":[{"enum":["a"]},{"type":"string"}]})"), refused);
  EXPECT_EQ(refusal(R"({"oneOf":[{"properties":{"k":{"const":1}},"type":"object"},
                                 {"properties":{"k":{"const":2}},"type":"object"}]})"),
            refused);
  EXPECT_EQ(refusal(R"({"oneOf":[{},{"type":"null"}]})"), refused);
  EXPECT_EQ(
      enforceable(R"({"oneOf":[{"type":["string","null"]},{"enum":[1,2]},{"type":"boolean"}]})"),
      Json::parse(R"({"anyOf":[{"anyOf":[{"type":"string"},{"type":"null"}]},{"enum":[1,2]},
                                     {"type":"boolean"}]})"));
  EXPECT_EQ(enforceable(
                R"({"oneOf":[{"$ref":"#/$defs/a"},
              {"type":"object","properties":{"k":{"enum":["b","c"]}},"required":["k"]}],
              "$defs":{"a":{"type":"object","properties":{"k":{"const":"a"}},"required":["k"]}}})")
                ["anyOf"][0],
            Json::parse(R"({"$ref":"#/$defs/r0"})"));
}

TEST(SchemaTest, AnnotationsAndUnknownKeywordsAreDropped) {
  EXPECT_EQ(enforceable(R"({"$schema":"x","$id":"y","title":"t","description":"d","default":1,
                            "examples":[1],"deprecated":true,"readOnly":true,"$comment":"c",
                            "x-mine":{"not":1},"type":"boolean"})"),
            Json::parse(R"({"type":"boolean"})"));
}

TEST(SchemaTest, ObjectsHoldWhatTheyDeclareAndAnythingIfTheyDeclareNothing) {
  EXPECT_EQ(enforceable(R"({"type":"object"})"),
            Json::parse(R"({"type":"object","additionalProperties":true})"));
  EXPECT_EQ(enforceable(R"({"properties":{"a":{"type":"null"},"b":false},"required":["a","a"]})"),
            Json::parse(R"({"type":"object","properties":{"a":{"type":"null"}},"required":["a"],
                            "additionalProperties":false})"));
  EXPECT_EQ(enforceable(R"({"properties":{"a":true},"unevaluatedProperties":{"type":"null"}})"),
            Json::parse(R"({"type":"object","properties":{"a":{}},
                            "additionalProperties":{"type":"null"}})"));
  EXPECT_EQ(enforceable(R"({"type":"array"})"), Json::parse(R"({"type":"array","items":{}})"));
  EXPECT_EQ(enforceable(R"({"prefixItems":[true,{"type":"null"}],"maxItems":1})"),
            Json::parse(R"({"type":"array","maxItems":1,"prefixItems":[{}],"items":false})"));
  EXPECT_EQ(
      enforceable(R"({"prefixItems":[{"type":"null"}],"minItems":2})"),
      Json::parse(R"({"type":"array","minItems":2,"prefixItems":[{"type":"null"}],"items":{}})"));
}

TEST(SchemaTest, StringsAndIntegersGetBoundsThatAreEnforced) {
  EXPECT_EQ(enforceable(R"({"type":"string","minLength":1,"maxLength":5})"),
            Json::parse(R"({"type":"string","minLength":1,"maxLength":5})"));
  EXPECT_EQ(enforceable(R"({"type":"string","minLength":2})"),
            Json::parse(R"({"type":"string","minLength":2})"));
  EXPECT_EQ(enforceable(R"({"pattern":"^é😀$"})"),
            Json::parse(R"({"type":"string","pattern":"^\\u00e9\\u{1f600}$"})"));
  EXPECT_EQ(enforceable(R"({"type":"integer","minimum":0.5,"exclusiveMaximum":9})"),
            Json::parse(R"({"type":"integer","minimum":1,"maximum":8})"));
  EXPECT_EQ(enforceable(R"({"type":"integer","exclusiveMinimum":1.5,"minimum":1})"),
            Json::parse(R"({"type":"integer","minimum":2,"maximum":999999999999999999})"));
  EXPECT_EQ(enforceable(R"({"type":"integer","maximum":-2000000000000000000})"),
            Json::parse(R"({"type":"integer","minimum":-2000000000000000000,
                            "maximum":-2000000000000000000})"));
  EXPECT_EQ(refusal(R"({"type":"integer","minimum":2.5,"maximum":2.75})"),
            "no integer is within the bounds at #");
}

TEST(SchemaTest, ListedValuesOfAnotherTypeAreLeftOut) {
  EXPECT_EQ(enforceable(R"({"type":"integer","enum":[1,"a",2.5,3.0]})"),
            Json::parse(R"({"enum":[1,3.0]})"));
  EXPECT_EQ(enforceable(R"({"const":{"a":1}})"), Json::parse(R"({"enum":[{"a":1}]})"));
  EXPECT_EQ(refusal(R"({"type":"string","const":1})"),
            "\"const\" at # lists no value of its \"type\"");
}

TEST(SchemaTest, ReferencesAreFollowedWhereverTheyPointInTheSchema) {
  EXPECT_EQ(enforceable(R"({"properties":{"next":{"$ref":"#"},"x":{"$ref":"#/$defs/a%20b~1c"}},
                            "$defs":{"a b/c":{"type":"null"},"unused":{"not":{}}}})"),
            Json::parse(R"({"type":"object","properties":{"next":{"$ref":"#/$defs/r0"},
                            "x":{"$ref":"#/$defs/r1"}},"additionalProperties":false,
                            "$defs":{"r0":{"type":"object","properties":{"next":{"$ref":"#/$defs/r0"},
                            "x":{"$ref":"#/$defs/r1"}},"additionalProperties":false},
                            "r1":{"type":"null"}}})"));
  EXPECT_EQ(refusal(R"({"items":{"$ref":"#/$defs/a"}})"),
            "\"$ref\" at #/items is \"#/$defs/a\", which points at nothing");
  EXPECT_EQ(refusal(R"({"$ref":"https://example.com/s"})"),
            "\"$ref\" at # is \"https://example.com/s\", but only references within the schema "
            "(\"#\", \"#/...\") are followed");
}

TEST(SchemaTest, WhatIsNoSchemaIsRefused) {
  EXPECT_EQ(refusal("3"), "a schema is an object, true or false, but # is 3");
  EXPECT_EQ(refusal("false"), "nothing can satisfy false at #");
  EXPECT_EQ(refusal(R"({"type":"int"})"),
            "\"type\" at # is \"int\"; types are object, array, string, integer, number, boolean, "
            "null, or a list of them");
  EXPECT_EQ(refusal(R"({"type":"string","maxLength":-1})"),
            "\"maxLength\" at # is -1; it must be an integer of at least 0");
  EXPECT_EQ(refusal(R"({"type":"array","maxItems":1e9})"),
            "\"maxItems\" at # is 1000000000.0; at most 100000 is enforced");
  EXPECT_EQ(refusal(R"({"type":"string","minLength":3,"maxLength":2})"),
            "\"minLength\" at # is 3, more than \"maxLength\", 2");
  EXPECT_EQ(refusal(R"({"enum":[]})"), "\"enum\" at # lists no value");
  EXPECT_EQ(refusal(R"({"anyOf":[false]})"), "nothing can satisfy \"anyOf\" at #");
  EXPECT_EQ(refusal(R"({"properties":3})"), "\"properties\" at # is 3, not an object");
  EXPECT_EQ(refusal(R"({"type":"number","minimum":"a"})"),
            "\"minimum\" at # is \"a\", not a number");
}

TEST(SchemaTest, APatternThatCannotBeEnforcedIsRefusedWithTheReason) {
  const auto check = [](const std::string& pattern) {
    return pattern == "bad" ? std::string("it is bad") : std::string();
  };
  EXPECT_EQ(refusal(R"({"properties":{"a":{"pattern":"bad"}}})", check),
            "\"pattern\" at #/properties/a is not enforced: it is bad");
  EXPECT_EQ(refusal(R"({"patternProperties":{"bad":{}}})", check),
            "\"pattern\" at #/patternProperties is not enforced: it is bad");
  EXPECT_EQ(refusal(R"({"pattern":"good"})", check), "accepted");
}

TEST(SchemaTest, ObjectsWithTooManyOptionalPropertiesAreRefusedAtOnce) {
  const auto schema = [](int optional, int objects) {
    Json object = {{"type", "object"}, {"properties", Json::object()}, {"required", {"p0"}}};
    for (int i = 0; i <= optional; ++i)
      object["properties"]["p" + std::to_string(i)] = {{"type", "null"}};
    Json all = {{"type", "array"}, {"prefixItems", Json::array()}};
    for (int i = 0; i < objects; ++i) all["prefixItems"].push_back(object);
    return all.dump();
  };
  EXPECT_NO_THROW(enforceable(schema(100, 10).c_str()));
  EXPECT_EQ(
      refusal(schema(101, 1).c_str()),
      "\"properties\" at #/prefixItems/0 has 101 that are not required; an object may have 100 "
      "of them, all objects together 1000");
  EXPECT_NE(refusal(schema(100, 11).c_str()).find("#/prefixItems/10"), std::string::npos);
}

}  // namespace
}  // namespace minisgl
