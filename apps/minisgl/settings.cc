#include "settings.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include "minisgl/error.h"

namespace minisgl::app {
namespace {

/// "some-flag" of "--some-flag=value"; "" for what is no such flag.
std::string flag_name(const std::string& arg) {
  if (!arg.starts_with("--")) return "";
  return arg.substr(2, arg.find('=') - 2);
}

const CLI::Option* find_option(const CLI::App& command, const std::string& flag) {
  return command.get_option_no_throw("--" + flag);
}

/// The options that `args` set.
std::set<const CLI::Option*> options_in(const CLI::App& command,
                                        const std::vector<std::string>& args) {
  std::set<const CLI::Option*> options;
  for (const std::string& arg : args) {
    if (arg == "--") break;
    const std::string flag = flag_name(arg);
    if (const CLI::Option* option = flag.empty() ? nullptr : find_option(command, flag))
      options.insert(option);
  }
  return options;
}

/// The value that `args` or the environment give --config; "" for none.
std::string config_file(const std::vector<std::string>& args) {
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (args[i].starts_with("--config=")) return args[i].substr(9);
    if (args[i] == "--config" && i + 1 < args.size()) return args[i + 1];
  }
  const char* file = std::getenv("MINISGL_CONFIG");
  return file == nullptr ? "" : file;
}

void append_flag(std::vector<std::string>& args, const std::string& flag,
                 const std::vector<std::string>& values) {
  for (const std::string& value : values) args.push_back("--" + flag + "=" + value);
}

std::vector<std::string> from_environment(const CLI::App& command,
                                          std::set<const CLI::Option*>& done) {
  std::vector<std::string> args;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_lnames().empty() || done.count(option) > 0) continue;
    for (const std::string& flag : option->get_lnames()) {
      const char* value = flag == "help" ? nullptr : std::getenv(variable_of(flag).c_str());
      if (value == nullptr || *value == '\0') continue;
      append_flag(args, flag, {value});
      done.insert(option);
      break;
    }
  }
  return args;
}

bool is_command(const CLI::App& app, const std::string& name) {
  const std::vector<const CLI::App*> commands = app.get_subcommands({});
  return std::any_of(commands.begin(), commands.end(),
                     [&](const CLI::App* command) { return command->get_name() == name; });
}

toml::table read_config(const std::string& file) {
  std::ifstream stream(file);
  if (!stream) throw Error("cannot read --config " + file + ": " + std::strerror(errno));
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  try {
    return toml::parse(text, file);
  } catch (const toml::parse_error& e) {
    std::ostringstream what;
    what << "--config " << file << " line " << e.source().begin.line
         << " is not TOML: " << e.description();
    throw Error(what.str());
  }
}

/// A setting as the command line would have it: one text, or several of an array.
std::vector<std::string> values_of(const toml::node& node, const std::string& where) {
  std::ostringstream text;
  if (const auto* string = node.as_string()) {
    text << string->get();
  } else if (const auto* boolean = node.as_boolean()) {
    text << (boolean->get() ? "true" : "false");
  } else if (const auto* integer = node.as_integer()) {
    text << integer->get();
  } else if (const auto* number = node.as_floating_point()) {
    text.precision(17);
    text << number->get();
  } else if (const auto* array = node.as_array()) {
    std::vector<std::string> values;
    for (const toml::node& element : *array) {
      const std::vector<std::string> more = values_of(element, where);
      values.insert(values.end(), more.begin(), more.end());
    }
    return values;
  } else {
    throw Error(where + " is neither text, a number, true, false nor an array of them");
  }
  return {text.str()};
}

void append_table(std::vector<std::string>& args, const toml::table& table, const CLI::App& command,
                  const std::string& file, std::set<const CLI::Option*>& done) {
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    if (node.is_table()) {
      if (name == command.get_name())
        append_table(args, *node.as_table(), command, file, done);
      else if (!is_command(*command.get_parent(), name))
        throw Error("--config " + file + ": there is no command \"" + name + "\"");
      continue;  // or it is another command's section
    }
    std::string flag = name;
    std::replace(flag.begin(), flag.end(), '_', '-');
    const CLI::Option* option = find_option(command, flag);
    if (option == nullptr || flag == "config" || flag == "help")
      throw Error("--config " + file + ": there is no setting \"" + name +
                  "\"; settings are the long flags of minisgl " + command.get_name() + " --help");
    if (done.count(option) > 0) continue;
    append_flag(args, flag, values_of(node, "--config " + file + ": \"" + name + "\""));
    done.insert(option);
  }
}

}  // namespace

std::string variable_of(const std::string& flag) {
  std::string variable = "MINISGL_";
  for (const char c : flag)
    variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return variable;
}

void add_config_flag(CLI::App& command) {
  command
      .add_option("--config",
                  "TOML file with settings, one \"flag = value\" a line; flags and the environment "
                  "(MINISGL_SOME_FLAG for --some-flag) win over it")
      ->type_name("FILE");
}

std::vector<std::string> with_settings(const CLI::App& command, std::vector<std::string> args) {
  std::set<const CLI::Option*> done = options_in(command, args);
  std::vector<std::string> settings = from_environment(command, done);
  if (const std::string file = config_file(args); !file.empty()) {
    append_table(settings, read_config(file), command, file, done);
  }
  args.insert(args.begin(), settings.begin(), settings.end());
  return args;
}

}  // namespace minisgl::app
