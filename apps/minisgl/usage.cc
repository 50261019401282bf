#include "usage.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/file_kind.h"

namespace minisgl::app {
namespace {

constexpr std::size_t kDescriptionColumn = 30;

std::size_t terminal_width() {
  constexpr std::size_t kNarrowest = 60, kWidest = 100;
  winsize size{};
  if (::isatty(STDOUT_FILENO) != 1 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 ||
      size.ws_col == 0)
    return kWidest;
  return std::clamp<std::size_t>(size.ws_col, kNarrowest, kWidest);
}

/// "  name   text", the text broken between words and under itself.
std::string entry(const std::string& name, const std::string& text, std::size_t width) {
  std::string result = "  " + name;
  std::size_t column = result.size();
  const auto indent = [&] {
    result.append(kDescriptionColumn - column, ' ');
    column = kDescriptionColumn;
  };
  const auto new_line = [&] {
    result += '\n';
    column = 0;
    indent();
  };
  if (text.empty()) return result + '\n';
  column < kDescriptionColumn ? indent() : new_line();
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (column > kDescriptionColumn && column + 1 + word.size() > width) new_line();
    if (column > kDescriptionColumn) {
      result += ' ';
      ++column;
    }
    result += word;
    column += word.size();
  }
  return result + '\n';
}

class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(std::size_t width) : width_(width) {}

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return entry(make_option_name(option, is_positional) + make_option_opts(option),
                 make_option_desc(option), width_);
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return entry(command->get_display_name(), command->get_description(), width_);
  }
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
    for (auto at = text.find("\n\n\n"); at != std::string::npos; at = text.find("\n\n\n", at))
      text.erase(at, 1);  // groups are one blank line apart
    return text;
  }

 private:
  std::size_t width_;
};

/// Letters to insert, drop or change that make `b` of `a` (Levenshtein's distance).
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, changed}));
    }
  }
  return row[b.size()];
}

/// The flag of `command` that is spelt most like `flag`; empty when none is much like it.
std::string nearest_flag(const CLI::App& command, const std::string& flag) {
  constexpr std::size_t kMostChanges = 3;
  const std::string name = flag.substr(0, flag.find('='));
  std::size_t best = std::min(kMostChanges + 1, name.size() / 2);
  std::string nearest;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;  // not in the help
    for (const std::string& known : option->get_lnames()) {
      const std::size_t changes = distance(name, "--" + known);
      if (changes >= best) continue;
      best = changes;
      nearest = "--" + known;
    }
  }
  return nearest;
}

std::string unknown_argument(const CLI::App& command, const std::string& argument) {
  if (!argument.starts_with('-')) return "unexpected argument " + argument;
  const std::string nearest = nearest_flag(command, argument);
  return "unknown flag " + argument + (nearest.empty() ? "" : "; did you mean " + nearest + "?");
}

/// `given`: what was written in place of a command's name, if anything.
std::string missing_command(const CLI::App& command, const std::vector<std::string>& given) {
  std::string names;
  for (const CLI::App* sub : command.get_subcommands({}))
    names += (names.empty() ? "" : ", ") + sub->get_name();
  if (given.empty()) return command.get_name() + " needs a command: " + names;
  return command.get_name() + " has no command " + in_quotes(given.front()) + "; it has " + names;
}

/// CLI11's message about a value that does not become what the flag holds. All such are numbers.
std::string unfit_number(const std::string& message) {
  constexpr std::string_view kBegin = "Could not convert: ", kBetween = " = ";
  const std::size_t between = message.find(kBetween);
  if (!message.starts_with(kBegin) || between == std::string::npos) return message;
  return message.substr(kBegin.size(), between - kBegin.size()) + ": " +
         in_quotes(message.substr(between + kBetween.size())) + " is not a number that fits";
}

}  // namespace

void use_help_formatter(CLI::App& app) {
  app.formatter(std::make_shared<HelpFormatter>(terminal_width()));
}

std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  std::string path = app.get_name();
  while (!command->get_subcommands().empty()) {  // those on the command line
    command = command->get_subcommands().front();
    path += " " + command->get_name();
  }
  std::string what = error.what();
  const std::vector<std::string> unknown = command->remaining();
  const bool needs_command = command->get_require_subcommand_min() > 0;
  if (!unknown.empty() && !(needs_command && !unknown.front().starts_with('-')))
    what = unknown_argument(*command, unknown.front());
  else if (needs_command)
    what = missing_command(*command, unknown);
  else if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr)
    what = unfit_number(what);
  return what + " (see " + path + " --help)";
}

}  // namespace minisgl::app
