// One file of a hub: fetched, resumed, checked, put into the cache.

#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "pull/http.h"
#include "pull/source.h"

namespace minisgl::pull {

/// What a download tells while it runs. All calls come from the thread that pulls.
class Progress {
 public:
  virtual ~Progress() = default;
  /// Files to fetch and their bytes, of which `present_bytes` are there from an earlier attempt.
  virtual void plan(int num_files, std::int64_t total_bytes, std::int64_t present_bytes) = 0;
  virtual void begin_file(const std::string& path, std::int64_t size, std::int64_t present) = 0;
  /// More bytes of the file; negative when it begins anew.
  virtual void advance(std::int64_t bytes) = 0;
  virtual void end_file() = 0;
  virtual void retry(const Retry& retry) = 0;
};

struct RetryPolicy {
  int attempts = 5;  ///< in a row that bring no byte
  std::chrono::milliseconds base{1000};
};

/// Fetches `url` whole into memory. Throws Error with `source`'s explanation.
std::string fetch_text(HttpClient& http, const Source& source, const std::string& url,
                       const std::string& repo, const std::string& revision,
                       const RetryPolicy& policy, Progress& progress);

struct FileDownload {
  std::string repo;
  std::string revision;
  std::string url;
  RemoteFile file;
  std::filesystem::path blob;  ///< where it goes; "<blob>.incomplete" until it is whole
  std::filesystem::path lock;  ///< held meanwhile, against other programs that fetch it
};

/// Bytes of `file` that an earlier attempt left.
std::int64_t present_bytes(const FileDownload& file);

/// Fetches what is missing of a file, checks size and hash and gives it its name. A connection that
/// breaks is taken up again where it broke (HTTP Range). Throws Error: the source's explanation, a
/// disk that is full, a wrong size or hash (then nothing of the file is left); throws Stopped. In
/// all other cases what came so far stays for the next attempt.
void download(HttpClient& http, const Source& source, const FileDownload& file,
              const RetryPolicy& policy, Progress& progress);

}  // namespace minisgl::pull
