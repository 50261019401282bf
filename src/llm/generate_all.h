// Many requests at once, waited for.

#pragma once

#include <functional>
#include <vector>

#include "llm/generator.h"
#include "minisgl/llm.h"

namespace minisgl {

/// "stop", "length", "abort" or "error"; "" for kNone.
std::string_view to_string(FinishReason reason);

/// Adds what an answer gained.
void add_update(GenerateUpdate update, Completion& completion);

/// Submits all and waits for all: completions in the order of the requests. One that cannot be
/// served gets finish_reason "error" and does not disturb the others. `on_done(i, completion)`, if
/// given, is called as each one ends, one call at a time, on the generator's or caller's thread.
std::vector<Completion> generate_all(
    Generator& generator, std::vector<GenerateRequest> requests,
    const std::function<void(std::size_t, const Completion&)>& on_done);

}  // namespace minisgl
