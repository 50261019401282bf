#include "input.h"
#include "models/config.h"
#include "models/rope.h"
#include "targets.h"

namespace minisgl::fuzz {

void config(std::span<const std::byte> input) {
  static const Folder folder;
  std::string_view rest = as_text(input);
  folder.write("config.json", take_part(rest));
  if (rest.empty()) {
    folder.remove("generation_config.json");
  } else {
    folder.write("generation_config.json", rest);
  }
  accepted([&] {
    const ModelConfig c = models::read_huggingface_config(folder.path());
    require(c.num_layers > 0 && c.hidden_size > 0 && c.vocab_size > 0 && c.num_kv_heads > 0 &&
                c.head_dim > 0 && c.num_heads % c.num_kv_heads == 0,
            "sizes that no model has");
    for (const TokenId id : c.eos_token_ids)
      require(id >= 0 && id < c.vocab_size, "an end token outside the vocabulary");
  });
}

}  // namespace minisgl::fuzz
