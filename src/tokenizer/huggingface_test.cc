#include "tokenizer/huggingface.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "minisgl/error.h"

namespace minisgl {
namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<TokenId>;

// The vocabulary of CASES such as "abc abc": {a b c ab bc abc G Ga Gabc}, G being a space.
Json small_tokenizer() {
  return {
      {"version", "1.0"},
      {"added_tokens", Json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model",
       {{"type", "BPE"},
        {"ignore_merges", false},
        {"vocab",
         {{"a", 0},
          {"b", 1},
          {"c", 2},
          {"ab", 3},
          {"bc", 4},
          {"abc", 5},
          {"Ġ", 6},
          {"Ġa", 7},
          {"Ġabc", 8}}},
        {"merges", {"b c", "Ġ a"}}}}};
}

BpeTokenizer make(const Json& file) { return BpeTokenizer(parse_tokenizer_json(file.dump())); }

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string error_of(const Json& file) {
  return error_of([&] { parse_tokenizer_json(file.dump()); });
}

TEST(HuggingFaceTest, BothSpellingsOfMergesGiveTheSame) {
  Json file = small_tokenizer();
  EXPECT_EQ(make(file).encode("abc abc"), (Ids{0, 4, 7, 4}));
  file["model"]["merges"] = Json::array({Json::array({"b", "c"}), Json::array({"Ġ", "a"})});
  EXPECT_EQ(make(file).encode("abc abc"), (Ids{0, 4, 7, 4}));
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(make(file).encode("abc abc"), (Ids{5, 8}));
}

TEST(HuggingFaceTest, AHalfWithASpaceIsPossibleInAListOnly) {
  Json file = small_tokenizer();
  file["pre_tokenizer"] = nullptr;
  file["decoder"] = nullptr;
  file["model"]["vocab"] = {{"a", 0}, {" ", 1}, {"b", 2}, {"a ", 3}, {"a b", 4}};
  file["model"]["merges"] = Json::array({Json::array({"a", " "}), Json::array({"a ", "b"})});
  EXPECT_EQ(make(file).encode("a ba "), (Ids{4, 3}));
}

TEST(HuggingFaceTest, AMergeThatIsWrongStopsLoadingWithItsNumber) {
  Json file = small_tokenizer();
  file["model"]["merges"] = {"b c", "b a"};
  EXPECT_EQ(error_of(file),
            "tokenizer.json: merge 1 ('b' + 'a') needs the token 'ba', which is not in the "
            "vocabulary");
  file["model"]["merges"] = {"b c", "Ġ x"};
  EXPECT_NE(error_of(file).find("merge 1 ('Ġ' + 'x') needs the token 'x'"), std::string::npos);
  for (const Json& wrong : {Json("bc"), Json("b c a"), Json(" b"), Json("b "), Json("")}) {
    file["model"]["merges"] = Json::array({"b c", wrong});
    EXPECT_NE(error_of(file).find("merge 1 ('" + wrong.get<std::string>() + "') is not two tokens"),
              std::string::npos);
  }
  for (const Json& wrong : {Json::array({"a"}), Json::array({"a", 1}), Json(7), Json(nullptr)}) {
    file["model"]["merges"] = Json::array({"b c", wrong});
    EXPECT_NE(error_of(file).find("merge 1 is neither \"a b\" nor [\"a\", \"b\"]"),
              std::string::npos);
  }
}

TEST(HuggingFaceTest, WhatIsNotSupportedIsNamed) {
  const auto with = [](const std::function<void(Json&)>& change) {
    Json file = small_tokenizer();
    change(file);
    return error_of(file);
  };
  EXPECT_EQ(with([](Json& f) { f["model"]["type"] = "Unigram"; }),
            "tokenizer.json: model of type 'Unigram' is not supported; supported: BPE");
  EXPECT_EQ(
      with([](Json& f) { f["normalizer"] = {{"type", "Lowercase"}}; }),
      "tokenizer.json: normalizer of type 'Lowercase' is not supported; supported: NFC, NFD, NFKC, "
      "NFKD, Prepend, Replace, Sequence");
  EXPECT_NE(with([](Json& f) {
              f["pre_tokenizer"] = {{"type", "Whitespace"}};
            }).find("pre_tokenizer of type 'Whitespace' is not supported"),
            std::string::npos);
  EXPECT_NE(with([](Json& f) {
              f["post_processor"] = {{"type", "X"}};
            }).find("post_processor of type 'X' is not supported"),
            std::string::npos);
  EXPECT_NE(with([](Json& f) {
              f["decoder"] = {{"type", "WordPiece"}};
            }).find("decoder of type 'WordPiece' is not supported"),
            std::string::npos);
  EXPECT_NE(with([](Json& f) { f["model"].erase("vocab"); }).find("'vocab' is missing"),
            std::string::npos);
  EXPECT_NE(with([](Json& f) { f["model"]["vocab"]["zz"] = -1; }).find("token 'zz' has the id -1"),
            std::string::npos);
  EXPECT_NE(with([](Json& f) {
              f["model"]["end_of_word_suffix"] = "</w>";
            }).find("\"end_of_word_suffix\" is not supported"),
            std::string::npos);
  EXPECT_NE(error_of([] { parse_tokenizer_json("{\"model\": "); }).find("is not JSON"),
            std::string::npos);
}

// The byte alphabet without merges, and added tokens with all flags.
BpeTokenizer flagged_tokenizer() {
  Json file = small_tokenizer();
  Json vocab = Json::object();
  int id = 0;
  for (const std::string letter :
       {"h", "i", "y", "o", "a", "b", "x", "t", "w", "<", "|", "u", "U", ">", ".", "Ġ", "Ċ"})
    vocab[letter] = id++;
  file["model"]["vocab"] = vocab;
  file["model"]["merges"] = Json::array();
  const auto add = [&](const std::string& content, Json flags) {
    flags["id"] = id++;
    flags["content"] = content;
    file["added_tokens"].push_back(std::move(flags));
  };
  add("<|end|>", {{"rstrip", true}, {"special", true}});
  add("<|u|>", {{"special", true}});
  add("<|u|>x", {{"special", true}});
  add("<mask>", {{"lstrip", true}, {"special", true}});
  add("wo", {{"single_word", true}});
  return make(file);
}

TEST(HuggingFaceTest, AddedTokensObeyTheirFlags) {
  const BpeTokenizer tokenizer = flagged_tokenizer();
  const auto tokens = [&](std::string_view text) {
    std::string out;
    for (const TokenId id : tokenizer.encode(text)) {
      out += out.empty() ? "" : "·";
      out += tokenizer.token_bytes(id) == " " ? "Ġ" : tokenizer.token_bytes(id);
    }
    return out;
  };
  EXPECT_EQ(tokens("hi<|end|>  \n yo"), "h·i·<|end|>·y·o");
  EXPECT_EQ(tokens("<|end|>yo"), "<|end|>·y·o");
  EXPECT_EQ(tokens("a <|u|> b"), "a·Ġ·<|u|>·Ġ·b");
  EXPECT_EQ(tokens("<|u|>x"), "<|u|>x");
  EXPECT_EQ(tokens("x  <mask> y"), "x·<mask>·Ġ·y");
  EXPECT_EQ(tokens("two wo wo."), "t·w·o·Ġ·wo·Ġ·wo·.");
  EXPECT_EQ(tokens("<|u|"), "<·|·u·|");
  EXPECT_EQ(tokens("<|U|>"), "<·|·U·|·>");
}

TEST(HuggingFaceTest, AddedTokensAreFoundByNameAndKnowWhetherTheyAreSpecial) {
  const BpeTokenizer tokenizer = flagged_tokenizer();
  EXPECT_EQ(tokenizer.token_to_id("<|u|>"), 18);
  EXPECT_EQ(tokenizer.token_to_id("Ġ"), 15);
  EXPECT_EQ(tokenizer.token_to_id("zz"), std::nullopt);
  EXPECT_EQ(tokenizer.vocab_size(), 22);
  EXPECT_TRUE(tokenizer.is_special(18));
  EXPECT_FALSE(tokenizer.is_special(21));
  EXPECT_FALSE(tokenizer.is_special(0));
  EXPECT_FALSE(tokenizer.is_special(-1));
  EXPECT_FALSE(tokenizer.is_special(22));
}

Json template_processing(const Json& single) {
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", Json::array()},
          {"special_tokens",
           {{"a", {{"id", "a"}, {"ids", {0}}, {"tokens", {"a"}}}},
            {"b", {{"id", "b"}, {"ids", {1, 2}}, {"tokens", {"b", "c"}}}}}}};
}

TEST(HuggingFaceTest, PostProcessorsSayWhatIsAddedAroundAText) {
  const auto special = [](const char* id) {
    return Json{{"SpecialToken", {{"id", id}, {"type_id", 0}}}};
  };
  const Json sequence = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  Json file = small_tokenizer();
  file["post_processor"] = template_processing({special("a"), sequence, special("b")});
  EXPECT_EQ(make(file).encode("abc", {.add_special = true}), (Ids{0, 0, 4, 1, 2}));
  EXPECT_EQ(make(file).encode("", {.add_special = true}), (Ids{0, 1, 2}));
  EXPECT_EQ(make(file).encode("abc"), (Ids{0, 4}));
  file["post_processor"] = {
      {"type", "Sequence"},
      {"processors", {Json{{"type", "ByteLevel"}}, template_processing({special("a"), sequence})}}};
  EXPECT_EQ(make(file).encode("abc", {.add_special = true}), (Ids{0, 0, 4}));
  file["post_processor"] = {{"type", "RobertaProcessing"},
                            {"sep", Json::array({"b", 1})},
                            {"cls", Json::array({"a", 0})}};
  EXPECT_EQ(make(file).encode("abc", {.add_special = true}), (Ids{0, 0, 4, 1}));
}

TEST(HuggingFaceTest, APostProcessorThatAddsATokenOutsideTheVocabularyStopsLoading) {
  Json file = small_tokenizer();
  for (const Json& id : {Json(9), Json(-1), Json(4294967296)}) {
    file["post_processor"] = {{"type", "RobertaProcessing"},
                              {"sep", Json::array({"b", 1})},
                              {"cls", Json::array({"a", id})}};
    EXPECT_NE(error_of(file).find("token id " + id.dump()), std::string::npos) << error_of(file);
  }
}

class HuggingFaceFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        std::filesystem::path(testing::TempDir()) / (std::string("minisgl_hf_") + info->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const char* name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  std::filesystem::path folder_;
};

TEST_F(HuggingFaceFolderTest, ConfigurationGivesBosEosTemplateAndFurtherTokens) {
  write("tokenizer.json", small_tokenizer().dump());
  write("tokenizer_config.json",
        Json{{"bos_token", "a"},
             {"eos_token", {{"content", "<|end|>"}}},
             {"added_tokens_decoder", {{"9", {{"content", "<|end|>"}, {"special", true}}}}},
             {"chat_template",
              {Json{{"name", "tool_use"}, {"template", "T"}},
               Json{{"name", "default"}, {"template", "D"}}}}}
            .dump());
  const auto tokenizer = load_tokenizer(folder_);
  EXPECT_EQ(tokenizer->bos_id(), 0);
  EXPECT_EQ(tokenizer->bos_token(), "a");
  EXPECT_EQ(tokenizer->eos_token(), "<|end|>");
  EXPECT_EQ(tokenizer->eos_ids(), (Ids{9}));
  EXPECT_EQ(tokenizer->chat_template(), "D");
  EXPECT_EQ(tokenizer->chat_templates(), (ChatTemplates{{"default", "D"}, {"tool_use", "T"}}));
  EXPECT_EQ(tokenizer->encode("b<|end|>"), (Ids{1, 9}));
  EXPECT_EQ(tokenizer->vocab_size(), 10);
}

TEST_F(HuggingFaceFolderTest, TheMapOfSpecialTokensFillsInWhatTheConfigurationLacks) {
  write("tokenizer.json", small_tokenizer().dump());
  write("special_tokens_map.json", R"({"eos_token": "c", "bos_token": {"content": "b"}})");
  const auto tokenizer = load_tokenizer(folder_);
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_ids(), (Ids{2}));
  EXPECT_EQ(tokenizer->chat_template(), "");
}

TEST_F(HuggingFaceFolderTest, ATemplateFileCountsBeforeTheConfiguration) {
  write("tokenizer.json", small_tokenizer().dump());
  write("chat_template.json", R"({"chat_template": "from json"})");
  EXPECT_EQ(load_tokenizer(folder_)->chat_template(), "from json");
  write("tokenizer_config.json", R"({"chat_template": "from config"})");
  EXPECT_EQ(load_tokenizer(folder_)->chat_template(), "from config");
  write("chat_template.jinja", "from file\n");
  EXPECT_EQ(load_tokenizer(folder_)->chat_template(), "from file\n");
}

TEST_F(HuggingFaceFolderTest, LlamasClassSaysItselfWhetherBosAndEosAreAdded) {
  const auto special = [](const char* id) {
    return Json{{"SpecialToken", {{"id", id}, {"type_id", 0}}}};
  };
  const Json sequence = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  Json file = small_tokenizer();
  const auto ids_with = [&](const Json& processor, Json config) {
    file["post_processor"] = processor;
    write("tokenizer.json", file.dump());
    config["bos_token"] = "a";
    config["eos_token"] = "c";
    write("tokenizer_config.json", config.dump());
    return load_tokenizer(folder_)->encode("b", {.add_special = true});
  };
  const Json bos = template_processing({special("a"), sequence});
  const Json nothing = {{"type", "ByteLevel"}};
  const char* const kLlama = "LlamaTokenizerFast";
  EXPECT_EQ(ids_with(nothing, {{"tokenizer_class", kLlama}, {"add_bos_token", true}}), (Ids{0, 1}));
  EXPECT_EQ(ids_with(bos, {{"tokenizer_class", kLlama}, {"add_bos_token", true}}), (Ids{0, 1}))
      << "once, whoever asks for it";
  EXPECT_EQ(ids_with(bos, {{"tokenizer_class", kLlama}, {"add_bos_token", false}}), (Ids{1}));
  EXPECT_EQ(ids_with(bos, {{"tokenizer_class", kLlama}, {"add_eos_token", true}}), (Ids{0, 1, 2}));
  EXPECT_EQ(ids_with(bos, {{"tokenizer_class", kLlama}}), (Ids{0, 1}));
  EXPECT_EQ(ids_with(nothing, {{"tokenizer_class", "GPT2Tokenizer"}, {"add_bos_token", true}}),
            (Ids{1}));
}

TEST_F(HuggingFaceFolderTest, FurtherTemplatesAreReadFromTheirFolder) {
  write("tokenizer.json", small_tokenizer().dump());
  write("chat_template.jinja", "D");
  write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "old"}, {"name": "rag", "template": "R"}]})");
  std::filesystem::create_directories(folder_ / "additional_chat_templates");
  write("additional_chat_templates/tool_use.jinja", "T");
  write("additional_chat_templates/README.md", "not a template");
  EXPECT_EQ(load_tokenizer(folder_)->chat_templates(),
            (ChatTemplates{{"default", "D"}, {"rag", "R"}, {"tool_use", "T"}}));
}

TEST_F(HuggingFaceFolderTest, AListOfTemplatesWithoutDefaultHasADefaultOnlyIfItIsOne) {
  write("tokenizer.json", small_tokenizer().dump());
  write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "R"}]})");
  EXPECT_EQ(load_tokenizer(folder_)->chat_template(), "R");
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "rag", "template": "R"}, {"name": "b", "template": "B"}]})");
  EXPECT_EQ(load_tokenizer(folder_)->chat_template(), "");
}

TEST_F(HuggingFaceFolderTest, AFolderWithoutOrWithADamagedFileIsNamed) {
  EXPECT_EQ(error_of([&] { load_tokenizer(folder_); }),
            folder_.string() +
                " has no tokenizer.json, the only vocabulary file of such a folder "
                "that is supported");
  write("tokenizer.json", "{");
  EXPECT_EQ(
      error_of([&] { load_tokenizer(folder_); }).rfind(folder_.string() + ": tokenizer.json", 0),
      0U);
  EXPECT_NE(error_of([&] { load_tokenizer(folder_ / "tokenizer.json"); }).find("nor a GGUF file"),
            std::string::npos);
  EXPECT_NE(error_of([&] { load_tokenizer(folder_ / "absent"); }).find("absent"),
            std::string::npos);
}

}  // namespace
}  // namespace minisgl
