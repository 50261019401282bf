// Flags that come from a file or from the environment.

#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace minisgl::app {

/// Adds --config FILE to a command.
void add_config_flag(CLI::App& command);

/// `args` (a command's, without its name) with flags put in front that they do not have themselves:
/// from MINISGL_SOME_FLAG for --some-flag, then from the file that --config or MINISGL_CONFIG
/// names. The file is TOML: "some-flag = value" or "some_flag = value", at the top or in a section
/// named as the command. Throws Error naming the file for what no flag of the command is called.
std::vector<std::string> with_settings(const CLI::App& command, std::vector<std::string> args);

/// "MINISGL_SOME_FLAG" for "some-flag".
std::string variable_of(const std::string& flag);

}  // namespace minisgl::app
