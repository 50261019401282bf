#include "hub/cache.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <vector>

#include "base/env.h"
#include "formats/json_file.h"
#include "hub/choose.h"
#include "minisgl/error.h"

namespace minisgl::hub {
namespace {

namespace fs = std::filesystem;

fs::path home() {
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0')
    throw Error("HOME is not set: set HF_HOME to the folder of the model cache");
  return home;
}

/// The value of a variable as a path, "~" written out.
std::optional<fs::path> folder_in(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value == '\0') return std::nullopt;
  const std::string text = value;
  if (text == "~") return home();
  return text.starts_with("~/") ? home() / text.substr(2) : fs::path(text);
}

/// Regular files below `folder`, links to them included, as relative paths.
std::vector<std::string> files_below(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code ignored;
  for (const auto& item : fs::recursive_directory_iterator(folder, ignored))
    if (item.is_regular_file(ignored)) files.push_back(item.path().lexically_relative(folder));
  std::ranges::sort(files);
  return files;
}

[[noreturn]] void incomplete(const ModelName& name, const std::string& what) {
  throw Error(name.text() + " is not complete in the cache: " + what +
              "; to fetch the rest: minisgl pull " + name.text());
}

/// What a checkpoint needs to be there at all; its readers check the rest.
void check_checkpoint(const ModelName& name, const fs::path& snapshot,
                      const std::vector<std::string>& files) {
  const auto has = [&](const std::string& file) {
    return std::ranges::find(files, file) != files.end();
  };
  if (!has("config.json")) incomplete(name, "config.json is missing");
  const fs::path index = snapshot / "model.safetensors.index.json";
  if (!fs::exists(index)) return;
  const nlohmann::json root = read_json_file(index);
  const auto map = root.find("weight_map");
  if (map == root.end() || !map->is_object()) return;  // its reader says what is wrong
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : map->items())
    if (shard.is_string()) shards.insert(shard.get<std::string>());
  for (const std::string& shard : shards)
    if (!has(shard)) incomplete(name, shard + " is missing");
}

}  // namespace

fs::path hub_home() {
  if (const auto folder = folder_in("HF_HOME")) return *folder;
  if (const auto folder = folder_in("XDG_CACHE_HOME")) return *folder / "huggingface";
  return home() / ".cache" / "huggingface";
}

fs::path cache_folder() {
  for (const char* variable : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const auto folder = folder_in(variable)) return *folder;
  return hub_home() / "hub";
}

bool is_offline() {
  return env_bool("HF_HUB_OFFLINE", false) || env_bool("TRANSFORMERS_OFFLINE", false);
}

CachedRepo::CachedRepo(const fs::path& cache, const std::string& repo) {
  std::string name = "models--" + repo;
  if (const std::size_t slash = name.find('/'); slash != std::string::npos)
    name.replace(slash, 1, "--");
  folder_ = cache / name;
}

bool CachedRepo::has_unfinished() const {
  std::error_code none;
  for (const auto& item : fs::directory_iterator(folder_ / "blobs", none))
    if (item.path().extension() == ".incomplete") return true;
  return false;
}

std::optional<fs::path> CachedRepo::find_snapshot(const std::string& revision) const {
  const auto existing = [&](const std::string& commit) -> std::optional<fs::path> {
    if (commit.empty() || !fs::is_directory(snapshot(commit))) return std::nullopt;
    return snapshot(commit);
  };
  std::string commit;
  if (std::ifstream in(ref(revision.empty() ? "main" : revision)); in >> commit)
    return existing(commit);
  if (!revision.empty()) return existing(revision);
  std::vector<fs::path> all;
  std::error_code none;
  for (const auto& item : fs::directory_iterator(folder_ / "snapshots", none))
    all.push_back(item.path());
  return all.size() == 1 ? std::optional(all.front()) : std::nullopt;
}

fs::path find_model(const std::string& model) {
  std::error_code ignored;
  if (fs::exists(model, ignored)) return model;
  const std::optional<ModelName> name = parse_model_name(model);
  if (!name) return model;
  const fs::path cache = cache_folder();
  const CachedRepo repo(cache, name->repo);
  const std::optional<fs::path> snapshot = repo.find_snapshot(name->revision);
  if (!snapshot) {
    if (repo.has_unfinished()) incomplete(*name, "a download did not end");
    throw Error(model + " is no file or folder here, and no such model is in the cache " +
                cache.string() + "; to download it" +
                (is_offline() ? ", without HF_HUB_OFFLINE" : "") + ": minisgl pull " + model);
  }
  const std::vector<std::string> files = files_below(*snapshot);
  if (name->file.empty() && !checkpoint_files(files).empty()) {
    check_checkpoint(*name, *snapshot, files);
    return *snapshot;
  }
  try {
    return *snapshot / choose_gguf(files, name->file, name->repo).front();
  } catch (const Error& error) {
    if (gguf_models(files).empty() && name->file.empty()) incomplete(*name, "it has no weights");
    throw Error("in the cache " + cache.string() + ": " + error.what() +
                (name->file.empty() ? "" : "; to download it: minisgl pull " + model));
  }
}

}  // namespace minisgl::hub
