#include "hub/choose.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <regex>

#include "minisgl/error.h"

namespace minisgl::hub {
namespace {

using Files = std::vector<std::string>;

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

bool is_word(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '_'; }

/// Whether `tag` stands in `name` by itself. "q4_k" is no part of "q4_k_m" and "q4_0" none of
/// "iq4_0", but what comes before may end with an underscore.
bool has_tag(const std::string& name, const std::string& tag) {
  for (std::size_t at = 0; (at = name.find(tag, at)) != std::string::npos; ++at) {
    const bool begins = at == 0 || !is_word(name[at - 1]) || name[at - 1] == '_';
    const std::size_t end = at + tag.size();
    if (begins && (end == name.size() || !is_word(name[end]))) return true;
  }
  return false;
}

std::string listed(const std::map<std::string, Files>& models) {
  constexpr std::size_t kMost = 12;
  std::string list;
  std::size_t count = 0;
  for (const auto& [name, parts] : models) {
    if (count++ == kMost) return list + ", ...";
    list += (list.empty() ? "" : ", ") + name;
  }
  return list;
}

std::string weights_of_other_kinds(const Files& files) {
  std::string list;
  for (const std::string& file : files)
    for (const char* suffix : {".bin", ".pt", ".pth", ".onnx", ".h5", ".msgpack", ".ckpt"})
      if (file.ends_with(suffix) && list.size() < 120) list += (list.empty() ? "" : ", ") + file;
  return list;
}

}  // namespace

std::map<std::string, Files> gguf_models(const Files& files) {
  static const std::regex part("-[0-9]{5}-of-[0-9]{5}(?=\\.gguf$)");
  std::map<std::string, Files> models;
  for (const std::string& file : files) {
    const std::string name = base_name(file);
    if (!file.ends_with(".gguf") || name.starts_with("mmproj") ||
        name.find("imatrix") != std::string::npos)
      continue;
    models[std::regex_replace(file, part, "")].push_back(file);
  }
  for (auto& [name, parts] : models) std::ranges::sort(parts);
  return models;
}

Files choose_gguf(const Files& files, const std::string& wanted, const std::string& repo) {
  if (wanted.ends_with(".gguf") && std::ranges::find(files, wanted) != files.end())
    if (gguf_models({wanted}).contains(wanted)) return {wanted};
  const std::map<std::string, Files> models = gguf_models(files);
  if (models.empty()) throw Error(repo + " has no GGUF file");
  std::map<std::string, Files> chosen;
  for (const auto& [name, parts] : models) {
    const bool same = wanted.empty() || name == wanted || base_name(name) == wanted ||
                      parts.front() == wanted || base_name(parts.front()) == wanted;
    const bool tagged = !wanted.ends_with(".gguf") && !wanted.empty() &&
                        has_tag(lower(base_name(name)), lower(wanted));
    if (same || tagged) chosen.emplace(name, parts);
  }
  if (chosen.size() == 1) return chosen.begin()->second;
  if (chosen.empty())
    throw Error(repo + " has no GGUF file '" + wanted + "'; it has " + listed(models));
  throw Error(repo + " has several GGUF files" + (wanted.empty() ? "" : " of '" + wanted + "'") +
              ": " + listed(chosen) + "; say which, as in " + repo + ":" + chosen.begin()->first);
}

Files checkpoint_files(const Files& files) {
  constexpr std::array<std::string_view, 9> kNames = {
      "config.json",           "generation_config.json",  "tokenizer.json",
      "tokenizer_config.json", "special_tokens_map.json", "chat_template.json",
      "chat_template.jinja",   "tokenizer.model",         "model.safetensors.index.json"};
  Files weights, others;
  for (const std::string& file : files) {
    if (file.find('/') != std::string::npos) continue;
    if (file.ends_with(".safetensors")) {
      weights.push_back(file);
    } else if (std::ranges::find(kNames, file) != kNames.end()) {
      others.push_back(file);
    }
  }
  const auto is_copy = [](const std::string& file) { return file.starts_with("consolidated"); };
  if (!std::ranges::all_of(weights, is_copy)) std::erase_if(weights, is_copy);
  if (weights.empty()) return {};
  others.insert(others.end(), weights.begin(), weights.end());
  std::ranges::sort(others);
  return others;
}

Files choose_files(const Files& files, const std::string& wanted, const std::string& repo) {
  if (wanted.empty()) {
    if (Files found = checkpoint_files(files); !found.empty()) return found;
    if (gguf_models(files).empty()) {
      const std::string others = weights_of_other_kinds(files);
      throw Error(repo + " has neither safetensors nor GGUF weights, which minisgl loads" +
                  (others.empty() ? "" : "; it has " + others) +
                  " (--include takes other files all the same)");
    }
  }
  return choose_gguf(files, wanted, repo);
}

Files matching_files(const Files& files, const Files& patterns, const std::string& repo) {
  Files found;
  std::string all;
  for (const std::string& pattern : patterns) all += (all.empty() ? "" : ", ") + pattern;
  for (const std::string& file : files) {
    const bool match = std::ranges::any_of(patterns, [&](const std::string& pattern) {
      const bool whole = pattern.find('/') != std::string::npos;
      const std::string name = whole ? file : base_name(file);
      return fnmatch(pattern.c_str(), name.c_str(), 0) == 0 ||
             fnmatch(pattern.c_str(), file.c_str(), 0) == 0;
    });
    if (match) found.push_back(file);
  }
  if (found.empty()) throw Error(repo + " has no file like " + all);
  return found;
}

}  // namespace minisgl::hub
