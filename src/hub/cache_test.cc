#include "hub/cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "minisgl/error.h"

namespace minisgl::hub {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kVariables[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME",
                                      "XDG_CACHE_HOME", "HOME"};

/// An empty cache in a folder of its own; the environment is put back.
class CacheTest : public testing::Test {
 protected:
  CacheTest() {
    for (const char* name : kVariables) {
      if (const char* value = std::getenv(name)) saved_[name] = value;
      unsetenv(name);
    }
    std::string pattern = (fs::temp_directory_path() / "minisgl-cache-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    setenv("HF_HUB_CACHE", root_.c_str(), 1);
  }
  ~CacheTest() override {
    for (const char* name : kVariables) {
      unsetenv(name);
      if (const auto found = saved_.find(name); found != saved_.end())
        setenv(name, found->second.c_str(), 1);
    }
    fs::remove_all(root_);
  }

  void write(const std::string& path, const std::string& text = "x") const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  static std::string error_of(const std::string& model) {
    try {
      return "found " + find_model(model).string();
    } catch (const Error& error) {
      return error.what();
    }
  }

  fs::path root_;

 private:
  std::map<std::string, std::string> saved_;
};

TEST_F(CacheTest, TheFolderIsTheFirstOneThatTheEnvironmentNames) {
  unsetenv("HF_HUB_CACHE");
  setenv("HOME", "/home/me", 1);
  EXPECT_EQ(cache_folder(), "/home/me/.cache/huggingface/hub");
  setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(cache_folder(), "/cache/huggingface/hub");
  setenv("HF_HOME", "~/hf", 1);
  EXPECT_EQ(cache_folder(), "/home/me/hf/hub");
  EXPECT_EQ(hub_home(), "/home/me/hf");
  setenv("HUGGINGFACE_HUB_CACHE", "/old", 1);
  EXPECT_EQ(cache_folder(), "/old");
  setenv("HF_HUB_CACHE", "/new", 1);
  EXPECT_EQ(cache_folder(), "/new");
}

TEST_F(CacheTest, APathThatExistsWinsOverAName) {
  write("models--tmp--x/refs/main", "c1");
  const fs::path before = fs::current_path();
  fs::current_path(root_);
  write("tmp/x/config.json");
  EXPECT_EQ(find_model("tmp/x"), "tmp/x");
  fs::current_path(before);
  EXPECT_EQ(find_model("/no/such/file.gguf"), "/no/such/file.gguf") << "its reader complains";
}

TEST_F(CacheTest, ANameIsTheSnapshotThatItsRefNames) {
  for (const char* commit : {"c1", "c2"}) {
    write("models--a--b/snapshots/" + std::string(commit) + "/config.json");
    write("models--a--b/snapshots/" + std::string(commit) + "/model.safetensors");
  }
  write("models--a--b/refs/main", "c2\n");
  write("models--a--b/refs/refs/pr/1", "c1");
  const fs::path snapshots = root_ / "models--a--b/snapshots";
  EXPECT_EQ(find_model("a/b"), snapshots / "c2");
  EXPECT_EQ(find_model("a/b@c1"), snapshots / "c1");
  EXPECT_EQ(find_model("a/b@refs/pr/1"), snapshots / "c1");
  EXPECT_THAT(error_of("a/b@v9"), HasSubstr("to download it: minisgl pull a/b@v9"));
}

TEST_F(CacheTest, WhatIsNotThereSaysHowToGetIt) {
  EXPECT_EQ(error_of("a/b"), "a/b is no file or folder here, and no such model is in the cache " +
                                 root_.string() + "; to download it: minisgl pull a/b");
}

TEST_F(CacheTest, AnUnfinishedDownloadSaysHowToGoOn) {
  write("models--a--b/blobs/123.incomplete");
  write("models--a--b/snapshots/c1/config.json");
  write("models--a--b/snapshots/c2/config.json");
  EXPECT_THAT(error_of("a/b"), HasSubstr("is not complete in the cache: a download did not end; to "
                                         "fetch the rest: minisgl pull a/b"));
}

TEST_F(CacheTest, AShardThatIsMissingIsNamed) {
  write("models--a--b/snapshots/c1/config.json");
  write("models--a--b/snapshots/c1/model-1.safetensors");
  write("models--a--b/snapshots/c1/model.safetensors.index.json",
        R"({"weight_map": {"x": "model-1.safetensors", "y": "model-2.safetensors"}})");
  EXPECT_THAT(error_of("a/b"),
              AllOf(HasSubstr("model-2.safetensors is missing"), HasSubstr("minisgl pull a/b")));
  write("models--a--b/snapshots/c1/model-2.safetensors");
  EXPECT_EQ(find_model("a/b"), root_ / "models--a--b/snapshots/c1");
}

TEST_F(CacheTest, GgufFilesAreFoundByNameAndQuantisationAndAloneWithoutEither) {
  const fs::path snapshot = root_ / "models--a--b-GGUF/snapshots/c1";
  write("models--a--b-GGUF/snapshots/c1/b-Q4_K_M.gguf");
  EXPECT_EQ(find_model("a/b-GGUF"), snapshot / "b-Q4_K_M.gguf");
  write("models--a--b-GGUF/snapshots/c1/b-Q8_0.gguf");
  EXPECT_EQ(find_model("a/b-GGUF:q4_k_m"), snapshot / "b-Q4_K_M.gguf");
  EXPECT_EQ(find_model("a/b-GGUF:b-Q8_0.gguf"), snapshot / "b-Q8_0.gguf");
  EXPECT_THAT(error_of("a/b-GGUF"),
              HasSubstr("has several GGUF files: b-Q4_K_M.gguf, b-Q8_0.gguf"));
  EXPECT_THAT(error_of("a/b-GGUF:Q2_K"),
              AllOf(HasSubstr("no GGUF file 'Q2_K'"), HasSubstr("minisgl pull a/b-GGUF:Q2_K")));
}

}  // namespace
}  // namespace minisgl::hub
