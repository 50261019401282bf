#include "formats/json_file.h"

#include <set>
#include <string>

#include "formats/file_kind.h"
#include "formats/mapped_file.h"
#include "minisgl/error.h"

namespace minisgl {

nlohmann::json parse_json_object(std::span<const std::byte> bytes, const std::string& what,
                                 int max_depth) {
  using Event = nlohmann::json::parse_event_t;
  std::set<std::string> keys;
  const auto watch = [&](int depth, Event event, nlohmann::json& value) {
    if (depth >= max_depth && (event == Event::object_start || event == Event::array_start))
      throw Error(what + ": nested more than " + std::to_string(max_depth) + " deep");
    if (depth == 1 && event == Event::key && !keys.insert(value.get<std::string>()).second)
      throw Error(what + ": key " + in_quotes(value.get<std::string>()) + " is there twice");
    return true;
  };
  const auto* begin = reinterpret_cast<const char*>(bytes.data());
  try {
    nlohmann::json object = nlohmann::json::parse(begin, begin + bytes.size(), watch);
    if (!object.is_object())
      throw Error(what + ": expected a JSON object, found a JSON " + object.type_name());
    return object;
  } catch (const nlohmann::json::exception& e) {
    const auto* fault = dynamic_cast<const nlohmann::json::parse_error*>(&e);
    throw Error(what + ": not valid JSON" +
                (fault == nullptr ? "" : " (at byte " + std::to_string(fault->byte) + ")"));
  }
}

nlohmann::json read_json_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  const std::string kind = describe_content(file.bytes());
  if (kind != "a JSON file" && kind != "a text file" && !kind.starts_with("a file that"))
    throw Error(path.string() + ": expected JSON, found " + kind);
  return parse_json_object(file.bytes(), path.string());
}

}  // namespace minisgl
