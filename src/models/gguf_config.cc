#include "models/gguf_config.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "models/architectures.h"
#include "models/config_section.h"
#include "models/family_config.h"
#include "models/rope_config.h"

namespace minisgl::models {
namespace {

/// The type that most elements have.
DType prevailing_dtype(const GgufFile& file) {
  std::map<DType, std::int64_t> elements;
  for (const auto& [name, tensor] : file.tensors()) elements[tensor.dtype] += tensor.numel();
  const auto most =
      std::max_element(elements.begin(), elements.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == elements.end() ? DType::kF32 : most->first;
}

void check_supported(const GgufFile& file, const GgufSection& section) {
  if (const std::int64_t parts = file.find_int("split.count").value_or(1); parts > 1)
    fail(section.where(),
         "is one of " + std::to_string(parts) +
             " parts; split files are not supported: join them with llama-gguf-split --merge");
}

/// Every layer is sparse. The weights of a token's experts are divided by their sum unless the file
/// says otherwise, as in llama.cpp.
void read_experts(const GgufSection& section, bool supported, ModelConfig& c) {
  const std::int64_t experts = section.file().find_int(section.key("expert_count")).value_or(0);
  if (experts == 0 && !supported) return;
  if (!supported)
    fail(section.where(), section.key("expert_count") + " is " + std::to_string(experts) +
                              "; this architecture is not supported with experts");
  c.moe.num_experts = section.size("expert_count");
  c.moe.experts_per_token = section.size("expert_used_count");
  c.moe.intermediate_size = section.size("expert_feed_forward_length");
  c.moe.norm_topk_prob =
      section.file().find_bool(section.key("expert_weights_norm")).value_or(true);
  c.sparse_layers.assign(static_cast<std::size_t>(c.num_layers), true);
}

/// Vocabulary, from the embedding [vocab, hidden].
std::int64_t read_vocab_size(const GgufFile& file, std::int64_t hidden) {
  const auto embedding = file.tensors().find("token_embd.weight");
  if (embedding == file.tensors().end())
    fail(file.path().string(), "tensor token_embd.weight is missing");
  const Shape& shape = embedding->second.shape;
  if (shape.rank != 2 || shape[1] != hidden || shape[0] > kMaxSize)
    fail(file.path().string(), "tensor token_embd.weight is " + to_string(shape) +
                                   ", expected [vocabulary, " + std::to_string(hidden) + "]");
  return shape[0];
}

}  // namespace

ModelConfig read_gguf_config(const GgufFile& file) {
  const Architecture& row =
      find_gguf(file.get_string("general.architecture"), file.path().string());
  const GgufSection section(file, row.gguf);
  ModelConfig c;
  c.architecture = row.huggingface;
  c.name = file.find_string("general.name").value_or(file.path().stem().string());
  c.num_layers = section.size("block_count");
  c.hidden_size = section.size("embedding_length");
  c.intermediate_size = section.size("feed_forward_length");
  c.num_heads = section.size("attention.head_count");
  c.num_kv_heads = section.find_size("attention.head_count_kv").value_or(c.num_heads);
  c.max_position_embeddings = section.size("context_length");
  check_supported(file, section);
  const std::optional<std::int64_t> head_dim = section.find_size("attention.key_length");
  c.head_dim = head_dim ? *head_dim : default_head_dim(c.hidden_size, c.num_heads, section.where());
  if (section.find_size("attention.value_length").value_or(c.head_dim) != c.head_dim)
    fail(section.where(), section.key("attention.value_length") + " differs from the key length " +
                              std::to_string(c.head_dim) + ", which is not supported");
  c.rms_norm_eps = section.positive("attention.layer_norm_rms_epsilon");
  c.vocab_size = read_vocab_size(file, c.hidden_size);
  c.tie_word_embeddings = !file.tensors().contains("output.weight");
  c.rope = read_gguf_rope(section, c.head_dim, c.max_position_embeddings);
  read_experts(section, row.moe, c);
  c.dtype = prevailing_dtype(file);
  read_gguf_family(section, row, c);

  std::set<TokenId> eos;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    // -1, which an unsigned key holds as 2^32 - 1, means none.
    const std::optional<std::int64_t> id = file.find_int(key);
    if (id && *id >= 0 && *id < std::numeric_limits<TokenId>::max())
      eos.insert(static_cast<TokenId>(*id));
  }
  c.eos_token_ids = drawable(eos, c.vocab_size);
  const std::optional<std::int64_t> bos = file.find_int("tokenizer.ggml.bos_token_id");
  if (bos && *bos >= 0 && *bos < c.vocab_size) c.bos_token_id = static_cast<TokenId>(*bos);
  check_consistent(c, section.where());
  return c;
}

}  // namespace minisgl::models
