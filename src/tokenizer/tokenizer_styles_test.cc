// The processing steps of real tokenizer.json files, with small vocabularies, against what Hugging
// Face's tokenizers library makes of a hundred texts. tools/oracle/make_tokenizer_styles.py made
// them.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "testing/unpack.h"
#include "tokenizer/bpe_tokenizer.h"
#include "tokenizer/huggingface.h"

namespace minisgl {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<TokenId>;

const Json& styles() {
  static const Json all = Json::parse(testing_util::read_unpacked(
      std::filesystem::path(MINISGL_TEST_DATA) / "tokenizers" / "styles.json"));
  return all;
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& [name, style] : styles().items()) all.push_back(name);
  return all;
}

class TokenizerStyleTest : public testing::TestWithParam<std::string> {};

TEST_P(TokenizerStyleTest, EncodesAndDecodesAsTheReference) {
  const Json& style = styles()[GetParam()];
  const BpeTokenizer tokenizer(parse_tokenizer_json(style["tokenizer"].dump()));
  for (const Json& row : style["cases"]) {
    const std::string text = row["text"];
    const Ids ids = row["ids"];
    EXPECT_EQ(tokenizer.encode(text), ids) << row["text"];
    EXPECT_EQ(tokenizer.encode(text, {.add_special = true}), row["ids_add_special"].get<Ids>())
        << row["text"];
    EXPECT_EQ(tokenizer.encode(text, {.special_as_text = true}),
              row["ids_special_as_text"].get<Ids>())
        << row["text"];
    EXPECT_EQ(tokenizer.decode(ids, /*skip_special=*/false), row["decoded"].get<std::string>())
        << row["text"];
    EXPECT_EQ(tokenizer.decode(ids, /*skip_special=*/true),
              row["decoded_skip_special"].get<std::string>())
        << row["text"];
  }
}

INSTANTIATE_TEST_SUITE_P(Styles, TokenizerStyleTest, testing::ValuesIn(names()),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace minisgl
