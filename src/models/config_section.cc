#include "models/config_section.h"

#include <cmath>

#include "minisgl/error.h"

namespace minisgl::models {

using nlohmann::json;

void fail(const std::string& where, const std::string& fault) { throw Error(where + ": " + fault); }

std::string shown(const json& value) {
  // In ASCII: a value out of a damaged file must not be able to break the line of an error.
  const std::string text =
      value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  return text.size() <= 60 ? text : text.substr(0, 60) + "...";
}

void check_consistent(const ModelConfig& c, const std::string& where) {
  if (c.num_heads % c.num_kv_heads != 0)
    fail(where, std::to_string(c.num_heads) + " query heads are not a multiple of " +
                    std::to_string(c.num_kv_heads) + " key heads");
  if (c.head_dim % 2 != 0)
    fail(where, "head_dim " + std::to_string(c.head_dim) + " is odd; rope needs pairs");
  constexpr std::int64_t kMaxExperts = 1024;
  if (c.moe.num_experts > kMaxExperts)
    fail(where, std::to_string(c.moe.num_experts) + " experts are not supported; there may be " +
                    std::to_string(kMaxExperts));
  if (c.moe.experts_per_token > c.moe.num_experts)
    fail(where, std::to_string(c.moe.experts_per_token) + " experts for each token are more than " +
                    "the " + std::to_string(c.moe.num_experts) + " that there are");
}

std::vector<TokenId> drawable(const std::set<TokenId>& ids, std::int64_t vocab_size) {
  return {ids.begin(), ids.lower_bound(static_cast<TokenId>(vocab_size))};
}

std::int64_t default_head_dim(std::int64_t hidden, std::int64_t heads, const std::string& where) {
  if (hidden % heads == 0) return hidden / heads;
  fail(where, "hidden size " + std::to_string(hidden) + " is not a multiple of " +
                  std::to_string(heads) + " heads, and there is no head_dim");
}

const json* JsonSection::find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::int64_t> JsonSection::find_size(const char* key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer() || *value < 1 || *value > kMaxSize)
    fail(where_,
         std::string(key) + " is " + shown(*value) + ", expected a whole number from 1 to 2^30");
  return value->get<std::int64_t>();
}

std::int64_t JsonSection::size(const char* key) const {
  const std::optional<std::int64_t> value = find_size(key);
  if (!value) fail(where_, std::string(key) + " is missing");
  return *value;
}

std::optional<double> JsonSection::find_positive(const char* key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number() || !(value->get<double>() > 0) || !std::isfinite(value->get<double>()))
    fail(where_, std::string(key) + " is " + shown(*value) + ", expected a positive number");
  return value->get<double>();
}

double JsonSection::positive(const char* key) const {
  const std::optional<double> value = find_positive(key);
  if (!value) fail(where_, std::string(key) + " is missing");
  return *value;
}

std::optional<bool> JsonSection::find_bool(const char* key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean())
    fail(where_, std::string(key) + " is " + shown(*value) + ", expected true or false");
  return value->get<bool>();
}

std::optional<std::string> JsonSection::find_string(const char* key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string())
    fail(where_, std::string(key) + " is " + shown(*value) + ", expected a string");
  return value->get<std::string>();
}

std::optional<std::int64_t> GgufSection::find_size(std::string_view name) const {
  const std::optional<std::int64_t> value = file_.find_int(key(name));
  if (value && (*value < 1 || *value > kMaxSize))
    fail(where_, key(name) + " is " + std::to_string(*value) + ", expected 1 to 2^30");
  return value;
}

std::int64_t GgufSection::size(std::string_view name) const {
  file_.get_int(key(name));  // says when it is missing
  return *find_size(name);
}

std::optional<double> GgufSection::find_positive(std::string_view name) const {
  const std::optional<double> value = file_.find_float(key(name));
  if (value && !(*value > 0 && std::isfinite(*value)))
    fail(where_, key(name) + " is " + std::to_string(*value) + ", expected a positive number");
  return value;
}

double GgufSection::positive(std::string_view name) const {
  file_.get_float(key(name));  // says when it is missing
  return *find_positive(name);
}

std::optional<std::string> GgufSection::find_string(std::string_view name) const {
  return file_.find_string(key(name));
}

}  // namespace minisgl::models
