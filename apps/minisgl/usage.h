// How the program explains itself: the text of --help, and what is said about a wrong command line.

#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace minisgl::app {

/// Gives `app` and the commands that are added to it later a help that fits the terminal: texts are
/// broken at its width, or at 100 columns where there is none.
void use_help_formatter(CLI::App& app);

/// One line about why `error` was thrown by app.parse(): the flag or argument that nobody knows
/// (with the known flag that is spelt most like it) before anything that is missing, and which
/// --help to read.
std::string explain(const CLI::App& app, const CLI::ParseError& error);

}  // namespace minisgl::app
