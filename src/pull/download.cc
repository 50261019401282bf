#include "pull/download.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include "formats/file_kind.h"
#include "minisgl/error.h"

namespace minisgl::pull {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::string& what, int error) {
  const char* advice = error == ENOSPC || error == EDQUOT || error == EFBIG
                           ? "; make room and pull again: what is there is kept"
                           : "";
  throw Error(path.string() + " cannot be " + what + ": " + std::strerror(error) + advice);
}

/// An open file.
class File {
 public:
  File(const fs::path& path, int flags) : path_(path), fd_(::open(path.c_str(), flags, 0666)) {
    if (fd_ < 0) fail(path_, "opened", errno);
  }
  ~File() { ::close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int descriptor() const { return fd_; }

  void write(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = ::write(fd_, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail(path_, "written", errno);
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
  }
  /// The bytes from the current position on; fewer at the end.
  std::size_t read(std::span<std::byte> bytes) const {
    ssize_t count = 0;
    do {
      count = ::read(fd_, bytes.data(), bytes.size());
    } while (count < 0 && errno == EINTR);
    if (count < 0) fail(path_, "read", errno);
    return static_cast<std::size_t>(count);
  }
  void truncate() const {
    if (::ftruncate(fd_, 0) != 0 || ::lseek(fd_, 0, SEEK_SET) != 0) fail(path_, "emptied", errno);
  }
  void sync() const {
    if (::fsync(fd_) != 0) fail(path_, "written", errno);
  }

 private:
  fs::path path_;
  int fd_;
};

/// Waits for another program that fetches the same file. Source: huggingface_hub locks with flock()
/// too, on the same file.
class Lock {
 public:
  Lock(const fs::path& path, const HttpClient& http) : file_(path, O_RDWR | O_CREAT | O_CLOEXEC) {
    constexpr auto kPoll = std::chrono::milliseconds(200);
    while (::flock(file_.descriptor(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) fail(path, "locked", errno);
      http.sleep(kPoll);
    }
  }

 private:
  File file_;
};

fs::path unfinished(const FileDownload& file) { return file.blob.string() + ".incomplete"; }

/// The part of a file that is there, and the digest of it.
class Part {
 public:
  Part(const FileDownload& file, const HttpClient& http)
      : path_(unfinished(file)),
        size_(file.file.size),
        kind_(file.file.kind),
        out_(path_, O_RDWR | O_CREAT | O_CLOEXEC) {
    restart_digest();
    std::vector<std::byte> buffer(1 << 20);
    while (const std::size_t count = out_.read(buffer)) {
      take(std::span(buffer).first(count));
      http.sleep(std::chrono::milliseconds(0));  // gigabytes take seconds: may be stopped
    }
  }

  std::int64_t bytes() const { return bytes_; }

  void append(std::span<const std::byte> bytes) {
    out_.write(bytes);
    take(bytes);
  }
  void restart() {
    out_.truncate();
    bytes_ = 0;
    restart_digest();
  }
  /// Checks the whole and gives it its name; nothing is left of a wrong one.
  void finish(const FileDownload& file) {
    const std::string hash = digest_->hex();
    if (bytes_ != size_ || hash != file.file.hash) {
      fs::remove(path_);
      const std::string what = file.repo + ": " + file.file.path;
      if (bytes_ != size_)
        throw Error(what + " has " + std::to_string(bytes_) + " bytes, expected " +
                    std::to_string(size_) + "; it was removed: pull again");
      throw Error(what + " is damaged: its " +
                  (kind_ == Hash::kSha256 ? "SHA-256" : "git hash (SHA-1)") + " is " + hash +
                  ", expected " + file.file.hash + "; it was removed: pull again");
    }
    out_.sync();
    fs::rename(path_, file.blob);
  }

 private:
  void restart_digest() { digest_.emplace(kind_, size_); }
  void take(std::span<const std::byte> bytes) {
    digest_->update(bytes);
    bytes_ += static_cast<std::int64_t>(bytes.size());
  }

  fs::path path_;
  std::int64_t size_;
  Hash kind_;
  File out_;
  std::optional<Digest> digest_;
  std::int64_t bytes_ = 0;
};

/// The first byte that a reply to a request for a range has; nothing when it does not say.
std::optional<std::int64_t> first_byte(const HttpReply& reply) {
  const std::string range = reply.header("content-range");  // "bytes 100-199/200"
  std::int64_t first = 0;
  if (std::sscanf(range.c_str(), "bytes %ld-", &first) != 1) return std::nullopt;
  return first;
}

/// One request for what is missing. Whether the reply was a good one.
bool fetch_rest(HttpClient& http, const Source& source, const FileDownload& file, Part& part,
                Progress& progress, HttpReply& reply) {
  HttpClient::Request request{.url = file.url,
                              .token = source.token(),
                              .from = part.bytes(),
                              .on_reply = {},
                              .on_body = {}};
  const auto begin_anew = [&] {
    progress.advance(-part.bytes());
    part.restart();
  };
  request.on_reply = [&](const HttpReply& head) {
    if (head.status == 200 && part.bytes() > 0) begin_anew();  // a server without ranges
    if (head.status == 206 && first_byte(head) != part.bytes())
      throw Error(file.url + ": asked for the bytes from " + std::to_string(part.bytes()) +
                  ", got " + in_quotes(head.header("content-range")));
    return true;
  };
  request.on_body = [&](std::span<const std::byte> bytes) {
    part.append(bytes);
    progress.advance(static_cast<std::int64_t>(bytes.size()));
    if (part.bytes() > file.file.size) {
      begin_anew();
      throw Error(file.repo + ": " + file.file.path + " has more bytes than the " +
                  std::to_string(file.file.size) + " that the hub tells");
    }
  };
  reply = http.get(request);
  if (reply.status == 416) begin_anew();  // what is there is no part of it
  return (reply.status == 200 || reply.status == 206) && reply.fault.empty();
}

}  // namespace

std::string fetch_text(HttpClient& http, const Source& source, const std::string& url,
                       const std::string& repo, const std::string& revision,
                       const RetryPolicy& policy, Progress& progress) {
  for (int failures = 0;; ++failures) {
    HttpReply reply =
        http.get({.url = url, .token = source.token(), .on_reply = {}, .on_body = {}});
    if (reply.status == 200 && reply.fault.empty()) return std::move(reply.body);
    if (!may_pass(reply) || failures + 1 >= policy.attempts)
      throw Error(source.explain(reply, repo, revision));
    const Retry retry{failures + 1, reason_of(reply), wait_time(reply, failures, policy.base)};
    progress.retry(retry);
    http.sleep(retry.wait);
  }
}

std::int64_t present_bytes(const FileDownload& file) {
  std::error_code none;
  const std::uintmax_t size = fs::file_size(unfinished(file), none);
  return none ? 0 : std::min(static_cast<std::int64_t>(size), file.file.size);
}

void download(HttpClient& http, const Source& source, const FileDownload& file,
              const RetryPolicy& policy, Progress& progress) {
  fs::create_directories(file.blob.parent_path());
  fs::create_directories(file.lock.parent_path());
  const Lock lock(file.lock, http);
  const auto is_there = [&] { return fs::exists(file.blob); };  // another program fetched it
  if (is_there()) return progress.advance(file.file.size - present_bytes(file));
  Part part(file, http);
  if (part.bytes() > file.file.size) part.restart();
  for (int failures = 0; part.bytes() < file.file.size;) {
    const std::int64_t before = part.bytes();
    HttpReply reply;
    const bool good = fetch_rest(http, source, file, part, progress, reply);
    if (part.bytes() >= file.file.size) break;
    if (!good && reply.status != 416 && !may_pass(reply))
      throw Error(source.explain(reply, file.repo, file.revision));
    if (part.bytes() > before) failures = 0;  // it goes on, if slowly
    if (++failures >= policy.attempts)
      throw Error(file.repo + ": " + file.file.path + ": " +
                  (good ? "the reply ends too early" : reason_of(reply)) + ", " +
                  std::to_string(failures) + " times; what came so far is kept: pull again later");
    const Retry retry{failures, good ? "the reply ends too early" : reason_of(reply),
                      wait_time(reply, failures - 1, policy.base)};
    progress.retry(retry);
    http.sleep(retry.wait);
  }
  part.finish(file);
}

}  // namespace minisgl::pull
