#include "tokenizer/gguf_vocabulary.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "minisgl/error.h"
#include "testing/unpack.h"
#include "tokenizer/tokenizer.h"

namespace minisgl {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<TokenId>;
namespace fs = std::filesystem;

const fs::path kData = fs::path(MINISGL_TEST_DATA) / "tokenizers";

std::vector<Json> read_lines(const fs::path& path) {
  std::vector<Json> lines;
  std::istringstream text(testing_util::read_unpacked(path));
  for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
  return lines;
}

TEST(GgufVocabularyTest, AByteLevelVocabularyEncodesAsTheReference) {
  const auto tokenizer = load_tokenizer(kData / "smollm2-small.gguf");
  for (const Json& row : read_lines(kData / "smollm2-small_cases.jsonl")) {
    const std::string text = row["text"];
    const Ids ids = row["ids"];
    ASSERT_EQ(tokenizer->encode(text), ids) << row["text"];
    ASSERT_EQ(tokenizer->encode(text, {.special_as_text = true}),
              row["ids_special_as_text"].get<Ids>());
    ASSERT_EQ(tokenizer->decode(ids, /*skip_special=*/false), row["decoded"].get<std::string>());
  }
}

TEST(GgufVocabularyTest, KeysSayWhatBeginsAndEndsAText) {
  const auto tokenizer = load_tokenizer(kData / "smollm2-small.gguf");
  EXPECT_EQ(tokenizer->vocab_size(), 2003);
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->bos_token(), "<|im_start|>");
  EXPECT_EQ(tokenizer->eos_token(), "<|im_end|>");
  EXPECT_EQ(tokenizer->eos_ids(), (Ids{2, 2001})) << "<|eot_id|> ends a turn by its name";
  EXPECT_EQ(tokenizer->encode("", {.add_special = true}), (Ids{1}));
  EXPECT_EQ(tokenizer->chat_template(),
            "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}");
  EXPECT_TRUE(tokenizer->is_special(2001));
  EXPECT_FALSE(tokenizer->is_special(2000)) << "a user-defined token is added, not special";
  EXPECT_EQ(tokenizer->token_to_id("<think>"), 2000);
  EXPECT_EQ(tokenizer->token_bytes(2002), "") << "an unused token stands for nothing";
  EXPECT_EQ(tokenizer->token_to_id("[PAD2002]"), std::nullopt);
}

TEST(GgufVocabularyTest, ASentencePieceVocabularyEncodesAsTheReference) {
  const auto tokenizer = load_tokenizer(kData / "sp-legacy.gguf");
  for (const Json& row : read_lines(kData / "sp-legacy" / "tokenizer_cases.jsonl")) {
    const std::string text = row["text"];
    const Ids ids = row["ids"];
    ASSERT_EQ(tokenizer->encode(text), ids) << row["text"];
    ASSERT_EQ(tokenizer->encode(text, {.add_special = true}), row.value("ids_add_special", ids));
    ASSERT_EQ(tokenizer->encode(text, {.special_as_text = true}),
              row.value("ids_special_as_text", ids));
    const std::string decoded = row["decoded"];
    ASSERT_EQ(tokenizer->decode(ids, /*skip_special=*/false), decoded);
    ASSERT_EQ(tokenizer->decode(ids, /*skip_special=*/true),
              row.value("decoded_skip_special", decoded));
  }
}

// Writes metadata of the kinds that vocabularies use. Source: ggml's docs/gguf.md.
class GgufWriter {
 public:
  void add(const std::string& key, const std::string& value) {
    begin(key, 8);
    put_string(value);
  }
  void add(const std::string& key, std::uint32_t value) {
    begin(key, 4);
    put(value);
  }
  void add(const std::string& key, const std::vector<std::string>& values) {
    begin_array(key, 8, values.size());
    for (const std::string& value : values) put_string(value);
  }
  void add(const std::string& key, const std::vector<std::int32_t>& values) {
    begin_array(key, 5, values.size());
    for (const std::int32_t value : values) put(value);
  }
  void add(const std::string& key, const std::vector<float>& values) {
    begin_array(key, 6, values.size());
    for (const float value : values) put(value);
  }

  // The error of loading what was added, after the file's path; "no error" when there is none.
  std::string load_error() const {
    const fs::path path = fs::path(testing::TempDir()) / "minisgl_vocabulary_test.gguf";
    {
      std::ofstream out(path, std::ios::binary);
      std::string head = "GGUF";
      const auto append = [&](auto value) {
        head.append(reinterpret_cast<const char*>(&value), sizeof value);
      };
      append(std::uint32_t{3});
      append(std::uint64_t{0});
      append(count_);
      out << head << body_;
    }
    std::string what = "no error";
    try {
      load_tokenizer(path);
    } catch (const Error& error) {
      what = error.what();
      EXPECT_EQ(what.rfind(path.string() + ": ", 0), 0U) << what;
      what.erase(0, path.string().size() + 2);
    }
    fs::remove(path);
    return what;
  }

 private:
  template <class T>
  void put(T value) {
    body_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put_string(const std::string& text) {
    put(std::uint64_t{text.size()});
    body_ += text;
  }
  void begin(const std::string& key, std::uint32_t type) {
    ++count_;
    put_string(key);
    put(type);
  }
  void begin_array(const std::string& key, std::uint32_t type, std::size_t size) {
    begin(key, 9);
    put(type);
    put(std::uint64_t{size});
  }

  std::uint64_t count_ = 0;
  std::string body_;
};

TEST(GgufVocabularyTest, OtherKindsOfVocabularyAndPreTokenizersAreNamedWithTheSupportedOnes) {
  GgufWriter kind;
  kind.add("tokenizer.ggml.model", "t5");
  EXPECT_EQ(kind.load_error(),
            "tokenizer.ggml.model: a vocabulary of kind 't5' is not supported; supported: gpt2, "
            "llama");
  GgufWriter pre;
  pre.add("tokenizer.ggml.model", "gpt2");
  pre.add("tokenizer.ggml.pre", "viking");
  const std::string error = pre.load_error();
  EXPECT_EQ(error.rfind("tokenizer.ggml.pre: pre-tokenizer 'viking' is not supported; supported: "
                        "default, gpt-2, ",
                        0),
            0U)
      << error;
  EXPECT_NE(error.find("qwen2"), std::string::npos);
}

TEST(GgufVocabularyTest, ListsThatDoNotFitEachOtherStopLoading) {
  const auto make = [](const std::vector<std::string>& merges,
                       const std::vector<std::int32_t>& types, std::uint32_t eos) {
    GgufWriter writer;
    writer.add("tokenizer.ggml.model", "gpt2");
    writer.add("tokenizer.ggml.pre", "gpt-2");
    writer.add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab"});
    writer.add("tokenizer.ggml.token_type", types);
    writer.add("tokenizer.ggml.merges", merges);
    writer.add("tokenizer.ggml.eos_token_id", eos);
    return writer.load_error();
  };
  EXPECT_EQ(make({"a b"}, {1, 1, 1}, 0), "no error");
  EXPECT_NE(make({"a b", "b a"}, {1, 1, 1}, 0).find("merge 1 ('b' + 'a') needs the token 'ba'"),
            std::string::npos);
  EXPECT_EQ(make({"a b"}, {1, 1}, 0), "tokenizer.ggml.token_type has 2 entries for 3 tokens");
  EXPECT_EQ(make({"a b"}, {1, 1, 1}, 3),
            "tokenizer.ggml.eos_token_id is 3, but the vocabulary has 3 tokens");

  GgufWriter scores;
  scores.add("tokenizer.ggml.model", "llama");
  scores.add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab"});
  scores.add("tokenizer.ggml.scores", std::vector<float>{0.0F, 0.0F});
  EXPECT_EQ(scores.load_error(), "tokenizer.ggml.scores has 2 entries for 3 tokens");
  GgufWriter nothing;
  nothing.add("tokenizer.ggml.model", "gpt2");
  nothing.add("tokenizer.ggml.pre", "gpt-2");
  EXPECT_NE(nothing.load_error().find("tokenizer.ggml.tokens"), std::string::npos);
}

}  // namespace
}  // namespace minisgl
