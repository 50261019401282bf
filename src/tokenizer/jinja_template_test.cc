#include "tokenizer/jinja_template.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

namespace minisgl::jinja {
namespace {

using Json = nlohmann::ordered_json;

std::tm test_time() {
  std::tm now{};  // Friday, 2025-07-04 09:05:03
  now.tm_year = 125;
  now.tm_mon = 6;
  now.tm_mday = 4;
  now.tm_hour = 9;
  now.tm_min = 5;
  now.tm_sec = 3;
  now.tm_wday = 5;
  now.tm_yday = 184;
  return now;
}

Variables variables_from(const Json& json) {
  Variables all;
  for (const auto& [name, value] : json.items())
    all.emplace_back(name, from_json(value, /*marked=*/true));
  return all;
}

std::string render(const std::string& source, const Json& variables = Json::object(),
                   const Limits& limits = {}) {
  return Template(source).render(variables_from(variables), test_time(), limits).text;
}

std::string error_of(const std::string& source, const Json& variables = Json::object(),
                     const Limits& limits = {}) {
  try {
    return "no error, but: " + render(source, variables, limits);
  } catch (const TemplateError& e) {
    return "line " + std::to_string(e.line()) + ": " + e.what();
  }
}

// Renders every line of `file` and compares text or message with what jinja2 gave.
void check_snippets(const std::string& file, const std::map<std::string, std::string>& own_words) {
  const std::string folder = std::string(MINISGL_TEST_DATA) + "/chat_templates/";
  std::ifstream context_file(folder + "jinja_snippets_context.json");
  const Variables variables = variables_from(Json::parse(context_file));
  std::ifstream lines(folder + file);
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) {
    const Json snippet = Json::parse(line);
    const std::string source = snippet["template"];
    ++count;
    std::string got;
    bool failed = false;
    try {
      got = Template(source).render(variables, test_time()).text;
    } catch (const TemplateError& e) {
      failed = true;
      got = e.what();
      EXPECT_GT(e.line(), 0) << source;
    }
    EXPECT_EQ(failed, snippet.contains("error")) << source << "\n" << got;
    const auto own = own_words.find(source);
    const Json& wanted =
        snippet.contains("error") ? snippet["error"]["message"] : snippet["expected"];
    EXPECT_EQ(got, own != own_words.end() ? own->second : wanted.get<std::string>()) << source;
  }
  EXPECT_GT(count, 100) << file;
}

TEST(JinjaTemplate, SnippetsRenderAsInJinja2) {
  // jinja2 fails on these too, but in words that make no sense here.
  const std::string no_files =
      " is not supported: a chat template is one text, without other files";
  check_snippets("jinja_snippets.jsonl",
                 {
                     {"{% include 'x' %}", "the statement 'include'" + no_files},
                     {"{% extends 'x' %}", "the statement 'extends'" + no_files},
                     {"{% import 'x' as y %}", "the statement 'import'" + no_files},
                     {"{% break %}", "'break' outside loop"},
                 });
}

TEST(JinjaTemplate, MoreSnippetsRenderAsInJinja2) {
  check_snippets("jinja_more_snippets.jsonl", {});
}

TEST(JinjaTemplate, ErrorsNameTheLine) {
  EXPECT_EQ(error_of("a\nb\n{{ x.y }}"), "line 3: 'x' is undefined");
  EXPECT_EQ(error_of("{% for i in [1] %}\n\n  {{ i + 'a' }}{% endfor %}"),
            "line 3: unsupported operand type(s) for +: 'int' and 'str'");
  EXPECT_EQ(error_of("\n{{ 1 | nosuch }}"), "line 2: No filter named 'nosuch'.");
  EXPECT_EQ(error_of("\n{{ 1 is nosuch }}"), "line 2: No test named 'nosuch'.");
  EXPECT_EQ(error_of("\n\n{{ nosuch(1) }}"), "line 3: 'nosuch' is undefined");
  EXPECT_EQ(error_of("{#- a\nb\n-#}\n{% wrong %}"), "line 4: Encountered unknown tag 'wrong'.");
  EXPECT_EQ(
      error_of("a\n{%- if x %}\nb"),
      "line 3: Unexpected end of template. Jinja was looking for the following tags: 'elif' or "
      "'else' or 'endif'. The innermost block that needs to be closed is 'if'.");
  EXPECT_EQ(error_of("{% macro m(a) %}\n{{ a.b.c }}{% endmacro %}\n{{ m({}) }}"),
            "line 2: 'dict object' has no attribute 'b'");
}

TEST(JinjaTemplate, AFilterThatIsNotReachedMayBeMissing) {
  EXPECT_EQ(render("{% if false %}{{ 1 | nosuch }}{{ 1 is nosuch }}{% endif %}ok"), "ok");
}

TEST(JinjaTemplate, ARaisedMessageIsTellable) {
  try {
    render("{{ raise_exception('no ' ~ 'way') }}");
    FAIL();
  } catch (const TemplateError& e) {
    EXPECT_STREQ(e.what(), "no way");
    EXPECT_TRUE(e.raised());
  }
}

TEST(JinjaTemplate, RunsOutOfOperationsInEndlessWork) {
  const std::string nested =
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
  EXPECT_EQ(error_of(nested), "line 1: the template takes more than 20000000 operations");
  EXPECT_EQ(error_of("{% for a in range(100) %}{{ a }}{% endfor %}", {}, {.operations = 50}),
            "line 1: the template takes more than 50 operations");
  EXPECT_EQ(error_of("{{ range(1000000) | list }}"),
            "line 1: Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  EXPECT_EQ(error_of("{{ [0] * 1000000000000 }}"),
            "line 1: the template takes more than 20000000 operations");
}

TEST(JinjaTemplate, RefusesTextsWithoutEnd) {
  const std::string too_large = "line 1: the template makes a text of more than 67108864 bytes";
  EXPECT_EQ(error_of("{{ 'ab' * 1000000000000 }}"), too_large);
  EXPECT_EQ(error_of("{% set ns = namespace(s='ab') %}{% for i in range(99) %}"
                     "{% set ns.s = ns.s ~ ns.s %}{% endfor %}"),
            too_large);
  EXPECT_EQ(error_of("{{ 'a'.center(100000000) }}"), too_large);
  EXPECT_EQ(error_of("{{ 'a'.zfill(100000000) }}"), too_large);
  EXPECT_EQ(error_of("{{ ('a' * 10000).replace('', 'b' * 10000) }}"), too_large);
  EXPECT_EQ(error_of("{{ ('\t' * 10000).expandtabs(100000) }}"), too_large);
  EXPECT_EQ(error_of("{{ 'a' | indent(100000000) }}"), too_large);
  EXPECT_EQ(
      error_of("{% for i in range(100) %}{{ 'x' * 900 }}{% endfor %}", {}, {.output_bytes = 1000}),
      "line 1: the template makes a text of more than 1000 bytes");
  EXPECT_EQ(error_of("{{ '%1000000000d' % 1 }}"), "line 1: width of a format is too large");
  EXPECT_EQ(error_of("{{ '{:1000000000}'.format(1) }}"),
            "line 1: width or precision of a format is too large");
}

TEST(JinjaTemplate, RefusesRecursionWithoutEnd) {
  EXPECT_EQ(error_of("{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}"),
            "line 1: maximum recursion depth exceeded: more than 200 macros or loops within each "
            "other");
  EXPECT_EQ(error_of("{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}"),
            "line 1: maximum recursion depth exceeded: more than 200 macros or loops within each "
            "other");
  // Deeper than the limit of nesting before the limit of calls: much code in each macro.
  std::string deep = "m(x)";
  for (int i = 0; i < 50; ++i) deep = "(1 if not " + deep + " else 2)";
  EXPECT_EQ(error_of("{% macro m(x) %}{{ " + deep + " }}{% endmacro %}{{ m(1) }}"),
            "line 1: the template nests expressions or calls deeper than 2000 levels");
}

TEST(JinjaTemplate, RefusesSourceNestedWithoutEnd) {
  const auto repeat = [](const std::string& s, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += s;
    return out;
  };
  const std::string too_deep = "line 1: expressions are nested deeper than 200 levels";
  for (const std::string open : {"(", "[", "{1:", "not ", "-", "f(", "x[", "1 if 1 else "})
    EXPECT_EQ(error_of("{{ " + repeat(open, 20'000) + "1"), too_deep) << open;
  EXPECT_EQ(error_of(repeat("{% if 1 %}", 20'000)),
            "line 1: blocks are nested deeper than 200 levels");
  const std::string too_long = "line 1: one tag has more than 10000 parts of expressions";
  for (const std::string part : {"1 + ", "1 ~ 1 + ", "1 or ", "1 if 1 if ", "1 | abs * ", "1 ** "})
    EXPECT_EQ(error_of("{{ " + repeat(part, 20'000) + "1 }}"), too_long) << part;
  EXPECT_EQ(error_of("{{ x" + repeat(".y", 20'000) + " }}"), too_long);
  EXPECT_EQ(error_of("{{ x" + repeat("|abs", 20'000) + " }}"), too_long);
  // A chain that is allowed is too deep to run, and says so.
  EXPECT_EQ(error_of("{{ " + repeat("1 + ", 3'000) + "1 }}"),
            "line 1: the template nests expressions or calls deeper than 2000 levels");
}

TEST(JinjaTemplate, RefusesValuesNestedWithoutEnd) {
  const std::string too_deep = "values are nested deeper than 200 levels";
  EXPECT_EQ(error_of("{% set ns = namespace(x=[]) %}{% for i in range(100000) %}"
                     "{% set ns.x = [ns.x] %}{% endfor %}"),
            "line 1: " + too_deep);
  EXPECT_EQ(error_of("{% set ns = namespace(x={}) %}{% for i in range(100000) %}"
                     "{% set ns.x = {'a': ns.x} %}{% endfor %}"),
            "line 1: " + too_deep);
  Json deep = Json::array();
  for (int i = 0; i < 300; ++i) deep = Json::array({deep});
  try {
    from_json(deep, true);
    FAIL();
  } catch (const TemplateError& e) {
    EXPECT_EQ(e.what(), too_deep);
  }
}

TEST(JinjaTemplate, NamespacesThatHoldEachOtherAreFreed) {
  // A cycle, and a chain long enough to overflow the stack if it were unwound recursively.
  EXPECT_EQ(render("{% set a = namespace() %}{% set a.self = a %}{{ a.self.self is defined }}"),
            "True");
  EXPECT_EQ(render("{% set ns = namespace(last=none) %}{% for i in range(90000) %}"
                   "{% set ns.last = namespace(before=ns.last) %}{% endfor %}ok"),
            "ok");
  EXPECT_EQ(error_of("{% for i in range(100000) %}{% set x = namespace() %}"
                     "{% set y = namespace() %}{% endfor %}"),
            "line 1: the template makes more than 100000 namespaces");
}

TEST(JinjaTemplate, ThreadsRenderOneTemplate) {
  const Template t(
      "{% macro m(a) %}{{ a | upper }}{% endmacro %}"
      "{% for x in l %}{{ m(x) }}{{ loop.index }}{% set y = x %}{% endfor %}");
  const Variables variables = variables_from(Json::parse(R"({"l": ["a", "b", "c"]})"));
  std::vector<std::thread> threads;
  std::vector<std::string> texts(4);
  for (std::string& text : texts) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) text = t.render(variables, test_time()).text;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, "A1B2C3");
}

}  // namespace
}  // namespace minisgl::jinja
