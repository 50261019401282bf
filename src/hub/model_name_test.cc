#include "hub/model_name.h"

#include <gtest/gtest.h>

namespace minisgl::hub {
namespace {

TEST(ModelNameTest, ANameHasARepositoryAndMayHaveRevisionAndFile) {
  EXPECT_EQ(parse_model_name("Qwen/Qwen3-0.6B"), (ModelName{"Qwen/Qwen3-0.6B", "", ""}));
  EXPECT_EQ(parse_model_name("a/b@v1.0"), (ModelName{"a/b", "v1.0", ""}));
  EXPECT_EQ(parse_model_name("a/b:Q4_K_M"), (ModelName{"a/b", "", "Q4_K_M"}));
  EXPECT_EQ(parse_model_name("a/b@refs/pr/3:x/y.gguf"),
            (ModelName{"a/b", "refs/pr/3", "x/y.gguf"}));
  for (const char* text : {"a/b", "a/b@main", "a/b:Q8_0", "a/b@main:f.gguf"})
    EXPECT_EQ(parse_model_name(text)->text(), text);
}

TEST(ModelNameTest, PathsAndWhatLeadsOutOfAFolderAreNoNames) {
  for (const char* text : {"",
                           "gpt2",
                           "/a/b",
                           "./b",
                           "../b",
                           "a/",
                           "/a",
                           "a/b/c",
                           "~/b",
                           "a b/c",
                           "a/b--c",
                           "a/b..c",
                           "-a/b",
                           "a/b-",
                           "a/.b",
                           "a/b.",
                           "models/x.gguf",
                           "a/x.safetensors",
                           "a/b:",
                           "a/b@",
                           "a/b:/etc/passwd",
                           "a/b:../x.gguf",
                           "a/b@../../x",
                           "a/b:x//y",
                           "a/b:x\n",
                           "a\xC3\xA9/b"})
    EXPECT_FALSE(parse_model_name(text)) << text;
  EXPECT_TRUE(parse_model_name("a/" + std::string(94, 'x')));
  EXPECT_FALSE(parse_model_name("a/" + std::string(95, 'x'))) << "97 characters";
}

}  // namespace
}  // namespace minisgl::hub
