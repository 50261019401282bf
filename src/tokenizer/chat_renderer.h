// From a request's messages to the text of a prompt: a model's templates with the operator's
// choices.

#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tokenizer/chat_template.h"
#include "tokenizer/marked_text.h"
#include "tokenizer/tokenizer.h"

namespace minisgl {

/// What an operator chooses about chats.
struct ChatOptions {
  /// A file with a Jinja template, or the name of one of the model's templates; empty: its default.
  std::string chat_template = {};
  /// Variables of the template that a request may override.
  nlohmann::ordered_json default_kwargs = nlohmann::ordered_json::object();
  /// Special tokens in messages count as such, as with Hugging Face's libraries, instead of being
  /// plain text.
  bool parse_special_in_messages = false;
};

/// Reads the text of `--default-chat-template-kwargs`; "" is no variables. Throws Error when it is
/// not a JSON object.
nlohmann::ordered_json parse_template_kwargs(std::string_view text);

/// Renders chats. Immutable: any thread may use it.
class ChatRenderer {
 public:
  /// Throws Error when there is no template, or it cannot be read or parsed. Keeps no reference to
  /// `tokenizer`.
  ChatRenderer(const Tokenizer& tokenizer, ChatOptions options);

  /// The prompt of a chat. `messages`: as OpenAI's API has them, see normalise_messages(). `tools`:
  /// array or null; with tools the model's template "tool_use" is taken if it has one and none was
  /// chosen. `kwargs`: object or null, further variables. Throws RequestError for what the template
  /// cannot take.
  MarkedText render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                    const nlohmann::ordered_json& kwargs, bool add_generation_prompt) const;

  /// The Jinja source of the template that chats with tools get.
  const std::string& tool_source() const {
    return tool_template_ ? tool_template_->source() : template_->source();
  }

 private:
  ChatOptions options_;
  std::string bos_token_;
  std::string eos_token_;
  std::unique_ptr<const ChatTemplate> template_;
  std::unique_ptr<const ChatTemplate> tool_template_;  // null: the same
};

}  // namespace minisgl
