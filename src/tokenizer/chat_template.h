// Chat messages to the text of a prompt, by the Jinja template that comes with a model.

#pragma once

#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "tokenizer/jinja_template.h"
#include "tokenizer/marked_text.h"

namespace minisgl {

/// What a chat template is rendered with, as transformers' apply_chat_template names it.
struct ChatInput {
  nlohmann::ordered_json messages;   ///< array of objects
  nlohmann::ordered_json tools;      ///< array, or null: the template sees none
  nlohmann::ordered_json documents;  ///< array, or null
  nlohmann::ordered_json kwargs = nlohmann::ordered_json::object();  ///< further variables
  bool add_generation_prompt = true;
  std::string bos_token;
  std::string eos_token;
};

/// A chat template. Immutable: any thread may render it.
///
/// Marks: every string in messages, tools, documents and kwargs is user text, keys of objects
/// included; only the role of a message is not when it is one of the known ones, because templates
/// build special tokens of it ("<|user|>"). What a template does to a string keeps the marks.
class ChatTemplate {
 public:
  using Clock = std::function<std::tm()>;

  /// Parses `source`. Throws Error with the line of what cannot be parsed. `clock` tells the local
  /// time for strftime_now(); the system's by default.
  explicit ChatTemplate(std::string source, Clock clock = {});

  /// The prompt. Takes messages as they are: see normalise_messages(). kwargs win over the
  /// variables of the same name, as in transformers. Throws RequestError (param "messages") with
  /// what the template raises, or with the line of what fails in it.
  MarkedText render(const ChatInput& input) const;

  /// Whether the source mentions the role at all: a template that does not know "developer" gets
  /// "system" instead.
  bool knows_role(const std::string& role) const;

  const std::string& source() const { return source_; }

 private:
  std::string source_;
  jinja::Template template_;
  Clock clock_;
};

}  // namespace minisgl
