#include <string_view>
#include <utility>

#include "input.h"
#include "targets.h"
#include "tokenize.h"
#include "tokenizer/bpe_tokenizer.h"
#include "tokenizer/huggingface.h"

namespace minisgl::fuzz {

void tokenizer_json(std::span<const std::byte> input) {
  std::string_view rest = as_text(input);
  const std::string_view file = take_part(rest);
  const std::string_view config = take_part(rest);
  accepted([&] {
    BpeTokenizerParts parts = parse_tokenizer_json(file);
    if (!config.empty()) parse_tokenizer_config(config, parts);
    const BpeTokenizer tokenizer(std::move(parts));
    use_tokenizer(tokenizer, rest.empty() ? "A h\u00e9llo, 123 <|im_end|>  w\xF0\x9F" : rest);
  });
}

}  // namespace minisgl::fuzz
