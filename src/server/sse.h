// Server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html

#pragma once

#include <string>
#include <string_view>

namespace minisgl {

/// One event with `data`: a "data: " line for each line of it, then an empty line. A `name`, if it
/// has one, comes first.
std::string sse_event(std::string_view data, std::string_view name = {});

/// The event that ends OpenAI's streams.
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

}  // namespace minisgl
