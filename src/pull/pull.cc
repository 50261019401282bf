#include "pull/pull.h"

#include <algorithm>
#include <fstream>

#include "formats/file_kind.h"
#include "hub/cache.h"
#include "hub/choose.h"
#include "minisgl/error.h"

namespace minisgl::pull {
namespace {

namespace fs = std::filesystem;

std::string in_gb(std::int64_t bytes) {
  const std::string tenths = std::to_string((bytes + 50'000'000) / 100'000'000);
  return (tenths.size() > 1 ? tenths.substr(0, tenths.size() - 1) : "0") + "." + tenths.back() +
         " GB";
}

std::vector<RemoteFile> choose(const RemoteModel& model, const hub::ModelName& name,
                               const PullOptions& options) {
  std::vector<std::string> paths;
  for (const RemoteFile& file : model.files) paths.push_back(file.path);
  const std::vector<std::string> wanted =
      options.include.empty() ? hub::choose_files(paths, name.file, name.repo)
                              : hub::matching_files(paths, options.include, name.repo);
  std::vector<RemoteFile> files;
  for (const RemoteFile& file : model.files)
    if (std::ranges::find(wanted, file.path) != wanted.end()) files.push_back(file);
  // Small ones first: what is wrong with a model shows before the hours of its weights.
  std::ranges::stable_sort(files, {}, &RemoteFile::size);
  return files;
}

void check_room(const fs::path& cache, std::int64_t bytes) {
  fs::path existing = cache;
  while (!existing.empty() && !fs::exists(existing)) existing = existing.parent_path();
  std::error_code unknown;
  const fs::space_info space = fs::space(existing.empty() ? "." : existing, unknown);
  if (unknown || static_cast<std::int64_t>(space.available) >= bytes) return;
  throw Error("not enough room in " + cache.string() + ": " + in_gb(bytes) + " are needed, " +
              in_gb(static_cast<std::int64_t>(space.available)) +
              " are free (HF_HUB_CACHE moves the cache)");
}

/// snapshots/<commit>/<path> -> the blob, relative so that the cache can be moved.
void link(const hub::CachedRepo& repo, const std::string& commit, const RemoteFile& file) {
  const fs::path place = repo.snapshot(commit) / file.path;
  const fs::path target = repo.blob(file.hash).lexically_relative(place.parent_path());
  std::error_code none;
  if (fs::read_symlink(place, none) == target) return;
  fs::create_directories(place.parent_path());
  fs::remove(place, none);
  fs::create_symlink(target, place);
}

void write_ref(const fs::path& path, const std::string& commit) {
  fs::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::trunc);
  if (!(out << commit).flush()) throw Error(path.string() + " cannot be written");
}

}  // namespace

PullResult pull(const hub::ModelName& name, const PullOptions& options, Progress& progress,
                const std::function<bool()>& stop) {
  const std::unique_ptr<Source> source = make_source(options.source);
  const fs::path cache = hub::cache_folder();
  const hub::CachedRepo repo(cache, name.repo);
  if (hub::is_offline()) throw Error("HF_HUB_OFFLINE is set: nothing is downloaded");

  HttpClient http(stop);
  const RemoteModel model =
      source->parse_listing(fetch_text(http, *source, source->list_url(name.repo, name.revision),
                                       name.repo, name.revision, options.retry, progress));
  const std::vector<RemoteFile> files = choose(model, name, options);
  std::vector<FileDownload> missing;
  std::int64_t total = 0, present = 0;
  for (const RemoteFile& file : files) {
    std::error_code none;
    const fs::path blob = repo.blob(file.hash);
    if (fs::file_size(blob, none) == static_cast<std::uintmax_t>(file.size) && !none) continue;
    fs::remove(blob, none);  // of another size: not what its name says
    missing.push_back(
        {.repo = name.repo,
         .revision = name.revision,
         .url = source->file_url(name.repo, model, name.revision, file.path),
         .file = file,
         .blob = blob,
         .lock = cache / ".locks" / repo.folder().filename() / (file.hash + ".lock")});
    total += file.size;
    present += present_bytes(missing.back());
  }
  check_room(cache, total - present);
  progress.plan(static_cast<int>(missing.size()), total, present);
  for (const RemoteFile& file : files) {
    const auto lacks =
        std::ranges::find(missing, file.path, [](const FileDownload& f) { return f.file.path; });
    if (lacks != missing.end()) {
      progress.begin_file(file.path, file.size, present_bytes(*lacks));
      download(http, *source, *lacks, options.retry, progress);
      progress.end_file();
    }
    link(repo, model.commit, file);
  }
  write_ref(repo.ref(name.revision.empty() ? "main" : name.revision), model.commit);
  return {.snapshot = repo.snapshot(model.commit),
          .num_files = static_cast<int>(files.size()),
          .num_fetched = static_cast<int>(missing.size()),
          .fetched_bytes = total - present};
}

}  // namespace minisgl::pull
