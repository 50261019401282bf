// What a file is, by its first bytes: the words of an error about a file of the wrong kind.

#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace minisgl {

/// "an empty file", "a Git LFS pointer (run: git lfs pull)", "a zip archive", "a safetensors file",
/// "a GGUF file", ...; "a file that begins with the bytes 01 02 03 04" for what is not known. Reads
/// at most 512 bytes. Never fails.
std::string describe_content(std::span<const std::byte> bytes);

/// `text` between single quotes, for an error line: bytes that are no text, control characters and
/// those that change the direction of a line become \xNN, and what is longer than 80 bytes is cut.
/// A name out of a damaged file must not be able to break the line or flood the terminal.
std::string in_quotes(std::string_view text);

}  // namespace minisgl
