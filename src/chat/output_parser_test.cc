#include "chat/output_parser.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace minisgl {
namespace {

using Kind = ChatPiece::Kind;

// "think(...)", "text(...)", "call f(...)": one word for each piece, neighbours joined as a client
// joins them.
std::string shown(const std::vector<ChatPiece>& pieces) {
  std::string text;
  const ChatPiece* last = nullptr;
  for (const ChatPiece& piece : pieces) {
    const bool goes_on = last != nullptr && piece.kind == last->kind && piece.kind != Kind::kCall;
    if (!goes_on && piece.kind != Kind::kArguments && !text.empty()) text += ") ";
    if (!goes_on && piece.kind == Kind::kReasoning) text += "think(";
    if (!goes_on && piece.kind == Kind::kContent) text += "text(";
    if (piece.kind == Kind::kCall) text += "call " + piece.text + "(";
    if (piece.kind != Kind::kCall) text += piece.text;
    last = &piece;
  }
  return text.empty() ? "" : text + ")";
}

std::string parsed(const OutputFormat& format, const std::vector<std::string>& cuts) {
  OutputParser parser(format);
  std::vector<ChatPiece> all;
  const auto add = [&all](std::vector<ChatPiece> pieces) {
    all.insert(all.end(), pieces.begin(), pieces.end());
  };
  for (const std::string& cut : cuts) add(parser.push(cut));
  add(parser.finish());
  return shown(all);
}

// The result, if it is the same for the whole text, for single bytes, for every cut into two and
// for random cuts.
std::string parse(const OutputFormat& format, const std::string& text) {
  const std::string whole = parsed(format, {text});
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  EXPECT_EQ(parsed(format, bytes), whole) << "byte by byte";
  for (std::size_t i = 1; i < text.size(); ++i)
    EXPECT_EQ(parsed(format, {text.substr(0, i), text.substr(i)}), whole) << "cut at " << i;
  std::mt19937 random(7);
  for (int repetition = 0; repetition < 50; ++repetition) {
    std::vector<std::string> cuts{""};
    for (const char c : text) {
      if (random() % 4 == 0) cuts.emplace_back();
      cuts.back() += c;
    }
    EXPECT_EQ(parsed(format, cuts), whole);
  }
  return whole;
}

std::string hermes(const std::string& text) { return parse({.calls = CallSyntax::kHermes}, text); }
std::string llama3(const std::string& text) { return parse({.calls = CallSyntax::kLlama3}, text); }
std::string mistral(const std::string& text) {
  return parse({.calls = CallSyntax::kMistral}, text);
}
std::string thinking(const std::string& text) { return parse({.reasoning = true}, text); }

TEST(OutputParserTest, WithoutAnythingToLookForAllIsContent) {
  EXPECT_EQ(parse({}, "<think>a</think> <tool_call>{}"), "text(<think>a</think> <tool_call>{})");
  EXPECT_EQ(parse({}, ""), "");
}

TEST(OutputParserTest, ReasoningComesFirstAndWhiteSpaceAroundItIsNobodys) {
  EXPECT_EQ(thinking("<think>\nlet me see\n\nyes\n</think>\n\nParis. \n"),
            "think(let me see\n\nyes) text(Paris. \n)");
  EXPECT_EQ(thinking("\n <think>a</think>b"), "think(a) text(b)");
  EXPECT_EQ(thinking("<think>\n\n</think>\n\nParis"), "text(Paris)") << "nothing was thought";
  EXPECT_EQ(thinking("<think>a < b </thin k> c</think>d"), "think(a < b </thin k> c) text(d)");
}

TEST(OutputParserTest, AnAnswerWithoutReasoningIsLeftAsItIs) {
  EXPECT_EQ(thinking(" Paris"), "text( Paris)");
  EXPECT_EQ(thinking("<thing>"), "text(<thing>)");
  EXPECT_EQ(thinking("<thi"), "text(<thi)");
  EXPECT_EQ(thinking("so <think>a</think>"), "text(so <think>a</think>)");
  EXPECT_EQ(thinking("  "), "text(  )");
}

TEST(OutputParserTest, ReasoningThatIsCutOffIsReasoning) {
  EXPECT_EQ(thinking("<think>a b </thi"), "think(a b </thi)");
  EXPECT_EQ(thinking("<think>a \n"), "think(a)");
}

TEST(OutputParserTest, APromptMayEndInsideTheReasoning) {
  const OutputFormat format{.reasoning = true, .in_reasoning = true};
  EXPECT_EQ(parse(format, "hm\n</think>\n\n42"), "think(hm) text(42)");
  EXPECT_EQ(parse(format, "hm"), "think(hm)");
}

TEST(OutputParserTest, HermesCallsAreTakenOutOfTheText) {
  EXPECT_EQ(hermes("<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 2, \"b\": [3, {}]}}\n"
                   "</tool_call>"),
            "call add({\"a\": 2, \"b\": [3, {}]})");
  EXPECT_EQ(hermes("Let me see.\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n"
                   "<tool_call>{\"name\":\"g\",\"arguments\":{\"x\":\"}\\\"{\"}}</tool_call>\nok"),
            "text(Let me see.) call f({}) call g({\"x\":\"}\\\"{\"}) text(\nok)");
}

TEST(OutputParserTest, NameAndArgumentsMayComeInAnyOrderAmongOtherMembers) {
  EXPECT_EQ(hermes(R"(<tool_call>{"arguments": {"a": 1}, "id": "x", "name": "f"}</tool_call>)"),
            "call f({\"a\": 1})");
  EXPECT_EQ(hermes(R"(<tool_call>{"id": [1, {"name": "no"}], "name": "f", "parameters": {}})"),
            "call f({})");
  EXPECT_EQ(hermes(R"(<tool_call>{"name": "f"}</tool_call>)"), "call f({})");
}

TEST(OutputParserTest, ArgumentsWrittenAsAStringAreWhatItSays) {
  EXPECT_EQ(hermes(R"(<tool_call>{"name": "f", "arguments": "{\"a\": \"\u00e9\"}"}</tool_call>)"),
            "call f({\"a\": \"\xc3\xa9\"})");
  EXPECT_EQ(hermes(R"(<tool_call>{"name": "\u0066", "arguments": {"a": "\u00e9"}}</tool_call>)"),
            "call f({\"a\": \"\\u00e9\"})")
      << "an object is passed on as it was written";
}

TEST(OutputParserTest, WhatOnlyLooksLikeACallIsContent) {
  EXPECT_EQ(hermes("<tool_call>not json</tool_call> x"), "text(<tool_call>not json</tool_call> x)");
  EXPECT_EQ(hermes(R"(<tool_call>{"nam": "f"}</tool_call>)"),
            R"(text(<tool_call>{"nam": "f"}</tool_call>))");
  EXPECT_EQ(hermes(R"(<tool_call>{"name": 5, "arguments": {}}</tool_call>)"),
            R"(text(<tool_call>{"name": 5, "arguments": {}}</tool_call>))");
  EXPECT_EQ(hermes("a \n<tool_call>b"), "text(a \n<tool_call>b)");
  EXPECT_EQ(hermes("a <tool_cal"), "text(a <tool_cal)");
  EXPECT_EQ(hermes("a < b\n"), "text(a < b\n)");
}

TEST(OutputParserTest, ACallThatIsCutOffIsOneOnceItsArgumentsHaveBegun) {
  EXPECT_EQ(hermes(R"(x <tool_call>{"name": "f", "arguments": {"a": "bc)"),
            R"(text(x) call f({"a": "bc))");
  EXPECT_EQ(hermes(R"(<tool_call>{"name": "f", "argu)"), R"(text(<tool_call>{"name": "f", "argu))");
  EXPECT_EQ(hermes(R"(<tool_call>{"name": "f", "arguments": {}})"), "call f({})");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"f\", \"arguments\": {}}\n</tool_"),
            "call f({}) text(\n</tool_)");
}

TEST(OutputParserTest, ReasoningMayComeBeforeCalls) {
  EXPECT_EQ(parse({.calls = CallSyntax::kHermes, .reasoning = true},
                  "<think>\nuse <tool_call>?\n</think>\n\n<tool_call>\n{\"name\": \"f\", "
                  "\"arguments\": {}}\n</tool_call>"),
            "think(use <tool_call>?) call f({})");
}

TEST(OutputParserTest, FurtherCallsAreLeftOutWhenOneIsWanted) {
  EXPECT_EQ(parse({.calls = CallSyntax::kHermes, .parallel_calls = false},
                  R"(<tool_call>{"name":"f","arguments":{"a":1}}</tool_call>)"
                  R"(<tool_call>{"name":"g","arguments":{"b":2}}</tool_call>)"),
            "call f({\"a\":1})");
}

TEST(OutputParserTest, Llama3WritesTheCallAlone) {
  EXPECT_EQ(llama3(R"({"name": "add", "parameters": {"a": "2"}})"), "call add({\"a\": \"2\"})");
  EXPECT_EQ(llama3("<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}"),
            "call f({})");
  EXPECT_EQ(llama3(R"({"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}} )"),
            "call f({\"a\": 1}) call g({})");
}

TEST(OutputParserTest, OtherAnswersOfLlama3AreContent) {
  EXPECT_EQ(llama3("The sum is {5}."), "text(The sum is {5}.)");
  EXPECT_EQ(llama3(R"({"name": "Bob", "age": 7})"), R"(text({"name": "Bob", "age": 7}))")
      << "JSON that is no call";
  EXPECT_EQ(llama3(R"(  {"a": [1, 2]} and more)"), R"(text(  {"a": [1, 2]} and more))");
  EXPECT_EQ(llama3("<|python_tag|>brave_search.call(query=\"x\")"),
            "text(<|python_tag|>brave_search.call(query=\"x\"))");
  EXPECT_EQ(llama3(R"({"name": "f")"), R"(text({"name": "f"))");
  EXPECT_EQ(llama3(" <|pyth"), "text( <|pyth)");
}

TEST(OutputParserTest, MistralWritesAListAfterItsTag) {
  EXPECT_EQ(mistral(R"([TOOL_CALLS] [{"name": "f", "arguments": {"a": [1]}}, )"
                    R"({"name": "g", "arguments": {}}])"),
            "call f({\"a\": [1]}) call g({})");
  EXPECT_EQ(mistral("ok [TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}] end"),
            "text(ok) call f({}) text( end)");
  EXPECT_EQ(mistral("[TOOL] x [TOOL_CALL"), "text([TOOL] x [TOOL_CALL)");
}

TEST(OutputParserTest, NewerMistralsWriteTheNameBeforeTheArguments) {
  EXPECT_EQ(mistral(R"([TOOL_CALLS]f[ARGS]{"a": {"b": 1}}[TOOL_CALLS]g{"c": 2})"),
            "call f({\"a\": {\"b\": 1}}) call g({\"c\": 2})");
  EXPECT_EQ(mistral(R"([TOOL_CALLS]f[CALL_ID]abc[ARGS]{})"), "call f({})");
  EXPECT_EQ(mistral("[TOOL_CALLS]f[AR"), "text([TOOL_CALLS]f[AR)");
}

TEST(OutputParserTest, RequiredCallsAreAListWithoutATag) {
  EXPECT_EQ(parse({.calls = CallSyntax::kList},
                  R"([{"name": "f", "parameters": {"a": 1}}, {"name": "g", "parameters": {}}])"),
            "call f({\"a\": 1}) call g({})");
  EXPECT_EQ(parse({.calls = CallSyntax::kList}, R"([{"name": "f", "parame)"),
            R"(text({"name": "f", "parame))");
}

TEST(OutputParserTest, ArgumentsOfAFunctionThatIsKnownAreTheWholeAnswer) {
  const OutputFormat format{.calls = CallSyntax::kArguments, .function = "f"};
  EXPECT_EQ(parse(format, R"({"a": 1})"), "call f({\"a\": 1})");
  EXPECT_EQ(parse(format, ""), "");
}

// Whatever comes, nothing is lost but tags, white space and members that are none of ours: here
// there are none of these, so the text must come back whole.
TEST(OutputParserTest, RandomTextWithoutTagsIsContent) {
  std::mt19937 random(11);
  const std::string alphabet = "<>{}[]\"\\:,/ tolcahink_n1";
  for (int repetition = 0; repetition < 300; ++repetition) {
    std::string text = "x";
    for (int i = 0; i < 40; ++i) text += alphabet[random() % alphabet.size()];
    text += "x";
    for (const CallSyntax calls : {CallSyntax::kHermes, CallSyntax::kLlama3, CallSyntax::kMistral})
      EXPECT_EQ(parsed({.calls = calls, .reasoning = true}, {text}), "text(" + text + ")");
  }
}

}  // namespace
}  // namespace minisgl
