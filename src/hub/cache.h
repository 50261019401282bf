// The cache of the Hugging Face hub on this machine, in the layout that all its tools share:
//
//   models--org--name/blobs/<hash>                       contents, named by their hash
//   models--org--name/snapshots/<commit>/<path>          symbolic links to blobs
//   models--org--name/refs/<revision>                    the commit of a branch or tag
//
// Source   huggingface_hub's guide "Understand caching".

#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "hub/model_name.h"

namespace minisgl::hub {

/// Where the cache lies: HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, $HF_HOME/hub,
/// $XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub, the first that is set.
std::filesystem::path cache_folder();
/// $HF_HOME or its default: where a token lies.
std::filesystem::path hub_home();
/// HF_HUB_OFFLINE (or TRANSFORMERS_OFFLINE): nothing may be fetched.
bool is_offline();

/// One repository in a cache; nothing has to be there.
class CachedRepo {
 public:
  CachedRepo(const std::filesystem::path& cache, const std::string& repo);

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path blob(const std::string& hash) const { return folder_ / "blobs" / hash; }
  std::filesystem::path snapshot(const std::string& commit) const {
    return folder_ / "snapshots" / commit;
  }
  std::filesystem::path ref(const std::string& revision) const {
    return folder_ / "refs" / revision;
  }
  /// Whether a download was begun and not ended.
  bool has_unfinished() const;
  /// The snapshot of a branch, tag or commit. Empty means main, or the only snapshot there is.
  std::optional<std::filesystem::path> find_snapshot(const std::string& revision) const;

 private:
  std::filesystem::path folder_;
};

/// The GGUF file or folder that `model` means: a path that exists, else the model of that name in
/// the cache. A text that is no name is returned as it is, for the reader to complain about. Throws
/// Error saying how to get a model that is not in the cache, whole.
std::filesystem::path find_model(const std::string& model);

}  // namespace minisgl::hub
