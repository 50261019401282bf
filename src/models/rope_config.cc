#include "models/rope_config.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "formats/file_kind.h"

namespace minisgl::models {
namespace {

using nlohmann::json;

constexpr std::string_view kSupported =
    "supported are default, linear, llama3, yarn, dynamic, longrope";

/// How much longer than trained attention stays as sharp, by YaRN's rule (Peng et al. 2023, 3.4).
double yarn_scale(double factor, double mscale = 1.0) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

/// A positive number; 0 counts as absent, as transformers' `or` has it.
double positive_or(const JsonSection& section, const char* key, double fallback) {
  const json* value = section.find(key);
  if (value == nullptr || *value == 0) return fallback;
  return section.positive(key);
}

void read_llama3(const JsonSection& section, RopeConfig& rope) {
  rope.factor = section.positive("factor");
  rope.low_freq_factor = section.positive("low_freq_factor");
  rope.high_freq_factor = section.positive("high_freq_factor");
  if (rope.low_freq_factor >= rope.high_freq_factor)
    fail(section.where(), "low_freq_factor is not below high_freq_factor");
  rope.original_max_position = section.size("original_max_position_embeddings");
}

void read_yarn(const JsonSection& section, std::int64_t context, RopeConfig& rope) {
  rope.original_max_position =
      section.find_size("original_max_position_embeddings").value_or(context);
  rope.factor = section.find_positive("factor").value_or(
      static_cast<double>(context) / static_cast<double>(rope.original_max_position));
  rope.beta_fast = positive_or(section, "beta_fast", 32.0);
  rope.beta_slow = positive_or(section, "beta_slow", 1.0);
  rope.truncate = section.find_bool("truncate").value_or(true);
  const double mscale = positive_or(section, "mscale", 0.0);
  const double mscale_all_dim = positive_or(section, "mscale_all_dim", 0.0);
  double implied = yarn_scale(rope.factor);
  if (mscale > 0 && mscale_all_dim > 0)
    implied = yarn_scale(rope.factor, mscale) / yarn_scale(rope.factor, mscale_all_dim);
  rope.attention_factor = section.find_positive("attention_factor").value_or(implied);
}

std::vector<float> read_factors(const JsonSection& section, const char* key, std::int64_t dims) {
  const json* list = section.find(key);
  if (list == nullptr) fail(section.where(), std::string(key) + " is missing");
  const auto is_good = [](const json& x) {
    return x.is_number() && x.get<float>() > 0 && std::isfinite(x.get<float>());
  };
  if (!list->is_array() || static_cast<std::int64_t>(list->size()) != dims / 2 ||
      !std::all_of(list->begin(), list->end(), is_good))
    fail(section.where(), std::string(key) + " is " + shown(*list) + ", expected " +
                              std::to_string(dims / 2) + " positive numbers");
  return list->get<std::vector<float>>();
}

/// How much sharper attention is with factors for `factor` times the context (LongRoPE).
double longrope_scale(double factor, std::int64_t original) {
  if (factor <= 1.0) return 1.0;
  return std::sqrt(1.0 + std::log(factor) / std::log(static_cast<double>(original)));
}

void read_longrope(const JsonSection& outer, const JsonSection& section, std::int64_t dims,
                   std::int64_t context, RopeConfig& rope) {
  rope.kind = RopeKind::kLongRope;
  const char* key = "original_max_position_embeddings";
  const std::optional<std::int64_t> original = section.find_size(key);
  rope.original_max_position = original ? *original : outer.size(key);
  rope.divisors = read_factors(section, "short_factor", dims);
  rope.long_divisors = read_factors(section, "long_factor", dims);
  rope.factor =
      std::max(1.0, static_cast<double>(context) / static_cast<double>(rope.original_max_position));
  const double stretch = section.find_positive("factor").value_or(rope.factor);
  rope.attention_factor = section.find_positive("attention_factor")
                              .value_or(longrope_scale(stretch, rope.original_max_position));
}

/// The first dimensions of each head that are turned; 0 for all.
std::int64_t read_rotated_dims(const JsonSection& section, std::int64_t head_dim) {
  const std::optional<double> part = section.find_positive("partial_rotary_factor");
  if (!part || *part == 1.0) return 0;
  const auto dims = static_cast<std::int64_t>(*part * static_cast<double>(head_dim));
  if (*part > 1 || dims < 2 || dims % 2 != 0)
    fail(section.where(), "partial_rotary_factor is " +
                              shown(*section.find("partial_rotary_factor")) +
                              ", expected a part of head_dim " + std::to_string(head_dim) +
                              " that is an even number of dimensions");
  return dims;
}

/// rope_freqs.weight, by which llama.cpp's converter stores the llama3 ramp, or the factors of
/// LongRoPE; empty when there is no such tensor.
std::vector<float> read_divisors(const GgufFile& file, const std::string& tensor_name,
                                 std::int64_t head_dim) {
  const auto found = file.tensors().find(tensor_name);
  if (found == file.tensors().end()) return {};
  const TensorView& tensor = found->second;
  if (tensor.dtype != DType::kF32 || tensor.shape != Shape{head_dim / 2})
    fail(file.path().string(), "tensor " + tensor_name + " is " + std::string(name(tensor.dtype)) +
                                   " " + to_string(tensor.shape) + ", expected f32 " +
                                   to_string(Shape{head_dim / 2}));
  const auto* values = tensor.as<float>();
  std::vector<float> divisors(values, values + tensor.numel());
  for (const float value : divisors)
    if (!(value > 0) || !std::isfinite(value))
      fail(file.path().string(), "tensor " + tensor_name + " is not positive");
  return divisors;
}

/// A number of which 0 says that it is not set.
double number_or_zero(const GgufSection& section, const char* name) {
  const double value = section.file().find_float(section.key(name)).value_or(0.0);
  if (!(value >= 0) || !std::isfinite(value))
    fail(section.where(), section.key(name) + " is " + std::to_string(value) +
                              ", expected a positive number, or 0 for none");
  return value;
}

void read_gguf_yarn(const GgufSection& section, std::int64_t context, RopeConfig& rope) {
  rope.kind = RopeKind::kYarn;
  rope.original_max_position =
      section.find_size("rope.scaling.original_context_length").value_or(context);
  const double fast = number_or_zero(section, "rope.scaling.yarn_beta_fast");
  const double slow = number_or_zero(section, "rope.scaling.yarn_beta_slow");
  if (fast > 0) rope.beta_fast = fast;
  if (slow > 0) rope.beta_slow = slow;
  const double all_dims = number_or_zero(section, "rope.scaling.yarn_log_multiplier");
  rope.attention_factor = yarn_scale(rope.factor);
  if (all_dims > 0) rope.attention_factor /= yarn_scale(rope.factor, all_dims);
  for (const char* name : {"rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"})
    if (const double more = number_or_zero(section, name); more > 0) rope.attention_factor *= more;
}

/// LongRoPE is told by its tensors; the scaling type is not always written.
void read_gguf_longrope(const GgufSection& section, std::int64_t dims, std::int64_t context,
                        RopeConfig& rope) {
  std::vector<float> factors = read_divisors(section.file(), "rope_factors_short.weight", dims);
  rope.long_divisors = read_divisors(section.file(), "rope_factors_long.weight", dims);
  if (factors.empty() != rope.long_divisors.empty())
    fail(section.where(),
         "has only one of the tensors rope_factors_short.weight and "
         "rope_factors_long.weight");
  if (factors.empty()) return;
  if (rope.kind != RopeKind::kDefault || !rope.divisors.empty())
    fail(section.where(), "has rope_factors_short.weight and another rope scaling");
  rope.kind = RopeKind::kLongRope;
  rope.divisors = std::move(factors);
  rope.original_max_position = section.size("rope.scaling.original_context_length");
  rope.factor =
      std::max(1.0, static_cast<double>(context) / static_cast<double>(rope.original_max_position));
  const double factor = number_or_zero(section, "rope.scaling.attn_factor");
  rope.attention_factor =
      factor > 0 ? factor : longrope_scale(rope.factor, rope.original_max_position);
}

}  // namespace

bool has_rope_of_each_kind(const JsonSection& section) {
  const json* ropes = section.find("rope_parameters");
  return ropes != nullptr && ropes->is_object() &&
         (ropes->contains("full_attention") || ropes->contains("sliding_attention"));
}

RopeConfig read_rope(const JsonSection& section, std::int64_t head_dim, std::int64_t context) {
  RopeConfig rope;
  rope.rotated_dims = read_rotated_dims(section, head_dim);
  if (const std::optional<double> theta = section.find_positive("rope_theta")) rope.theta = *theta;
  const char* key = "rope_parameters";  // transformers 5
  const json* scaling = section.find(key);
  if (scaling == nullptr) {
    key = "rope_scaling";  // transformers 4
    scaling = section.find(key);
  }
  if (scaling == nullptr) return rope;
  if (!scaling->is_object())
    fail(section.where(), std::string(key) + " is " + shown(*scaling) + ", expected an object");
  const JsonSection inner(*scaling, section.where() + ": " + key);
  if (const std::optional<double> theta = inner.find_positive("rope_theta")) rope.theta = *theta;
  if (inner.contains("partial_rotary_factor"))
    rope.rotated_dims = read_rotated_dims(inner, head_dim);
  const std::int64_t dims = rope.rotated_dims > 0 ? rope.rotated_dims : head_dim;

  const std::string kind =
      inner.find_string("rope_type").value_or(inner.find_string("type").value_or("default"));
  if (kind == "default") return rope;
  if (kind == "linear") {
    rope.kind = RopeKind::kLinear;
    rope.factor = inner.positive("factor");
  } else if (kind == "llama3") {
    rope.kind = RopeKind::kLlama3;
    read_llama3(inner, rope);
  } else if (kind == "yarn") {
    rope.kind = RopeKind::kYarn;
    read_yarn(inner, context, rope);
  } else if (kind == "dynamic") {
    rope.kind = RopeKind::kDynamic;
    rope.factor = inner.positive("factor");
    rope.original_max_position = context;
    if (rope.factor < 1)
      fail(inner.where(), "factor is " + shown(*inner.find("factor")) + ", expected at least 1");
  } else if (kind == "longrope" || kind == "su") {
    read_longrope(section, inner, dims, context, rope);
  } else {
    fail(inner.where(),
         "rope_type " + in_quotes(kind) + " is not supported; " + std::string(kSupported));
  }
  return rope;
}

RopeConfig read_gguf_rope(const GgufSection& section, std::int64_t head_dim, std::int64_t context) {
  RopeConfig rope;
  rope.theta = section.find_positive("rope.freq_base").value_or(10000.0);
  const std::int64_t rotated = section.find_size("rope.dimension_count").value_or(head_dim);
  if (rotated > head_dim || rotated % 2 != 0)
    fail(section.where(), section.key("rope.dimension_count") + " is " + std::to_string(rotated) +
                              ", expected an even part of the head of " + std::to_string(head_dim));
  if (rotated != head_dim) rope.rotated_dims = rotated;
  // rope.scale_linear is the key of older files.
  std::optional<double> factor = section.find_positive("rope.scaling.factor");
  if (!factor) factor = section.find_positive("rope.scale_linear");
  const std::string kind =
      section.find_string("rope.scaling.type").value_or(factor ? "linear" : "none");
  rope.factor = factor.value_or(1.0);
  if (kind == "linear") {
    rope.kind = rope.factor == 1.0 ? RopeKind::kDefault : RopeKind::kLinear;
  } else if (kind == "yarn") {
    read_gguf_yarn(section, context, rope);
  } else if (kind != "none" && kind != "longrope") {
    fail(section.where(), section.key("rope.scaling.type") + " " + in_quotes(kind) +
                              " is not supported; supported are none, linear, yarn, longrope");
  } else {
    rope.factor = 1.0;
  }
  rope.divisors = read_divisors(section.file(), "rope_freqs.weight", rotated);
  read_gguf_longrope(section, rotated, context, rope);
  if (kind == "longrope" && rope.kind != RopeKind::kLongRope)
    fail(section.where(), section.key("rope.scaling.type") +
                              " is longrope, but the tensor rope_factors_short.weight is missing");
  return rope;
}

}  // namespace minisgl::models
