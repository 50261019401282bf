#include "hub/choose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "minisgl/error.h"

namespace minisgl::hub {
namespace {

using Files = std::vector<std::string>;
using testing::HasSubstr;

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

const Files kQuants = {"README.md",
                       "m-IQ4_XS.gguf",
                       "m-Q4_K.gguf",
                       "m-Q4_K_M.gguf",
                       "m-q8_0.gguf",
                       "m.imatrix.gguf",
                       "mmproj-m-f16.gguf",
                       "big/m-BF16-00001-of-00002.gguf",
                       "big/m-BF16-00002-of-00002.gguf"};

TEST(ChooseTest, AQuantisationIsFoundInAnyCaseAndAsAWholeWord) {
  EXPECT_EQ(choose_gguf(kQuants, "Q4_K_M", "a/b"), (Files{"m-Q4_K_M.gguf"}));
  EXPECT_EQ(choose_gguf(kQuants, "q4_k", "a/b"), (Files{"m-Q4_K.gguf"})) << "not Q4_K_M as well";
  EXPECT_EQ(choose_gguf(kQuants, "Q8_0", "a/b"), (Files{"m-q8_0.gguf"}));
  EXPECT_EQ(choose_gguf({"m_iq4_xs.gguf", "m_q4_xs.gguf"}, "Q4_XS", "a/b"),
            (Files{"m_q4_xs.gguf"}));
  EXPECT_EQ(choose_gguf({"m.Q2_K.gguf"}, "q2_k", "a/b"), (Files{"m.Q2_K.gguf"}));
}

TEST(ChooseTest, AFileIsFoundByItsPathOrItsName) {
  EXPECT_EQ(choose_gguf(kQuants, "m-Q4_K.gguf", "a/b"), (Files{"m-Q4_K.gguf"}));
  const Files parts = {"big/m-BF16-00001-of-00002.gguf", "big/m-BF16-00002-of-00002.gguf"};
  EXPECT_EQ(choose_gguf(kQuants, "bf16", "a/b"), parts);
  EXPECT_EQ(choose_gguf(kQuants, "m-BF16.gguf", "a/b"), parts);
  EXPECT_EQ(choose_gguf(kQuants, "m-BF16-00001-of-00002.gguf", "a/b"), parts);
  EXPECT_EQ(choose_gguf({"x/only.gguf"}, "", "a/b"), (Files{"x/only.gguf"}));
}

TEST(ChooseTest, WhatIsNotThereOrNotClearListsWhatThereIs) {
  EXPECT_THAT(error_of([] { choose_gguf(kQuants, "Q6_K", "a/b"); }),
              testing::AllOf(HasSubstr("a/b has no GGUF file 'Q6_K'; it has big/m-BF16.gguf, "),
                             HasSubstr("m-Q4_K_M.gguf"), testing::Not(HasSubstr("mmproj"))));
  EXPECT_EQ(error_of([] { choose_gguf({"x-Q4_0.gguf", "y-Q4_0.gguf"}, "q4_0", "a/b"); }),
            "a/b has several GGUF files of 'q4_0': x-Q4_0.gguf, y-Q4_0.gguf; say which, as in "
            "a/b:x-Q4_0.gguf");
  EXPECT_THAT(error_of([] { choose_gguf(kQuants, "", "a/b"); }),
              HasSubstr("a/b has several GGUF files: "));
  EXPECT_EQ(error_of([] { choose_gguf({"README.md"}, "Q4_0", "a/b"); }), "a/b has no GGUF file");
}

TEST(ChooseTest, ACheckpointIsWhatTheEngineReadsAndNoMore) {
  const Files files = {".gitattributes",
                       "README.md",
                       "config.json",
                       "consolidated.safetensors",
                       "generation_config.json",
                       "model-00001-of-00002.safetensors",
                       "model-00002-of-00002.safetensors",
                       "model.safetensors.index.json",
                       "onnx/model.onnx",
                       "original/model.safetensors",
                       "pytorch_model.bin",
                       "pytorch_model.bin.index.json",
                       "tokenizer.json",
                       "chat_template.jinja"};
  EXPECT_EQ(choose_files(files, "", "a/b"),
            (Files{"chat_template.jinja", "config.json", "generation_config.json",
                   "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                   "model.safetensors.index.json", "tokenizer.json"}));
  EXPECT_EQ(checkpoint_files({"config.json", "consolidated.safetensors"}),
            (Files{"config.json", "consolidated.safetensors"}));
  EXPECT_EQ(checkpoint_files({"config.json", "m.gguf"}), Files{});
  EXPECT_EQ(choose_files({"config.json", "m.gguf"}, "", "a/b"), (Files{"m.gguf"}));
}

TEST(ChooseTest, ARepositoryWithoutWeightsThatWeLoadSaysWhatItHas) {
  EXPECT_THAT(error_of([] { choose_files({"config.json", "pytorch_model.bin"}, "", "a/b"); }),
              testing::AllOf(HasSubstr("a/b has neither safetensors nor GGUF weights"),
                             HasSubstr("it has pytorch_model.bin")));
}

TEST(ChooseTest, PatternsAreThoseOfAShell) {
  const Files files = {"a.json", "b.txt", "x/c.json"};
  EXPECT_EQ(matching_files(files, {"*.json"}, "a/b"), (Files{"a.json", "x/c.json"}));
  EXPECT_EQ(matching_files(files, {"x/*", "b.???"}, "a/b"), (Files{"b.txt", "x/c.json"}));
  EXPECT_EQ(error_of([&] { matching_files(files, {"*.bin", "*.pt"}, "a/b"); }),
            "a/b has no file like *.bin, *.pt");
}

}  // namespace
}  // namespace minisgl::hub
