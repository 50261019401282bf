// The hubs that models come from: what a repository holds, and where its files are.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pull/digest.h"
#include "pull/http.h"

namespace minisgl::pull {

struct RemoteFile {
  std::string path;  ///< in the repository; checked to stay inside
  std::int64_t size = 0;
  Hash kind = Hash::kNone;
  std::string hash;  ///< in hexadecimal; what a cache calls the blob
};

struct RemoteModel {
  std::string commit;  ///< what a cache calls the snapshot
  std::vector<RemoteFile> files;
};

/// Another attempt after a failure that may pass.
struct Retry {
  int failures = 0;  ///< so far, without a byte in between
  std::string reason;
  std::chrono::milliseconds wait{0};
};

/// Called before the wait.
using OnRetry = std::function<void(const Retry&)>;

/// One hub. Not thread-safe.
class Source {
 public:
  virtual ~Source() = default;
  virtual const std::string& endpoint() const = 0;
  /// An access token of this user for this hub; empty when there is none.
  virtual const std::string& token() const = 0;
  virtual std::string list_url(const std::string& repo, const std::string& revision) const = 0;
  virtual std::string file_url(const std::string& repo, const RemoteModel& model,
                               const std::string& revision, const std::string& path) const = 0;
  /// Throws Error when `body` is no listing.
  virtual RemoteModel parse_listing(const std::string& body) const = 0;
  /// One line about a reply that is no success: what it means and what to do.
  virtual std::string explain(const HttpReply& reply, const std::string& repo,
                              const std::string& revision) const = 0;
};

/// "huggingface" or "modelscope", as the environment says where that is: HF_ENDPOINT, HF_TOKEN,
/// HUGGING_FACE_HUB_TOKEN, HF_TOKEN_PATH; MODELSCOPE_DOMAIN, MODELSCOPE_API_TOKEN. Throws Error
/// for other names.
std::unique_ptr<Source> make_source(std::string_view name);

/// Whether the same request may succeed later: no reply, an interrupted one, 408, 429 and 5xx.
bool may_pass(const HttpReply& reply);
/// How long to wait after `failures` of them: 1, 2, 4, ... times `base`, or what the reply asks
/// for, at most a minute.
std::chrono::milliseconds wait_time(const HttpReply& reply, int failures,
                                    std::chrono::milliseconds base);
/// Why there was no success, for a line of a log.
std::string reason_of(const HttpReply& reply);

}  // namespace minisgl::pull
