// A look at what a tokenizer out of a hostile file does with a text.

#pragma once

#include <string_view>

#include "tokenizer/tokenizer.h"

namespace minisgl::fuzz {

/// Encodes `text` in every way, decodes what came of it, and aborts when an id is not of the
/// vocabulary. Lets Error pass.
void use_tokenizer(const Tokenizer& tokenizer, std::string_view text);

}  // namespace minisgl::fuzz
