// Names of models on a hub: "org/name", with a revision and a file when there is a choice.

#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace minisgl::hub {

/// "org/name", "org/name@revision", "org/name:file.gguf", "org/name:Q4_K_M".
struct ModelName {
  std::string repo;      ///< "org/name"
  std::string revision;  ///< branch, tag or commit; empty: the default branch
  std::string file;      ///< a GGUF file of the repository or what its quantisation is called
  bool operator==(const ModelName&) const = default;

  /// As a user would write it.
  std::string text() const;
};

/// Nothing when `text` is of another form: a path such as "./x", "/x", "x.gguf" or "a/b/c".
/// Source   huggingface_hub's validate_repo_id(): letters, digits, '.', '_' and '-' in each half,
///          at most 96 characters, no "--" or "..", no '-' or '.' at the ends of a half.
std::optional<ModelName> parse_model_name(std::string_view text);

}  // namespace minisgl::hub
