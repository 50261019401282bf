#include "grammar/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "base/utf8.h"
#include "grammar/schema_validator_for_test.h"
#include "grammar/tokenizer_for_test.h"
#include "minisgl/error.h"
#include "testing/random.h"

namespace minisgl {
namespace {

using Kind = ResponseFormat::Kind;
using testing_util::Json;
using testing_util::ListTokenizer;
using testing_util::Random;

/// Ids beyond the tokenizer's that the model's logits have.
constexpr std::int32_t kPadding = 5;

/// Bytes, and tokens that span the parts of JSON.
const ListTokenizer& tokenizer() {
  static const ListTokenizer all =
      ListTokenizer::of_bytes({"\":", ", \"", "true", "1.", "00", "{\"", "}}", "]}", "é", "\n\t",
                               "12", "-", " ", "\"\"", "fal"});
  return all;
}

Grammars& grammars() {
  static Grammars shared(tokenizer(), {.vocab_size = tokenizer().vocab_size() + kPadding,
                                       .end_ids = {tokenizer().end_id()}});
  return shared;
}

/// The ids that may come next.
std::vector<TokenId> allowed(TokenConstraint& constraint, const ListTokenizer& of = tokenizer()) {
  const std::int32_t size = of.vocab_size() + kPadding;
  std::vector<std::int32_t> mask(static_cast<std::size_t>((size + 31) / 32), -1);
  EXPECT_TRUE(constraint.fill(mask));
  std::vector<TokenId> ids;
  for (std::int32_t id = 0; id < static_cast<std::int32_t>(mask.size()) * 32; ++id)
    if ((static_cast<std::uint32_t>(mask[id / 32]) >> (id % 32) & 1) != 0) ids.push_back(id);
  return ids;
}

struct Answer {
  std::string text;
  bool stopped = false;
};

/// Draws from what is allowed. Ends what may end, and strings, more often than chance would: an
/// answer of `max_tokens` says nothing. Numbers get no exponents: nlohmann's parser refuses 1e999.
Answer draw(const ResponseFormat& format, Random& random, int max_tokens = 400) {
  const auto constraint = grammars().constraint(format);
  Answer answer;
  for (int i = 0; i < max_tokens; ++i) {
    std::vector<TokenId> ids = allowed(*constraint);
    if (ids.empty()) {
      ADD_FAILURE() << "nothing may follow " << answer.text;
      return answer;
    }
    const auto may_be = [&](TokenId id) {
      return std::find(ids.begin(), ids.end(), id) != ids.end();
    };
    if (may_be('e') && may_be('0') && !may_be('x')) {
      std::erase(ids, 'e');
      std::erase(ids, 'E');
    }
    TokenId id = ids[random.below(static_cast<std::int64_t>(ids.size()))];
    if (may_be(tokenizer().end_id()) && random.below(3) == 0) id = tokenizer().end_id();
    if (may_be('"') && random.below(8) == 0) id = '"';
    EXPECT_TRUE(constraint->accept(id)) << id << " after " << answer.text;
    if (id == tokenizer().end_id()) {
      EXPECT_TRUE(constraint->finished());
      answer.stopped = true;
      return answer;
    }
    EXPECT_FALSE(constraint->finished());
    answer.text += tokenizer().token_bytes(id);
  }
  return answer;
}

/// Whether `text` and then the end is an answer to `format`.
bool accepts(const ResponseFormat& format, const std::string& text) {
  const auto constraint = grammars().constraint(format);
  for (const char c : text)
    if (!constraint->accept(static_cast<unsigned char>(c))) return false;
  const std::vector<TokenId> ids = allowed(*constraint);
  return std::find(ids.begin(), ids.end(), tokenizer().end_id()) != ids.end();
}

std::string refusal(const ResponseFormat& format) {
  try {
    grammars().constraint(format);
  } catch (const RequestError& e) {
    EXPECT_EQ(e.param(), "response_format");
    return e.what();
  }
  return "accepted";
}

class GrammarTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!Grammars::built()) GTEST_SKIP() << "this build has no constrained output";
  }
};

TEST(GrammarOffTest, WithoutXgrammarEveryFormatIsRefused) {
  if (Grammars::built()) GTEST_SKIP() << "this build has constrained output";
  EXPECT_EQ(refusal({.kind = Kind::kJsonObject}),
            "response_format: this build has no constrained output (MINISGL_GRAMMAR is off)");
}

TEST_F(GrammarTest, EveryAnswerThatStopsSatisfiesItsSchema) {
  const char* const schemas[] = {
      R"({"type":"object","properties":{"name":{"type":"string","maxLength":6},
          "age":{"type":"integer","minimum":0,"maximum":130},"tags":{"type":"array","items":
          {"enum":["a","b\"c",3,null]},"maxItems":3}},"required":["name","age"]})",
      R"({"type":"array","items":{"type":"string","minLength":2,"maxLength":4},"minItems":1,
          "maxItems":3})",
      R"({"type":"number","minimum":-3.5,"exclusiveMaximum":12})",
      R"({"type":"number","exclusiveMinimum":-0.25,"maximum":0.125})",
      R"({"type":"integer","minimum":-1234,"maximum":98765})",
      R"({"type":"integer","multipleOf":6,"minimum":-20,"maximum":90})",
      R"({"type":["string","null","boolean"],"maxLength":3})",
      R"({"anyOf":[{"const":{"a":[1,2]}},{"type":"object","properties":{"b":{"type":"null"}},
          "additionalProperties":{"type":"boolean"},"maxProperties":3}]})",
      R"({"prefixItems":[{"type":"boolean"},{"type":"integer","minimum":1,"maximum":9}],
          "items":{"type":"null"},"maxItems":4})",
      R"({"$ref":"#/$defs/tree","$defs":{"tree":{"type":"object","properties":{"v":{"type":"boolean"},
          "kids":{"type":"array","items":{"$ref":"#/$defs/tree"},"maxItems":2}},"required":["v"]}}})",
      R"({"type":"string","pattern":"^[a-c]+[0-9]{2,3}(x|y)?$"})",
      R"({"oneOf":[{"type":"object","properties":{"k":{"const":"a"},"n":{"type":"null"}},"required":
          ["k","n"]},{"type":"object","properties":{"k":{"const":"b"}},"required":["k"]}]})",
  };
  Random random(11);
  int num_stopped = 0;
  for (const char* text : schemas) {
    const Json schema = Json::parse(text);
    for (int i = 0; i < 40; ++i) {
      const Answer answer = draw({.kind = Kind::kJsonSchema, .text = text}, random);
      if (!answer.stopped) continue;
      ++num_stopped;
      ASSERT_TRUE(is_valid_utf8(answer.text)) << answer.text;
      const Json value = Json::parse(answer.text, nullptr, /*allow_exceptions=*/false);
      ASSERT_FALSE(value.is_discarded()) << answer.text << " of " << text;
      ASSERT_TRUE(testing_util::satisfies(schema, value, schema)) << answer.text << " of " << text;
    }
  }
  EXPECT_GT(num_stopped, 460);  // of 480
}

TEST_F(GrammarTest, MultiplesAreFollowedToAnyLength) {
  const ResponseFormat sevens{.kind = Kind::kJsonSchema,
                              .text = R"({"type":"integer","multipleOf":7})"};
  for (const char* text : {"0", "-7", "1029", "700000000000000000007"})
    EXPECT_TRUE(accepts(sevens, text)) << text;
  for (const char* text : {"1", "-0", "1030", "007", "700000000000000000008", "7.0"})
    EXPECT_FALSE(accepts(sevens, text)) << text;
}

TEST_F(GrammarTest, JsonWithoutASchemaIsAnObject) {
  const ResponseFormat format{.kind = Kind::kJsonObject};
  EXPECT_TRUE(accepts(format, R"({"a": [1, {"b": "\u00e9"}], "c": null})"));
  EXPECT_TRUE(accepts(format, "{}"));
  EXPECT_FALSE(accepts(format, "[]"));
  EXPECT_FALSE(accepts(format, "{"));
  EXPECT_FALSE(accepts(format, "{\"a\": \"\t\"}"));
  Random random(5);
  int num_stopped = 0;
  for (int i = 0; i < 60; ++i) {
    const Answer answer = draw(format, random, 300);
    if (!answer.stopped) continue;
    ++num_stopped;
    EXPECT_TRUE(Json::accept(answer.text)) << answer.text;
  }
  EXPECT_GT(num_stopped, 10);
}

TEST_F(GrammarTest, WhitespaceCannotGo) {
  for (const ResponseFormat& format :
       {ResponseFormat{.kind = Kind::kJsonObject},
        ResponseFormat{.kind = Kind::kJsonSchema, .text = R"({"properties":{"a":{"type":"null"}},
                                                             "required":["a"]})"}}) {
    EXPECT_TRUE(accepts(format, R"({"a": null})"));
    EXPECT_FALSE(accepts(format, R"({"a":  null})"));
    EXPECT_FALSE(accepts(format, " {\"a\": null}"));
    EXPECT_FALSE(accepts(format, "{\"a\": null}\n"));
  }
}

TEST_F(GrammarTest, OtherFormatsAreFollowedToo) {
  const ResponseFormat regex{.kind = Kind::kRegex, .text = "[0-9]{3}-(a|b)+"};
  EXPECT_TRUE(accepts(regex, "123-abba"));
  EXPECT_FALSE(accepts(regex, "123-"));
  EXPECT_FALSE(accepts(regex, "x123-a"));
  const ResponseFormat grammar{.kind = Kind::kGrammar, .text = "root ::= \"(\" root \")\" | \"x\""};
  EXPECT_TRUE(accepts(grammar, "((x))"));
  EXPECT_FALSE(accepts(grammar, "((x)"));
  const ResponseFormat choice{.kind = Kind::kChoice,
                              .text = Json({"yes", "n\"o\\", "é😀", "line\nfeed"}).dump()};
  for (const char* text : {"yes", "n\"o\\", "é😀", "line\nfeed"})
    EXPECT_TRUE(accepts(choice, text));
  EXPECT_FALSE(accepts(choice, "ye"));
  EXPECT_FALSE(accepts(choice, "yesyes"));
}

TEST_F(GrammarTest, StructuralTagsConstrainWhatIsInsideThem) {
  const ResponseFormat tags{.kind = Kind::kStructuralTag, .text = R"({"type":"structural_tag",
      "structures":[{"begin":"<f>","schema":{"type":"object","properties":{"s":{"type":"string",
      "maxLength":2}},"required":["s"]},"end":"</f>"}],"triggers":["<f"]})"};
  EXPECT_TRUE(accepts(tags, "no call"));
  EXPECT_TRUE(accepts(tags, "call: <f>{\"s\": \"ab\"}</f> done"));
  EXPECT_FALSE(accepts(tags, "call: <f>{\"s\": \"abc\"}</f>"));
  EXPECT_FALSE(accepts(tags, "call: <f>{\"s\":  \"ab\"}</f>"));
  EXPECT_FALSE(accepts(tags, "call: <f>{\"s\": \"a\t\"}</f>"));
  EXPECT_EQ(refusal({.kind = Kind::kStructuralTag, .text = R"({"format":{"type":"json_schema",
                     "json_schema":{"type":"array","uniqueItems":true}}})"}),
            "response_format: JSON schema: \"uniqueItems\" at # is not enforced");
}

TEST_F(GrammarTest, AtTheEndOnlyAnEndTokenIsAllowedAndBeforeItNever) {
  const auto constraint = grammars().constraint({.kind = Kind::kChoice, .text = R"(["ab"])"});
  EXPECT_THAT(allowed(*constraint), testing::ElementsAre('a'));
  EXPECT_TRUE(constraint->accept('a'));
  EXPECT_THAT(allowed(*constraint), testing::ElementsAre('b'));
  EXPECT_TRUE(constraint->accept('b'));
  EXPECT_FALSE(constraint->finished());
  EXPECT_THAT(allowed(*constraint), testing::ElementsAre(tokenizer().end_id()));
  EXPECT_TRUE(constraint->accept(tokenizer().end_id()));
  EXPECT_TRUE(constraint->finished());
}

TEST_F(GrammarTest, AVocabularyWithoutAnEndTokenEndsWithTheGrammar) {
  Grammars endless(tokenizer(), {.vocab_size = tokenizer().vocab_size()});
  const auto constraint = endless.constraint({.kind = Kind::kChoice, .text = R"(["ab"])"});
  EXPECT_TRUE(constraint->accept('a'));
  EXPECT_FALSE(constraint->finished());
  EXPECT_TRUE(constraint->accept('b'));
  EXPECT_TRUE(constraint->finished());
}

TEST_F(GrammarTest, SpecialTokensAndPaddingAreNeverAllowed) {
  const auto constraint = grammars().constraint({.kind = Kind::kRegex, .text = "[\\s\\S]*"});
  const std::vector<TokenId> ids = allowed(*constraint);
  // All bytes that begin a character, and the end.
  EXPECT_NE(std::find(ids.begin(), ids.end(), 'a'), ids.end());
  EXPECT_EQ(ids.back(), tokenizer().end_id());
  for (const TokenId id : ids)
    EXPECT_TRUE(!tokenizer().is_special(id) || id == tokenizer().end_id()) << id;
}

TEST_F(GrammarTest, BytesThatMakeNoCharacterAreNotAllowed) {
  const auto after = [](unsigned char first) {
    const auto constraint = grammars().constraint({.kind = Kind::kRegex, .text = "[^a]*"});
    EXPECT_TRUE(constraint->accept(first));
    return allowed(*constraint);
  };
  const auto range = [](TokenId low, TokenId high) {
    std::vector<TokenId> ids;
    for (TokenId id = low; id <= high; ++id) ids.push_back(id);
    return ids;
  };
  EXPECT_EQ(after(0xC3), range(0x80, 0xBF));
  EXPECT_EQ(after(0xE0), range(0xA0, 0xBF));
  EXPECT_EQ(after(0xE1), range(0x80, 0xBF));
  EXPECT_EQ(after(0xED), range(0x80, 0x9F));
  EXPECT_EQ(after(0xF0), range(0x90, 0xBF));
  EXPECT_EQ(after(0xF4), range(0x80, 0x8F));
}

TEST_F(GrammarTest, ATokenThatIsNotAllowedIsRefused) {
  const auto constraint = grammars().constraint({.kind = Kind::kChoice, .text = R"(["ab"])"});
  EXPECT_FALSE(constraint->accept('b'));
}

TEST_F(GrammarTest, ABadFormatIsRefusedInOneLine) {
  EXPECT_EQ(refusal({.kind = Kind::kJsonSchema, .text = "{"}),
            "response_format: the text is not JSON");
  EXPECT_EQ(refusal({.kind = Kind::kChoice, .text = "[]"}),
            "response_format: \"choice\" needs a list of strings");
  EXPECT_EQ(refusal({.kind = Kind::kChoice, .text = R"(["a",""])"}),
            "response_format: choice 1 is \"\"; it must be a string that is not empty");
  EXPECT_EQ(refusal({.kind = Kind::kJsonSchema, .text = std::string(300'000, ' ')}),
            "response_format: the text has 300000 bytes; at most 262144 are taken");
  for (const ResponseFormat& format :
       {ResponseFormat{.kind = Kind::kRegex, .text = "(a"},
        ResponseFormat{.kind = Kind::kRegex, .text = "a{2,1}"},
        ResponseFormat{.kind = Kind::kGrammar, .text = "root ::= other"},
        ResponseFormat{.kind = Kind::kGrammar, .text = "start: \"a\""},
        ResponseFormat{.kind = Kind::kStructuralTag, .text = R"({"format":{"type":"no"}})"},
        ResponseFormat{.kind = Kind::kJsonSchema, .text = R"({"pattern":"("})"}}) {
    const std::string text = refusal(format);
    EXPECT_TRUE(text.starts_with("response_format: ")) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

TEST_F(GrammarTest, APatternThatNeedsEscapedCharactersIsRefused) {
  const auto pattern = [](const char* text) {
    return refusal({.kind = Kind::kJsonSchema, .text = Json({{"pattern", text}}).dump()});
  };
  EXPECT_THAT(pattern("^\"$"), testing::HasSubstr("nothing matches it without characters"));
  EXPECT_THAT(pattern("^a\\nb$"), testing::HasSubstr("nothing matches it without characters"));
  EXPECT_EQ(pattern("^[^a]$"), "accepted");
}

TEST_F(GrammarTest, ManyThreadsMayAskForTheSameAndForOtherFormats) {
  Grammars own(tokenizer(), {.vocab_size = tokenizer().vocab_size() + kPadding,
                             .end_ids = {tokenizer().end_id()},
                             .cache_bytes = 1});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&own] {
      for (int k = 0; k < 12; ++k) {
        const char c = static_cast<char>('a' + k % 3);
        const auto constraint = own.constraint({.kind = Kind::kRegex, .text = std::string(3, c)});
        for (int n = 0; n < 3; ++n) EXPECT_TRUE(constraint->accept(c));
        EXPECT_THAT(allowed(*constraint), testing::ElementsAre(tokenizer().end_id()));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace minisgl
