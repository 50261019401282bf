#include "models/renamed_weights.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "models/partial_weights.h"

namespace minisgl::models {
namespace {

bool starts_with_any(std::string_view name, std::span<const std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

/// Prefixes of the text part, the longest first, and what stands for them.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kTextPrefixes{{
    {"language_model.model.", "model."},
    {"model.language_model.", "model."},
    {"language_model.", ""},
}};
/// Of the other parts: transformers models/{mistral3,gemma3,llava}/.
constexpr std::array<std::string_view, 6> kOtherParts{
    "vision_tower.",       "multi_modal_projector.",       "vision_model.",
    "model.vision_tower.", "model.multi_modal_projector.", "model.vision_model."};

/// The name without its prefix; nothing for a tensor of another part.
std::optional<std::string> text_name(std::string_view name) {
  if (starts_with_any(name, kOtherParts)) return std::nullopt;
  for (const auto& [prefix, replacement] : kTextPrefixes)
    if (name.starts_with(prefix))
      return std::string(replacement).append(name.substr(prefix.size()));
  return std::string(name);
}

bool has_text_part(std::span<const std::string> names) {
  return std::any_of(names.begin(), names.end(), [](std::string_view name) {
    return std::any_of(kTextPrefixes.begin(), kTextPrefixes.end(),
                       [&](const auto& prefix) { return name.starts_with(prefix.first); });
  });
}

/// A tensor whose name ends in `suffix` holds `projections` of every expert, one above the other.
struct Stack {
  std::string_view suffix;
  std::array<std::string_view, 2> projections;
  int count;
};
constexpr std::string_view kExperts = ".mlp.experts.";
constexpr std::array<Stack, 4> kStacks{{
    {"gate_up_proj", {"gate_proj", "up_proj"}, 2},
    {"gate_proj", {"gate_proj"}, 1},
    {"up_proj", {"up_proj"}, 1},
    {"down_proj", {"down_proj"}, 1},
}};

/// Adds the experts of a stacked tensor; false if `name` is not the name of one.
bool add_stack(const WeightSource& source, const std::string& stored, std::string_view name,
               TensorParts& parts) {
  const std::size_t at = name.rfind(kExperts);
  if (at == std::string_view::npos) return false;
  const std::string_view before = name.substr(0, at + kExperts.size());
  std::string_view projection = name.substr(before.size());
  if (projection.ends_with(".weight")) projection.remove_suffix(std::string_view(".weight").size());
  const auto* stack = std::find_if(kStacks.begin(), kStacks.end(),
                                   [&](const Stack& s) { return s.suffix == projection; });
  if (stack == kStacks.end()) return false;
  const TensorView tensor = source.find(stored);
  check(tensor.rank() == 3 && tensor.dim(1) % stack->count == 0, source.describe(), ": tensor ",
        stored, " is ", to_string(tensor.shape), ", expected [experts, rows, columns]");
  const std::int64_t rows = tensor.dim(1) / stack->count;
  for (std::int64_t expert = 0; expert < tensor.dim(0); ++expert) {
    for (int i = 0; i < stack->count; ++i) {
      std::string published(before);
      published.append(std::to_string(expert)).append(".").append(stack->projections[i]);
      parts[published.append(".weight")] = {stored, i * rows, rows, tensor.dim(1), expert};
    }
  }
  return true;
}

}  // namespace

std::unique_ptr<WeightSource> with_published_names(std::unique_ptr<WeightSource> source) {
  const std::vector<std::string> names = source->names();
  const bool is_part = has_text_part(names);
  bool renamed = is_part;
  TensorParts parts;
  for (const std::string& stored : names) {
    const std::optional<std::string> name = is_part ? text_name(stored) : stored;
    if (!name) continue;
    if (add_stack(*source, stored, *name, parts)) {
      renamed = true;
    } else {
      parts[*name] = {stored};
    }
  }
  if (!renamed) return source;
  return std::make_unique<PartialWeights>(std::move(source), std::move(parts));
}

}  // namespace minisgl::models
