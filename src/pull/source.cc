// Sources: huggingface_hub's documentation of the HTTP interface and its constants.py for the names
// of environment variables; ModelScope's documentation of its OpenAPI and modelscope/hub/api.py.

#include "pull/source.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>

#include "formats/file_kind.h"
#include "formats/json_file.h"
#include "hub/cache.h"
#include "hub/model_name.h"
#include "minisgl/error.h"

namespace minisgl::pull {
namespace {

using nlohmann::json;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string trimmed(std::string text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && blank(text.back())) text.pop_back();
  text.erase(text.begin(), std::ranges::find_if_not(text, blank));
  return text;
}

/// Without what would break a header.
std::string checked_token(const std::string& token, const std::string& where) {
  if (std::ranges::any_of(token, [](char c) { return c < 0x21 || c > 0x7E; }))
    throw Error("the access token of " + where + " is not one word of plain characters");
  return token;
}

json parse_object(const std::string& body, const std::string& what) {
  return parse_json_object({reinterpret_cast<const std::byte*>(body.data()), body.size()}, what);
}

/// A member; null when there is none, or `object` is none.
const json& at(const json& object, const char* key) {
  static const json null;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? null : *found;
}

std::string text_at(const json& object, const char* key) {
  const json& value = at(object, key);
  return value.is_string() ? value.get<std::string>() : "";
}

std::int64_t size_at(const json& object, const char* key) {
  const json& value = at(object, key);
  return value.is_number_unsigned() ? value.get<std::int64_t>() : -1;
}

bool is_hex(const std::string& text, std::size_t digits) {
  return text.size() == digits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

/// A listing's entry, checked: it becomes paths on this machine.
void add_file(RemoteModel& model, RemoteFile file, const std::string& what) {
  // A name with a file, in the form of a model's name, obeys the same rules.
  const auto name = hub::parse_model_name("a/b:" + file.path);
  if (!name || name->file != file.path) return;  // of blanks and the like: nothing we need
  if (file.size < 0) throw Error(what + " gives no size of " + in_quotes(file.path));
  if (!is_hex(file.hash, file.kind == Hash::kSha256 ? 64 : 40))
    throw Error(what + " gives no hash of " + in_quotes(file.path));
  model.files.push_back(std::move(file));
}

class HuggingFace final : public Source {
 public:
  HuggingFace() : endpoint_(variable("HF_ENDPOINT")) {
    if (endpoint_.empty()) endpoint_ = "https://huggingface.co";
    while (endpoint_.ends_with('/')) endpoint_.pop_back();
    token_ = find_token();
  }

  const std::string& endpoint() const override { return endpoint_; }
  const std::string& token() const override { return token_; }

  std::string list_url(const std::string& repo, const std::string& revision) const override {
    return endpoint_ + "/api/models/" + repo + "/revision/" +
           encode_url(revision.empty() ? "main" : revision, /*keep_slashes=*/false) + "?blobs=true";
  }
  std::string file_url(const std::string& repo, const RemoteModel& model, const std::string&,
                       const std::string& path) const override {
    return endpoint_ + "/" + repo + "/resolve/" + model.commit + "/" +
           encode_url(path, /*keep_slashes=*/true);
  }

  RemoteModel parse_listing(const std::string& body) const override {
    const std::string what = endpoint_ + ": the reply about the model";
    const json root = parse_object(body, what);
    RemoteModel model;
    model.commit = text_at(root, "sha");
    if (!is_hex(model.commit, 40)) throw Error(what + " names no commit");
    const json& files = at(root, "siblings");
    if (!files.is_array()) throw Error(what + " lists no files");
    for (const json& item : files) {
      RemoteFile file;
      file.path = text_at(item, "rfilename");
      file.size = size_at(item, "size");
      if (const json& lfs = at(item, "lfs"); lfs.is_object()) {
        file.kind = Hash::kSha256;
        file.hash = text_at(lfs, "sha256");
        if (const std::int64_t size = size_at(lfs, "size"); size >= 0) file.size = size;
      } else {
        file.kind = Hash::kGitBlob;
        file.hash = text_at(item, "blobId");
      }
      add_file(model, std::move(file), what);
    }
    return model;
  }

  std::string explain(const HttpReply& reply, const std::string& repo,
                      const std::string& revision) const override {
    const std::string page = endpoint_ + "/" + repo;
    const std::string code = reply.header("x-error-code");
    const std::string where = revision.empty() ? "" : " at '" + revision + "'";
    if (code == "GatedRepo") {
      return repo + " is gated: ask for access at " + page + ", then " +
             (token_.empty() ? "pull again with a token of that account in HF_TOKEN"
                             : "pull again; the account of this token has no access yet");
    }
    if (code == "RevisionNotFound") return repo + " has no revision" + where;
    if (reply.status == 401) {
      if (!token_.empty())
        return page +
               " does not accept the access token, or there is no such model; check HF_TOKEN "
               "and the name";
      return "there is no public model " + page +
             "; for a private one set HF_TOKEN to an access token";
    }
    if (reply.status == 403) return page + ": access is denied (HTTP status 403)";
    if (reply.status == 404) return "there is no model " + page + where;
    return page + ": " + reason_of(reply);
  }

 private:
  static std::string find_token() {
    for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
      if (const std::string token = trimmed(variable(name)); !token.empty())
        return checked_token(token, name);
    const std::string path = variable("HF_TOKEN_PATH");
    const std::filesystem::path file =
        path.empty() ? hub::hub_home() / "token" : std::filesystem::path(path);
    std::ifstream in(file);
    std::string token;
    std::getline(in, token);
    return checked_token(trimmed(token), file.string());
  }

  std::string endpoint_;
  std::string token_;
};

class ModelScope final : public Source {
 public:
  ModelScope() : endpoint_(variable("MODELSCOPE_DOMAIN")) {
    if (endpoint_.empty()) endpoint_ = "www.modelscope.cn";
    if (endpoint_.find("://") == std::string::npos) endpoint_ = "https://" + endpoint_;
    while (endpoint_.ends_with('/')) endpoint_.pop_back();
    token_ = checked_token(trimmed(variable("MODELSCOPE_API_TOKEN")), "MODELSCOPE_API_TOKEN");
  }

  const std::string& endpoint() const override { return endpoint_; }
  const std::string& token() const override { return token_; }

  std::string list_url(const std::string& repo, const std::string& revision) const override {
    return api(repo) + "/repo/files?Recursive=true&Revision=" + encoded(revision);
  }
  std::string file_url(const std::string& repo, const RemoteModel&, const std::string& revision,
                       const std::string& path) const override {
    return api(repo) + "/repo?Revision=" + encoded(revision) +
           "&FilePath=" + encode_url(path, /*keep_slashes=*/false);
  }

  RemoteModel parse_listing(const std::string& body) const override {
    const std::string what = endpoint_ + ": the reply about the model";
    const json root = parse_object(body, what);
    const json& data = at(root, "Data");
    const json& files = at(data, "Files");
    if (!files.is_array()) {
      const std::string message = text_at(root, "Message");
      throw Error(what + " lists no files" + (message.empty() ? "" : ": " + in_quotes(message)));
    }
    RemoteModel model;
    for (const json& item : files) {
      if (text_at(item, "Type") == "tree") continue;
      add_file(
          model,
          {text_at(item, "Path"), size_at(item, "Size"), Hash::kSha256, text_at(item, "Sha256")},
          what);
    }
    model.commit = id_of(model.files);
    return model;
  }

  std::string explain(const HttpReply& reply, const std::string& repo,
                      const std::string& revision) const override {
    const std::string page = endpoint_ + "/models/" + repo;
    if (reply.status == 404)
      return "there is no model " + page + (revision.empty() ? "" : " at '" + revision + "'");
    if (reply.status == 401 || reply.status == 403)
      return page + " is not open to " +
             (token_.empty() ? "everybody: set MODELSCOPE_API_TOKEN to an access token"
                             : "the account of MODELSCOPE_API_TOKEN: ask for access on that page");
    return page + ": " + reason_of(reply);
  }

 private:
  std::string api(const std::string& repo) const { return endpoint_ + "/api/v1/models/" + repo; }
  static std::string encoded(const std::string& revision) {
    return encode_url(revision.empty() ? "master" : revision, /*keep_slashes=*/false);
  }

  /// The listing names no commit of the whole: one of the same files is the same.
  static std::string id_of(std::vector<RemoteFile> files) {
    std::ranges::sort(files, {}, &RemoteFile::path);
    std::string all;
    for (const RemoteFile& file : files) all += file.hash + " " + file.path + "\n";
    Digest digest(Hash::kGitBlob, static_cast<std::int64_t>(all.size()));
    digest.update({reinterpret_cast<const std::byte*>(all.data()), all.size()});
    return digest.hex();
  }

  std::string endpoint_;
  std::string token_;
};

}  // namespace

std::unique_ptr<Source> make_source(std::string_view name) {
  if (name == "huggingface") return std::make_unique<HuggingFace>();
  if (name == "modelscope") return std::make_unique<ModelScope>();
  throw Error("there is no source of models " + in_quotes(name) +
              "; supported are huggingface, modelscope");
}

bool may_pass(const HttpReply& reply) {
  return !reply.fault.empty() || reply.status == 0 || reply.status == 408 || reply.status == 429 ||
         reply.status >= 500;
}

std::chrono::milliseconds wait_time(const HttpReply& reply, int failures,
                                    std::chrono::milliseconds base) {
  constexpr std::chrono::milliseconds kMost = std::chrono::minutes(1);
  const std::string asked = reply.header("retry-after");
  int seconds = 0;
  const auto [end, error] = std::from_chars(asked.data(), asked.data() + asked.size(), seconds);
  if (error == std::errc() && end == asked.data() + asked.size() && seconds >= 0)
    return std::min<std::chrono::milliseconds>(std::chrono::seconds(seconds), kMost);
  return std::min(base * (1 << std::min(failures, 16)), kMost);
}

std::string reason_of(const HttpReply& reply) {
  if (!reply.fault.empty()) return reply.fault;
  return reply.status == 0 ? "no reply" : "HTTP status " + std::to_string(reply.status);
}

}  // namespace minisgl::pull
