#include "hub/model_name.h"

#include <algorithm>

namespace minisgl::hub {
namespace {

constexpr std::size_t kMaxRepo = 96;

bool is_alphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_half(std::string_view half) {
  const auto at_end = [](char c) { return c == '-' || c == '.'; };
  return !half.empty() && !at_end(half.front()) && !at_end(half.back()) &&
         half.find("--") == std::string_view::npos && half.find("..") == std::string_view::npos &&
         std::ranges::all_of(
             half, [](char c) { return is_alphanumeric(c) || c == '.' || c == '_' || c == '-'; });
}

bool is_repo(std::string_view repo) {
  const std::size_t slash = repo.find('/');
  return repo.size() <= kMaxRepo && slash != std::string_view::npos &&
         is_half(repo.substr(0, slash)) && is_half(repo.substr(slash + 1)) &&
         !repo.ends_with(".gguf") && !repo.ends_with(".safetensors");
}

// A path inside the repository or a ref: no way out of its folder.
bool is_inside(std::string_view path) {
  if (path.empty() || path.front() == '/' || path.back() == '/') return false;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return std::ranges::none_of(path, [](char c) { return static_cast<unsigned char>(c) < 0x21; });
}

}  // namespace

std::string ModelName::text() const {
  return repo + (revision.empty() ? "" : "@" + revision) + (file.empty() ? "" : ":" + file);
}

std::optional<ModelName> parse_model_name(std::string_view text) {
  ModelName name;
  if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
    name.file = text.substr(colon + 1);
    if (!is_inside(name.file)) return std::nullopt;
    text = text.substr(0, colon);
  }
  if (const std::size_t at = text.find('@'); at != std::string_view::npos) {
    name.revision = text.substr(at + 1);
    if (!is_inside(name.revision)) return std::nullopt;
    text = text.substr(0, at);
  }
  if (!is_repo(text)) return std::nullopt;
  name.repo = text;
  return name;
}

}  // namespace minisgl::hub
