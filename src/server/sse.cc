#include "server/sse.h"

namespace minisgl {

std::string sse_event(std::string_view data, std::string_view name) {
  std::string event;
  event.reserve(data.size() + name.size() + 16);
  if (!name.empty()) event.append("event: ").append(name).push_back('\n');
  for (std::size_t begin = 0;;) {
    // A line ends at "\n", "\r" or "\r\n": any of them would end the field.
    const std::size_t end = data.find_first_of("\r\n", begin);
    event.append("data: ").append(data.substr(begin, end - begin)).push_back('\n');
    if (end == std::string_view::npos) break;
    begin = end + (data.substr(end, 2) == "\r\n" ? 2 : 1);
  }
  event.push_back('\n');
  return event;
}

}  // namespace minisgl
