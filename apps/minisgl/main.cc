// minisgl: serve and run language models. One program, subcommands for each way to use it.

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "commands.h"
#include "minisgl/error.h"
#include "minisgl/version.h"
#include "settings.h"
#include "usage.h"

namespace {

using minisgl::app::Command;

struct Entry {
  const char* name;
  const char* help;
  Command (*add)(CLI::App&);
};

constexpr std::array kCommands{
    Entry{"serve", "Serve a model over HTTP, OpenAI-compatible (the default)",
          minisgl::app::add_serve},
    Entry{"shell", "Talk to a model in the terminal", minisgl::app::add_shell},
    Entry{"generate", "Answer one prompt, or a file of them", minisgl::app::add_generate},
    Entry{"bench", "Measure the speed of this machine with a model", minisgl::app::add_bench},
    Entry{"pull", "Download a model into the Hugging Face cache", minisgl::app::add_pull},
    Entry{"tokenize", "Text on standard input to a JSON array of token ids",
          minisgl::app::add_tokenize},
    Entry{"detokenize", "A JSON array of token ids on standard input to text",
          minisgl::app::add_detokenize},
    Entry{"render", "A chat request on standard input to the text of its prompt",
          minisgl::app::add_render},
    Entry{"perplexity", "Score a text file", minisgl::app::add_perplexity},
};

bool is_command(const std::string& name) {
  return std::any_of(kCommands.begin(), kCommands.end(),
                     [&](const Entry& entry) { return entry.name == name; });
}

/// `minisgl --model X` serves and `minisgl --model X --shell` starts the shell, as if their names
/// stood there.
void insert_default_command(std::vector<std::string>& args) {
  if (args.empty()) return;
  const std::string& first = args.front();
  if (first.empty() || first[0] != '-' || first == "-h" || first == "--help" ||
      first == "--version")
    return;
  const auto is_shell = [](const std::string& arg) {
    return arg == "--shell" || arg == "--shell-mode";
  };
  const bool shell = std::any_of(args.begin(), args.end(), is_shell);
  args.erase(std::remove_if(args.begin(), args.end(), is_shell), args.end());
  args.insert(args.begin(), shell ? "shell" : "serve");
}

int run(int argc, char** argv) {
  const std::string program = std::string("minisgl ") + minisgl::kVersion;
  CLI::App app(program + ": an engine that serves and runs language models on your own machine.",
               "minisgl");
  app.set_version_flag("--version", program);
  app.require_subcommand(1);
  minisgl::app::use_help_formatter(app);
  std::vector<std::pair<CLI::App*, Command>> commands;
  for (const Entry& entry : kCommands) {
    CLI::App* sub = app.add_subcommand(entry.name, entry.help);
    commands.emplace_back(sub, entry.add(*sub));
    minisgl::app::add_config_flag(*sub);
    const std::string own = sub->get_footer();
    sub->footer(own + (own.empty() ? "" : "\n\n") +
                "Every flag can also be set in the environment, MINISGL_SOME_FLAG for --some-flag, "
                "and in\nthe file of --config.");
  }
  app.footer(
      "minisgl --model MODEL            serves it at http://127.0.0.1:1919/v1\n"
      "minisgl --model MODEL --shell    talks to it here\n"
      "MODEL is a GGUF file, a Hugging Face folder, or a name such as org/name after\n"
      "minisgl pull org/name.");

  std::vector<std::string> args(argv + 1, argv + argc);
  insert_default_command(args);
  if (args.empty()) {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  }
  if (args.front()[0] != '-' && !is_command(args.front())) {
    std::fprintf(stderr, "minisgl: there is no command \"%s\" (see minisgl --help)\n",
                 args.front().c_str());
    return 2;
  }
  if (is_command(args.front())) {
    const std::string name = args.front();
    args.erase(args.begin());
    args = minisgl::app::with_settings(*app.get_subcommand(name), std::move(args));
    args.insert(args.begin(), name);
  }
  try {
    std::reverse(args.begin(), args.end());  // CLI11 takes its vector from the back
    app.parse(args);
  } catch (const CLI::Success& e) {
    return app.exit(e);  // --help, --version
  } catch (const CLI::ParseError& e) {
    std::fprintf(stderr, "minisgl: %s\n", minisgl::app::explain(app, e).c_str());
    return 2;
  }
  for (const auto& [sub, command] : commands)
    if (sub->parsed()) return command();
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("minisgl: out of memory\n", stderr);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "minisgl: %s\n", e.what());
  }
  return 1;
}
