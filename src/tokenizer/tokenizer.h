// Text to token ids and back.

#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "tokenizer/marked_text.h"

namespace minisgl {

class GgufFile;

struct EncodeOptions {
  bool add_special = false;      ///< add BOS/EOS as the tokenizer's post-processor says
  bool special_as_text = false;  ///< special tokens in the text are ordinary text
};

/// Jinja sources of chat templates by name; "default" is the one for all chats.
using ChatTemplates = std::map<std::string, std::string, std::less<>>;

/// A vocabulary with its rules. Immutable once made: any thread may use it.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Ids of UTF-8 `text`; ill-formed UTF-8 is encoded as U+FFFD per maximal subpart.
  virtual std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const = 0;
  /// As encode() without added specials, but special tokens inside message spans are plain text.
  virtual std::vector<TokenId> encode(const MarkedText& text) const = 0;

  /// UTF-8 text of `ids`: ill-formed sequences give one U+FFFD per maximal subpart. Ids without a
  /// token (the padding of a model's vocabulary) give nothing.
  virtual std::string decode(std::span<const TokenId> ids, bool skip_special) const = 0;
  /// The raw bytes that `id` stands for (may be part of a character); empty if it has none.
  virtual std::string_view token_bytes(TokenId id) const = 0;
  virtual bool is_special(TokenId id) const = 0;
  /// Whether a text loses the space that its first token begins with (SentencePiece style).
  virtual bool strips_leading_space() const { return false; }

  /// One more than the largest id.
  virtual std::int32_t vocab_size() const = 0;
  virtual std::optional<TokenId> token_to_id(std::string_view token) const = 0;
  virtual std::optional<TokenId> bos_id() const = 0;
  /// Text of the BOS / EOS token ("" when there is none): template variables.
  virtual std::string bos_token() const = 0;
  virtual std::string eos_token() const = 0;
  /// Every id that ends an answer as far as the tokenizer's own files say (eos, eot).
  virtual std::vector<TokenId> eos_ids() const = 0;
  /// The chat templates that came with the vocabulary.
  virtual const ChatTemplates& chat_templates() const = 0;
  /// "default" among them, or the only one; empty when there is neither.
  std::string_view chat_template() const;
};

/// Reads `tokenizer.ggml.*` metadata. Throws Error naming a kind of vocabulary or pre-tokenizer
/// that is not supported, and the supported ones.
std::unique_ptr<Tokenizer> load_gguf_tokenizer(const GgufFile& file);

/// Reads tokenizer.json, tokenizer_config.json, special_tokens_map.json, chat_template.jinja (or
/// .json) and additional_chat_templates/*.jinja of a Hugging Face folder; only the first has to be
/// there. Throws Error naming the folder
/// and what is missing, ill-formed or not supported.
std::unique_ptr<Tokenizer> load_huggingface_tokenizer(const std::filesystem::path& folder);

/// Either of them, by what `path` is: a GGUF file or a folder.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);

}  // namespace minisgl
