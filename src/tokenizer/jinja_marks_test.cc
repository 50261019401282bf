// Marks of user text: through every operation, checked by writing user text and template in two
// alphabets.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tokenizer/jinja_template.h"

namespace minisgl::jinja {
namespace {

MarkedText render(const std::string& source, const Variables& variables) {
  return Template(source).render(variables, std::tm{});
}

Value user(const std::string& text) { return Value::string(Str(text, /*marked=*/true)); }

// The result with its marked parts in braces.
std::string shown(const std::string& source, const Variables& variables) {
  const MarkedText m = render(source, variables);
  std::string out;
  std::size_t done = 0;
  for (const Span& span : m.message_spans) {
    out += m.text.substr(done, span.begin - done) + "«";
    out += m.text.substr(span.begin, span.end - span.begin) + "»";
    done = span.end;
  }
  return out + m.text.substr(done);
}

TEST(JinjaMarks, FollowTheTextThroughEveryOperation) {
  const Variables vars{{"u", user("ab cd")},
                       {"n", user("  x\ny ")},
                       {"q", user("a\"\n\x01é")},
                       {"d", from_json({{"k", "v"}, {"l", {"w", 1, true}}}, true)}};
  const auto is = [&](const std::string& expression, const std::string& wanted) {
    EXPECT_EQ(shown("{{ " + expression + " }}", vars), wanted) << expression;
  };
  is("u", "«ab cd»");
  is("'<' + u + '>'", "<«ab cd»>");
  is("'<' ~ u ~ u ~ 1", "<«ab cdab cd»1");
  is("u * 2", "«ab cdab cd»");
  is("u[1:4]", "«b c»");
  is("('x' + u)[::-1]", "«dc ba»x");
  is("u[0] + 'z' + u[-1]", "«a»z«d»");
  is("u | upper", "«AB CD»");
  is("('x ' + u) | title", "X «Ab Cd»");
  is("('x' + u) | capitalize", "X«ab cd»");
  is("n | trim", "«x\ny»");
  is("(' ' + n + ' ').strip() + '.'", "«x\ny».");
  is("n.lstrip() + '|' + n.rstrip()", "«x\ny »|«  x\ny»");
  is("u.split(' ')", "['«ab»', '«cd»']");
  is("u.split(' ') | last", "«cd»");
  is("('p:' + u).split(':')[1]", "«ab cd»");
  is("u.partition(' ') | join('_')", "«ab»_« »_«cd»");
  is("n.splitlines() | join('/')", "«  x»/«y »");
  is("u | replace('b', 'BB')", "«a»BB« cd»");
  is("'1 2' | replace(' ', u)", "1«ab cd»2");
  is("u.replace(' ', '')", "«abcd»");
  is("[u, 'x', u] | join(', ')", "«ab cd», x, «ab cd»");
  is("u.join(['x', 'y'])", "x«ab cd»y");
  is("['x', 'y'] | join(u)", "x«ab cd»y");
  is("u | list", "['«a»', '«b»', '« »', '«c»', '«d»']");
  is("u | first ~ u | last", "«ad»");
  is("u | reverse", "«dc ba»");
  is("[u]", "['«ab cd»']");
  is("{'k': u} | string", "{'k': '«ab cd»'}");
  is("[q]", "['«a\"\\n\\x01é»']");
  is("q | tojson", "\"«a\\\"\\n\\u0001é»\"");
  is("q | tojson(ensure_ascii=true)", "\"«a\\\"\\n\\u0001\\u00e9»\"");
  is("d | tojson", "{\"«k»\": \"«v»\", \"«l»\": [\"«w»\", 1, true]}");
  is("{'t': u} | tojson(indent=1)", "{\n \"t\": \"«ab cd»\"\n}");
  is("d.l | first", "«w»");
  is("d.items() | list", "[('«k»', '«v»'), ('«l»', ['«w»', 1, True])]");
  is("d | dictsort | map('first') | join", "«kl»");
  is("[d, d] | map(attribute='k') | join('+')", "«v»+«v»");
  is("[u] | map('upper') | first", "«AB CD»");
  is("n | indent(2)", "«  x»\n  «y »");
  is("'a\nb' | indent(u)", "a\n«ab cd»b");
  is("u | center(9)", "  «ab cd»  ");
  is("u.ljust(7, '.') + u.rjust(6) + u.zfill(6)", "«ab cd».. «ab cd»0«ab cd»");
  is("u | truncate(4, false, '..', 0)", "«ab»..");
  is("u | wordwrap(2)", "«ab»\n«cd»");
  is("'<b>' ~ u ~ '</b>' | escape", "<b>«ab cd»&lt;/b&gt;");
  is("(u ~ '<') | escape", "«ab cd»&lt;");
  is("q | escape", "«a&#34;\n\x01é»");
  is("q | urlencode", "«a%22%0A%01%C3%A9»");
  is("('<i>' ~ u ~ '</i>') | striptags", "«ab cd»");
  is("u | string | safe", "«ab cd»");
  is("'%s-%5s|%.1s' % (u, 'x', u)", "«ab cd»-    x|«a»");
  is("'%r' % u", "'«ab cd»'");
  is("u % ()", "«ab cd»");
  is("'{} {:>6} {k}'.format(u, u, k=u)", "«ab cd»  «ab cd» «ab cd»");
  is("'{a[l][0]}'.format(a=d)", "«w»");
  is("'%s' | format(u)", "«ab cd»");
  is("u.removeprefix('a').removesuffix('d')", "«b c»");
  is("u.expandtabs() ~ u.casefold() ~ u.swapcase()", "«ab cdab cdAB CD»");
  is("[u, 'x'] | sort | join(' ')", "«ab cd» x");
  is("[u, 'ab cd'] | unique | list", "['«ab cd»']");
  is("[{'g': u}] | groupby('g') | map('first') | list", "['«ab cd»']");
  is("[u] | batch(2, 'f') | list", "[['«ab cd»', 'f']]");
  is("missing | default(u)", "«ab cd»");
  is("u if true else 'x'", "«ab cd»");
  is("'' or u", "«ab cd»");
  is("[u] | max", "«ab cd»");
  is("{'a<': u} | xmlattr", " a&lt;=\"«ab cd»\"");
  is("cycler(u).next() ~ joiner(u)()", "«ab cd»");
  is("u | length", "5");
  is("u.find('b')", "1");
}

TEST(JinjaMarks, FollowTheTextThroughStatements) {
  const Variables vars{{"u", user("ab")}};
  EXPECT_EQ(shown("{% set x = u %}{{ x }}", vars), "«ab»");
  EXPECT_EQ(shown("{% set x %}[{{ u }}]{% endset %}{{ x }}", vars), "[«ab»]");
  EXPECT_EQ(shown("{% set n = namespace(t='') %}{% for c in u %}{% set n.t = n.t ~ c ~ '.' %}"
                  "{% endfor %}{{ n.t }}",
                  vars),
            "«a».«b».");
  EXPECT_EQ(shown("{% macro m(a) %}<{{ a }}>{{ caller() }}{% endmacro %}"
                  "{% call m(u) %}{{ u }}{% endcall %}",
                  vars),
            "<«ab»>«ab»");
  EXPECT_EQ(shown("{% filter upper %}x{{ u }}{% endfilter %}", vars), "X«AB»");
  EXPECT_EQ(shown("{% for a, b in [(u, 'x')] recursive %}{{ a }}{{ b }}{% endfor %}", vars),
            "«ab»x");
  EXPECT_EQ(shown("{% generation %}{{ u }}{% endgeneration %}", vars), "«ab»");
  EXPECT_EQ(shown("{% autoescape true %}<{{ u ~ '<' }}{% endautoescape %}", vars), "<«ab»&lt;");
}

// User text is Cyrillic and the template's own is Latin; no operation turns one into the other. So
// in the result of any expression exactly the Cyrillic letters must be marked.
TEST(JinjaMarks, AreRightAfterAnyRandomChainOfOperations) {
  const std::vector<std::string> starts{"u",
                                        "'latin text'",
                                        "(u ~ ' abc')",
                                        "('abc ' + u + ' def')",
                                        "([u, 'x', u] | join('-'))",
                                        "(['q', u] | string)",
                                        "({'k': u, u: 'v'} | tojson)",
                                        "('%s and %s' % (u, 'x'))",
                                        "('{} z {:*>9}'.format(u, 'y'))",
                                        "(d | tojson(indent=2))",
                                        "(d.items() | list | string)",
                                        "('pre\n' ~ u ~ '\npost')"};
  const std::vector<std::string> steps{" | upper",
                                       ".title()",
                                       " | title",
                                       "[1:]",
                                       "[::-1]",
                                       "[2:9]",
                                       "[::2]",
                                       " | trim",
                                       ".split(' ') | join('+')",
                                       ".rsplit(' ', 1) | join('<b>')",
                                       " | replace('a', 'bb')",
                                       " | replace(' ', u)",
                                       ".replace('', '.', 3)",
                                       " | replace(u, 'gone')",
                                       " | indent(2, true)",
                                       " | center(30)",
                                       " | truncate(12, true)",
                                       " | wordwrap(6)",
                                       ".partition(' ') | join('/')",
                                       " | list | join",
                                       " | capitalize",
                                       ".swapcase()",
                                       ".casefold()",
                                       " | escape | string",
                                       ".zfill(30)",
                                       ".ljust(30, '.')",
                                       " | batch(3) | map('join') | join(',')",
                                       ".splitlines() | join('|')",
                                       ".expandtabs()",
                                       " | striptags",
                                       " * 2",
                                       " | sort | join",
                                       " | unique | join",
                                       " | reverse",
                                       ".join(['a', u])",
                                       " | string",
                                       ".strip('aт')",
                                       " ~ u",
                                       " ~ 'lat'",
                                       " | tojson",
                                       " | pprint",
                                       " | map('upper') | join",
                                       " | safe",
                                       " | lower"};
  const Variables vars{{"u", user("Привет, Мир\tи \"все\"\nёж")},
                       {"d", from_json({{"ключ", "знач"}, {"сп", {"раз", 2}}}, true)}};
  std::mt19937 random(20250704);
  const auto any = [&](const std::vector<std::string>& from) {
    return from[random() % from.size()];
  };
  for (int round = 0; round < 3000; ++round) {
    std::string expression = any(starts);
    for (auto n = random() % 6; n > 0; --n) expression = "(" + expression + any(steps) + ")";
    const MarkedText got = render("{{ " + expression + " }}", vars);
    const Str text(got.text, got.message_spans, false);
    MarkCursor marks(text);
    for_each_char(got.text, [&](const Char& c) {
      const bool marked = marks.at(c.begin);
      const bool cyrillic = c.code >= 0x400 && c.code < 0x500;
      const bool latin = (c.code >= 'a' && c.code <= 'z') || (c.code >= 'A' && c.code <= 'Z');
      // Escapes of user text ("\n", "&quot;") are Latin letters that belong to it.
      const bool escapes = expression.find("esc") != std::string::npos ||
                           got.text.find('\\') != std::string::npos ||
                           expression.find("string") != std::string::npos ||
                           expression.find("pprint") != std::string::npos;
      if (cyrillic || (latin && !escapes)) {
        ASSERT_EQ(marked, cyrillic) << expression << " at " << c.begin << " of " << got.text;
      }
    });
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace minisgl::jinja
