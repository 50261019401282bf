// Whole vocabularies against what Hugging Face's tokenizers library makes of several hundred texts.
// tests/data/tokenizers/README.md says where the data comes from.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iomanip>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "testing/unpack.h"
#include "tokenizer/bpe_tokenizer.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/huggingface.h"
#include "tokenizer/tokenizer.h"

namespace minisgl {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<TokenId>;
namespace fs = std::filesystem;

// The shipped folders, and those in the folder that MINISGL_TOKENIZER_DATA names: vocabularies that
// may be tested with but not be distributed.
std::vector<fs::path> folders() {
  std::vector<fs::path> found;
  const char* more = std::getenv("MINISGL_TOKENIZER_DATA");
  for (const fs::path& root :
       {fs::path(MINISGL_TEST_DATA) / "tokenizers", fs::path(more ? more : "")})
    if (fs::is_directory(root))
      for (const auto& entry : fs::directory_iterator(root))
        if (entry.is_directory()) found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

std::vector<Json> read_lines(const fs::path& path) {
  std::vector<Json> lines;
  std::istringstream text(testing_util::read_unpacked(path));
  for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
  return lines;
}

// A vocabulary is loaded once for all tests.
const BpeTokenizer& tokenizer_of(const fs::path& folder) {
  static std::map<fs::path, std::unique_ptr<BpeTokenizer>> loaded;
  auto& tokenizer = loaded[folder];
  if (tokenizer == nullptr) {
    auto parts = parse_tokenizer_json(testing_util::read_unpacked(folder / "tokenizer.json"));
    parse_tokenizer_config(testing_util::read_unpacked(folder / "tokenizer_config.json"), parts);
    tokenizer = std::make_unique<BpeTokenizer>(std::move(parts));
  }
  return *tokenizer;
}

class TokenizerGoldenTest : public testing::TestWithParam<fs::path> {
 protected:
  const BpeTokenizer& tokenizer() const { return tokenizer_of(GetParam()); }
  std::vector<Json> lines(const char* file) const { return read_lines(GetParam() / file); }
};

TEST_P(TokenizerGoldenTest, EncodesEveryTextAsTheReference) {
  for (const Json& row : lines("tokenizer_cases.jsonl")) {
    const std::string text = row["text"];
    const Ids ids = row["ids"];
    EXPECT_EQ(tokenizer().encode(text), ids)
        << row["tag"] << ' ' << row["text"].dump().substr(0, 200);
    EXPECT_EQ(tokenizer().encode(text, {.add_special = true}), row.value("ids_add_special", ids))
        << row["text"].dump().substr(0, 200);
    EXPECT_EQ(tokenizer().encode(text, {.special_as_text = true}),
              row.value("ids_special_as_text", ids))
        << row["text"].dump().substr(0, 200);
  }
}

TEST_P(TokenizerGoldenTest, DecodesEveryListOfIdsAsTheReference) {
  for (const Json& row : lines("tokenizer_cases.jsonl")) {
    const Ids ids = row["ids"];
    const std::string decoded = row["decoded"];
    EXPECT_EQ(tokenizer().decode(ids, /*skip_special=*/false), decoded)
        << row["text"].dump().substr(0, 200);
    EXPECT_EQ(tokenizer().decode(ids, /*skip_special=*/true),
              row.value("decoded_skip_special", decoded))
        << row["text"].dump().substr(0, 200);
  }
}

TEST_P(TokenizerGoldenTest, StreamsThePiecesOfTheReference) {
  for (const Json& row : lines("detok_cases.jsonl")) {
    const Ids ids = row["ids"];
    const bool skip_special = row["skip_special_tokens"];
    IncrementalDetokenizer stream(tokenizer(), skip_special);
    std::vector<std::string> pieces;
    for (const TokenId id : ids) pieces.push_back(stream.push(id));
    const std::string flushed = stream.flush();
    EXPECT_EQ(pieces, row["pieces"].get<std::vector<std::string>>()) << row.dump();
    EXPECT_EQ(flushed, row["flush"].get<std::string>()) << row.dump();
    std::string joined;
    for (const std::string& piece : pieces) joined += piece;
    EXPECT_EQ(joined + flushed, tokenizer().decode(ids, skip_special));
    if (row.contains("note")) continue;  // where the reference's own stream and decode differ
    EXPECT_EQ(tokenizer().decode(ids, skip_special), row["decode"].get<std::string>());
  }
}

TEST_P(TokenizerGoldenTest, AllOfATextInsideAMessageIsEncodedWithoutSpecialTokens) {
  for (const Json& row : lines("tokenizer_cases.jsonl")) {
    const std::string text = row["text"];
    const Ids ids = row["ids"];
    EXPECT_EQ(tokenizer().encode(MarkedText{text, {}}), ids);
    if (text.empty()) continue;
    EXPECT_EQ(tokenizer().encode(MarkedText{text, {{0, text.size()}}}),
              row.value("ids_special_as_text", ids))
        << row["text"].dump().substr(0, 200);
  }
}

TEST_P(TokenizerGoldenTest, CuttingAStreamAnywhereLosesAndDoublesNothing) {
  for (const Json& row : lines("detok_cases.jsonl")) {
    const Ids ids = row["ids"];
    for (std::size_t cut = 0; cut <= std::min<std::size_t>(ids.size(), 40); ++cut) {
      IncrementalDetokenizer stream(tokenizer(), /*skip_special=*/false);
      std::string text;
      for (std::size_t i = 0; i < cut; ++i) {
        const std::string piece = stream.push(ids[i]);
        ASSERT_TRUE(is_valid_utf8(piece));
        text += piece;
      }
      text += stream.flush();
      ASSERT_EQ(text, tokenizer().decode(std::span(ids).first(cut), /*skip_special=*/false));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, TokenizerGoldenTest, testing::ValuesIn(folders()),
                         [](const auto& param) {
                           std::string name = param.param.filename().string();
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

/// FNV-1a, 64 bits, of the ids as little-endian int32.
std::string digest(const Ids& ids) {
  std::uint64_t value = 0xcbf29ce484222325;
  for (const TokenId id : ids)
    for (int shift = 0; shift < 32; shift += 8)
      value = (value ^ (static_cast<std::uint32_t>(id) >> shift & 0xff)) * 0x100000001b3;
  std::ostringstream hex;
  hex << std::hex << std::setw(16) << std::setfill('0') << value;
  return hex.str();
}

// MINISGL_LLAMA3 names a folder with Llama 3's tokenizer.json, which is not part of this
// repository; tests/test_llama3_tokenizer.py fetches it and runs this test.
TEST(Llama3TokenizerTest, EncodesAndDecodesEveryTextAsTheReference) {
  const char* folder = std::getenv("MINISGL_LLAMA3");
  if (folder == nullptr) GTEST_SKIP() << "MINISGL_LLAMA3 is not set";
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(folder);
  const auto rows = read_lines(fs::path(MINISGL_TEST_DATA) / "tokenizers" / "llama3_digests.jsonl");
  ASSERT_GT(rows.size(), 700U);
  for (const Json& row : rows) {
    SCOPED_TRACE(row["text"].dump().substr(0, 200));
    const std::string text = row["text"];
    const Ids ids = tokenizer->encode(text);
    EXPECT_EQ(ids.size(), row["count"].get<std::size_t>());
    EXPECT_EQ(digest(ids), row["ids"]);
    EXPECT_EQ(digest(tokenizer->encode(text, {.add_special = true})), row["ids_add_special"]);
    EXPECT_EQ(digest(tokenizer->encode(text, {.special_as_text = true})),
              row["ids_special_as_text"]);
    EXPECT_EQ(tokenizer->decode(ids, /*skip_special=*/false), row["decoded"]);
    EXPECT_EQ(tokenizer->decode(ids, /*skip_special=*/true), row["decoded_skip_special"]);
    IncrementalDetokenizer stream(*tokenizer, /*skip_special=*/false);
    std::string streamed;
    for (const TokenId id : ids) streamed += stream.push(id);
    EXPECT_EQ(streamed + stream.flush(), row["decoded"]);
  }
}

}  // namespace
}  // namespace minisgl
