// For tests of configuration readers: a folder with a config.json.

#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "minisgl/error.h"
#include "models/config.h"
#include "testing/tiny_model.h"

namespace minisgl::models {

namespace fs = std::filesystem;
using nlohmann::json;

inline std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    return e.what();
  }
  return "no error";
}

inline fs::path tiny(const std::string& name) { return testing_util::tiny_model(name); }

class ConfigTest : public testing::Test {
 protected:
  ConfigTest() { fs::create_directories(folder_); }
  ~ConfigTest() override { fs::remove_all(folder_); }

  /// The config.json of a small Llama, with `changes` (a JSON merge patch: null removes a key).
  void write_config(const json& changes, const json& removed = json::object()) const {
    json config = {{"architectures", {"LlamaForCausalLM"}},
                   {"hidden_size", 64},
                   {"intermediate_size", 96},
                   {"num_hidden_layers", 2},
                   {"num_attention_heads", 4},
                   {"num_key_value_heads", 2},
                   {"vocab_size", 100},
                   {"max_position_embeddings", 256}};
    config.merge_patch(removed);
    config.update(changes);  // keeps nulls, unlike a patch
    write("config.json", config.dump());
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  ModelConfig read() const { return read_huggingface_config(folder_); }
  ModelConfig read(const json& changes) const {
    write_config(changes);
    return read();
  }
  std::string error_of(const json& changes, const json& removed = json::object()) const {
    write_config(changes, removed);
    return message_of([this] { read(); });
  }

  const fs::path folder_ =
      fs::temp_directory_path() / ("minisgl_config_test_" + std::to_string(::getpid()));
};

}  // namespace minisgl::models
