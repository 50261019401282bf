// Checked values out of config.json and out of GGUF metadata. Errors name file, key and what was
// found.

#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/model_config.h"
#include "formats/gguf.h"

namespace minisgl::models {

/// Products of two sizes fit an int64 and ids an int32; every real model is far below.
constexpr std::int64_t kMaxSize = std::int64_t{1} << 30;

/// Throws Error "where: fault".
[[noreturn]] void fail(const std::string& where, const std::string& fault);

/// The beginning of a value, for messages.
std::string shown(const nlohmann::json& value);

/// What must hold whatever file the sizes came from.
void check_consistent(const ModelConfig& config, const std::string& where);

/// The ids that a model of this vocabulary can draw, ascending. A file may name an end token that
/// it cannot; nobody else has to expect one.
std::vector<TokenId> drawable(const std::set<TokenId>& ids, std::int64_t vocab_size);

/// hidden / heads, when a file does not say.
std::int64_t default_head_dim(std::int64_t hidden, std::int64_t heads, const std::string& where);

/// An object of config.json, which must outlive it; a key that is null is a key that is absent.
/// `where` begins every message. find_*() return nothing for a key that is absent.
class JsonSection {
 public:
  JsonSection(const nlohmann::json& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  const std::string& where() const { return where_; }

  const nlohmann::json* find(const char* key) const;
  /// Is `key` there, even as null?
  bool contains(const char* key) const { return object_.contains(key); }

  std::optional<std::int64_t> find_size(const char* key) const;  ///< 1 to kMaxSize
  std::int64_t size(const char* key) const;
  std::optional<double> find_positive(const char* key) const;  ///< finite, above 0
  double positive(const char* key) const;
  std::optional<bool> find_bool(const char* key) const;
  std::optional<std::string> find_string(const char* key) const;

 private:
  const nlohmann::json& object_;
  std::string where_;
};

/// The metadata of one architecture: the key of name "block_count" is "llama.block_count".
class GgufSection {
 public:
  GgufSection(const GgufFile& file, std::string_view architecture)
      : file_(file), where_(file.path().string()), prefix_(std::string(architecture) + ".") {}

  const GgufFile& file() const { return file_; }
  const std::string& where() const { return where_; }
  std::string key(std::string_view name) const { return prefix_ + std::string(name); }

  std::optional<std::int64_t> find_size(std::string_view name) const;
  std::int64_t size(std::string_view name) const;
  std::optional<double> find_positive(std::string_view name) const;
  double positive(std::string_view name) const;
  std::optional<std::string> find_string(std::string_view name) const;

 private:
  const GgufFile& file_;
  std::string where_;
  std::string prefix_;
};

}  // namespace minisgl::models
