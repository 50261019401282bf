// Where tests find the sample model, SmolLM2-135M-Instruct in GGUF, and what transformers makes of
// it.

#pragma once

#include <cstdlib>
#include <filesystem>

#include "base/check.h"

namespace minisgl {

inline std::filesystem::path sample_model_path() {
  const char* chosen = std::getenv("MINISGL_MODEL");
  const std::filesystem::path path = chosen != nullptr ? chosen : MINISGL_SAMPLE_MODEL;
  check(std::filesystem::exists(path), path.string(), " is missing: ./scripts/test fetches it");
  return path;
}

/// golden.json there has prompts, their ids, first logits and greedy answers.
inline std::filesystem::path sample_model_data() {
  return std::filesystem::path(MINISGL_TEST_DATA) / "smollm2";
}

}  // namespace minisgl
