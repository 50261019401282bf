#include "models/rope_config.h"

#include <cmath>
#include <string>
#include <vector>

#include "formats/file_kind.h"

namespace minisgl::models {
namespace {

using nlohmann::json;

constexpr std::string_view kSupported = "supported are default, linear, llama3, yarn, dynamic";

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

/// rope_freqs.weight, by which llama.cpp's converter stores the llama3 ramp.
std::vector<float> read_divisors(const GgufFile& file, std::int64_t head_dim) {
  const auto found = file.tensors().find("rope_freqs.weight");
  if (found == file.tensors().end()) return {};
  const TensorView& tensor = found->second;
  if (tensor.dtype != DType::kF32 || tensor.shape != Shape{head_dim / 2})
    fail(file.path().string(), "tensor rope_freqs.weight is " + std::string(name(tensor.dtype)) +
                                   " " + to_string(tensor.shape) + ", expected f32 " +
                                   to_string(Shape{head_dim / 2}));
  const auto* values = tensor.as<float>();
  std::vector<float> divisors(values, values + tensor.numel());
  for (const float value : divisors)
    if (!(value > 0) || !std::isfinite(value))
      fail(file.path().string(), "tensor rope_freqs.weight is not positive");
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

}  // namespace

RopeConfig read_rope(const JsonSection& section, std::int64_t context) {
  RopeConfig rope;
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
  if (inner.find_positive("partial_rotary_factor").value_or(1.0) != 1.0)
    fail(inner.where(), "partial_rotary_factor is not supported unless it is 1");

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
  if (rotated != head_dim)
    fail(section.where(), section.key("rope.dimension_count") + " is " + std::to_string(rotated) +
                              ", expected the whole head of " + std::to_string(head_dim));
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
  } else if (kind != "none") {
    fail(section.where(), section.key("rope.scaling.type") + " " + in_quotes(kind) +
                              " is not supported; supported are none, linear, yarn");
  } else {
    rope.factor = 1.0;
  }
  rope.divisors = read_divisors(section.file(), head_dim);
  return rope;
}

}  // namespace minisgl::models
