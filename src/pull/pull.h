// A model from a hub into the cache.

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "hub/model_name.h"
#include "pull/download.h"

namespace minisgl::pull {

struct PullOptions {
  std::string source = "huggingface";  ///< or "modelscope"
  std::vector<std::string> include;    ///< patterns; empty: what the engine needs
  RetryPolicy retry = {};
};

struct PullResult {
  std::filesystem::path snapshot;  ///< the folder of links
  int num_files = 0;               ///< of the model, as chosen
  int num_fetched = 0;
  std::int64_t fetched_bytes = 0;  ///< of this call
};

/// Fetches what is missing of a model; nothing when all is there. The ref is written last, so that
/// an older snapshot stays what the name means until the new one is whole.
///
/// Errors   Error in one line: offline, no such model, no access, no room, a damaged file, nothing
///          that the engine can load, a connection that broke too often. Stopped when `stop` says
///          so. What came so far is kept, and the same call goes on from there.
PullResult pull(const hub::ModelName& name, const PullOptions& options, Progress& progress,
                const std::function<bool()>& stop);

}  // namespace minisgl::pull
