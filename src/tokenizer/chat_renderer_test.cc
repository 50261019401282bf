#include "tokenizer/chat_renderer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/error.h"
#include "testing/unpack.h"
#include "tokenizer/huggingface.h"

namespace minisgl {
namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<TokenId>;

constexpr TokenId kImStart = 1, kImEnd = 2;  // of smollm2

// SmolLM2's vocabulary with these templates.
BpeTokenizer tokenizer_with(ChatTemplates templates) {
  const auto folder = std::filesystem::path(MINISGL_TEST_DATA) / "tokenizers" / "smollm2";
  auto parts = parse_tokenizer_json(testing_util::read_unpacked(folder / "tokenizer.json"));
  parts.chat_templates = std::move(templates);
  return BpeTokenizer(std::move(parts));
}

const char* const kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";

Json user(const std::string& text) { return {{{"role", "user"}, {"content", text}}}; }

std::string render(const BpeTokenizer& tokenizer, ChatOptions options, const Json& tools = nullptr,
                   const Json& kwargs = nullptr) {
  return ChatRenderer(tokenizer, std::move(options)).render(user("hi"), tools, kwargs, true).text;
}

template <class F>
std::string error_of(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(ChatRenderer, SpecialTokensInMessagesArePlainTextUnlessAskedFor) {
  const BpeTokenizer tokenizer = tokenizer_with({{"default", kChatMl}});
  const Json messages = user("a<|im_end|>b");
  const auto ids_of = [&](bool parse) {
    const ChatRenderer renderer(tokenizer, {.parse_special_in_messages = parse});
    return tokenizer.encode(renderer.render(messages, nullptr, nullptr, true));
  };
  const Ids plain = ids_of(false), parsed = ids_of(true);
  EXPECT_EQ(std::ranges::count(plain, kImEnd), 1);
  EXPECT_EQ(std::ranges::count(parsed, kImEnd), 2);
  EXPECT_EQ(std::ranges::count(plain, kImStart), 1);
  const std::string text = "<|im_start|>user\na<|im_end|>b<|im_end|>\n";
  EXPECT_EQ(parsed, tokenizer.encode(text)) << "as Hugging Face encodes the rendered text";
  EXPECT_EQ(tokenizer.decode(plain, /*skip_special=*/false), text);
}

TEST(ChatRenderer, TheRequestsVariablesWinOverTheDefaults) {
  const BpeTokenizer tokenizer = tokenizer_with({{"default", "{{ a }}{{ b }}{{ c }}"}});
  const ChatOptions defaults{.default_kwargs = parse_template_kwargs(R"({"a": 1, "b": 2})")};
  EXPECT_EQ(render(tokenizer, defaults), "12");
  EXPECT_EQ(render(tokenizer, defaults, nullptr, {{"b", 3}, {"c", 4}}), "134");
  EXPECT_EQ(render(tokenizer, defaults, nullptr, Json::object()), "12");
}

TEST(ChatRenderer, DefaultVariablesMustBeAnObject) {
  EXPECT_EQ(parse_template_kwargs(""), Json::object());
  for (const std::string text : {"[1]", "{", "true", "{'a': 1}"})
    EXPECT_EQ(error_of([&] { parse_template_kwargs(text); }),
              "the default variables of the chat template must be a JSON object such as "
              "{\"enable_thinking\": false}, not " +
                  text);
}

TEST(ChatRenderer, ChatsWithToolsTakeTheTemplateForTools) {
  const BpeTokenizer tokenizer = tokenizer_with({{"default", "plain"}, {"tool_use", "tools"}});
  const Json tools = Json::array({{{"type", "function"}}});
  EXPECT_EQ(render(tokenizer, {}), "plain");
  EXPECT_EQ(render(tokenizer, {}, Json::array()), "plain");
  EXPECT_EQ(render(tokenizer, {}, tools), "tools");
  EXPECT_EQ(render(tokenizer, {.chat_template = "default"}, tools), "plain");
  EXPECT_EQ(render(tokenizer, {.chat_template = "tool_use"}), "tools");
}

TEST(ChatRenderer, AFileIsTakenInsteadOfTheModelsTemplate) {
  const auto path = std::filesystem::path(testing::TempDir()) / "minisgl_chat_renderer.jinja";
  std::ofstream(path) << "{{ messages[0].content }}!";
  const BpeTokenizer tokenizer = tokenizer_with({{"default", "plain"}, {"tool_use", "tools"}});
  EXPECT_EQ(render(tokenizer, {.chat_template = path.string()}), "hi!");
  EXPECT_EQ(render(tokenizer_with({}), {.chat_template = path.string()}), "hi!");
  std::ofstream(path) << "{% for %}";
  EXPECT_NE(error_of([&] {
              render(tokenizer, {.chat_template = path.string()});
            }).find("chat template, line 1"),
            std::string::npos);
  std::filesystem::remove(path);
}

TEST(ChatRenderer, AChoiceThatIsNotThereIsNamedWithWhatIs) {
  const BpeTokenizer tokenizer = tokenizer_with({{"default", "plain"}, {"rag", "r"}});
  EXPECT_EQ(error_of([&] { render(tokenizer, {.chat_template = "tool_use"}); }),
            "the chat template \"tool_use\" is neither a file nor one of the model's, which are: "
            "default, rag");
  EXPECT_EQ(error_of([&] { render(tokenizer_with({}), {.chat_template = "x"}); }),
            "the chat template \"x\" is neither a file nor one of the model's, which has none");
  EXPECT_EQ(error_of([&] { render(tokenizer_with({}), {}); }), "the model has no chat template");
}

// Case TOK-3. The tokenizer has Llama 3's processing steps and adds <s> to prompts.
TEST(ChatRenderer, BosIsThereOnceInAChatAndOnceInAPrompt) {
  const auto styles = nlohmann::json::parse(testing_util::read_unpacked(
      std::filesystem::path(MINISGL_TEST_DATA) / "tokenizers" / "styles.json"));
  auto parts = parse_tokenizer_json(styles["llama3"]["tokenizer"].dump());
  parse_tokenizer_config(
      R"({"bos_token": "<s>", "chat_template": "{{ bos_token }}{{ messages[0].content }}"})",
      parts);
  const BpeTokenizer tokenizer(std::move(parts));
  const TokenId bos = tokenizer.bos_id().value();
  const auto bos_places = [&](const Ids& ids) {
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (ids[i] == bos) places.push_back(i);
    return places;
  };
  using Places = std::vector<std::size_t>;
  const ChatRenderer renderer(tokenizer, {});
  EXPECT_EQ(bos_places(tokenizer.encode(renderer.render(user("hi"), nullptr, nullptr, true))),
            (Places{0}));
  EXPECT_EQ(bos_places(tokenizer.encode(renderer.render(user("<s>hi"), nullptr, nullptr, true))),
            (Places{0}))
      << "a user cannot write one";
  EXPECT_EQ(bos_places(tokenizer.encode("hi", {.add_special = true})), (Places{0}));
  EXPECT_EQ(bos_places(tokenizer.encode("<s>hi", {.add_special = true})), (Places{0, 1}))
      << "what a prompt says is not taken away";
}

TEST(ChatRenderer, DeveloperIsSystemForATemplateThatDoesNotKnowIt) {
  const Json messages = {{{"role", "developer"}, {"content", "x"}}};
  const auto role = [&](const char* source) {
    return ChatRenderer(tokenizer_with({{"default", source}}), {})
        .render(messages, nullptr, nullptr, true)
        .text;
  };
  EXPECT_EQ(role("{{ messages[0].role }}"), "system");
  EXPECT_EQ(role("{{ messages[0].role }}{# developer #}"), "developer");
}

}  // namespace
}  // namespace minisgl
