#include "tokenizer/chat_renderer.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "minisgl/error.h"
#include "tokenizer/chat_messages.h"

namespace minisgl {
namespace {

using Json = nlohmann::ordered_json;

std::string names_of(const ChatTemplates& templates) {
  std::string names;
  for (const auto& [name, source] : templates) names += (names.empty() ? "" : ", ") + name;
  return names;
}

std::string read_template(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error("cannot read the chat template " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The template that the operator chose.
std::string chosen_source(const ChatTemplates& templates, const std::string& choice) {
  if (std::filesystem::is_regular_file(choice)) return read_template(choice);
  if (const auto named = templates.find(choice); named != templates.end()) return named->second;
  const std::string names = names_of(templates);
  throw Error("the chat template \"" + choice + "\" is neither a file nor one of the model's, " +
              (names.empty() ? "which has none" : "which are: " + names));
}

}  // namespace

Json parse_template_kwargs(std::string_view text) {
  if (text.empty()) return Json::object();
  Json kwargs = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!kwargs.is_object())
    throw Error(
        "the default variables of the chat template must be a JSON object such as "
        "{\"enable_thinking\": false}, not " +
        std::string(text));
  return kwargs;
}

ChatRenderer::ChatRenderer(const Tokenizer& tokenizer, ChatOptions options)
    : options_(std::move(options)),
      bos_token_(tokenizer.bos_token()),
      eos_token_(tokenizer.eos_token()) {
  const ChatTemplates& templates = tokenizer.chat_templates();
  if (!options_.chat_template.empty()) {
    template_ = std::make_unique<ChatTemplate>(chosen_source(templates, options_.chat_template));
    return;
  }
  if (tokenizer.chat_template().empty()) throw Error("the model has no chat template");
  template_ = std::make_unique<ChatTemplate>(std::string(tokenizer.chat_template()));
  if (const auto tools = templates.find("tool_use"); tools != templates.end())
    tool_template_ = std::make_unique<ChatTemplate>(tools->second);
}

MarkedText ChatRenderer::render(const Json& messages, const Json& tools, const Json& kwargs,
                                bool add_generation_prompt) const {
  const bool with_tools = tool_template_ != nullptr && tools.is_array() && !tools.empty();
  const ChatTemplate& chosen = with_tools ? *tool_template_ : *template_;
  ChatInput input;
  input.messages =
      normalise_messages(messages, {.developer_as_system = !chosen.knows_role("developer")});
  input.tools = tools;
  input.kwargs = options_.default_kwargs;
  if (kwargs.is_object())
    for (const auto& [name, value] : kwargs.items()) input.kwargs[name] = value;
  input.add_generation_prompt = add_generation_prompt;
  input.bos_token = bos_token_;
  input.eos_token = eos_token_;
  MarkedText prompt = chosen.render(input);
  if (options_.parse_special_in_messages) prompt.message_spans.clear();
  return prompt;
}

}  // namespace minisgl
