#include "tokenize.h"

#include <string>
#include <vector>

#include "base/utf8.h"
#include "input.h"
#include "tokenizer/detokenizer.h"

namespace minisgl::fuzz {

void use_tokenizer(const Tokenizer& tokenizer, std::string_view text) {
  const auto known = [&](const std::vector<TokenId>& ids) {
    for (const TokenId id : ids)
      require(id >= 0 && id < tokenizer.vocab_size(), "an id outside the vocabulary");
  };
  const std::vector<TokenId> ids = tokenizer.encode(text, {.add_special = true});
  known(ids);
  known(tokenizer.encode(text, {.special_as_text = true}));
  MarkedText marked{std::string(text), {}};
  if (text.size() > 2) marked.message_spans = {{1, text.size() - 1}};
  known(tokenizer.encode(marked));

  for (const bool skip_special : {false, true})
    require(is_valid_utf8(tokenizer.decode(ids, skip_special)), "decoded text is not UTF-8");
  IncrementalDetokenizer stream(tokenizer, /*skip_special=*/false);
  std::string streamed;
  for (const TokenId id : ids) streamed += stream.push(id);
  streamed += stream.flush();
  require(streamed == tokenizer.decode(ids, /*skip_special=*/false),
          "a text in pieces differs from the text at once");
  // Beyond both ends of the vocabulary, as a model with padding may draw them.
  const TokenId outside[] = {-1, 0, tokenizer.vocab_size(), tokenizer.vocab_size() + 1};
  (void)tokenizer.decode(outside, /*skip_special=*/true);
  known(tokenizer.eos_ids());
  (void)tokenizer.bos_token();
  (void)tokenizer.eos_token();
}

}  // namespace minisgl::fuzz
