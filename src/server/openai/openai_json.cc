#include "server/openai/openai_json.h"

#include <fmt/format.h>

#include "server/sse.h"

namespace minisgl::openai {

const char* finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    default: return nullptr;
  }
}

Json finish_json(FinishReason reason) {
  const char* name = finish_name(reason);
  return name == nullptr ? Json() : Json(name);
}

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

Json envelope(const ApiContext& context, const std::string& id, const char* object) {
  return {{"id", id},
          {"object", object},
          {"created", context.created},
          {"model", context.rules.served_name}};
}

ChunkWriter::ChunkWriter(const ApiContext& context, const std::string& id, const char* object,
                         bool include_usage)
    : head_(dump(envelope(context, id, object))), include_usage_(include_usage) {
  head_.back() = ',';
}

std::string ChunkWriter::event(std::size_t index, const std::string& content,
                               const char* finish_reason) const {
  const char* quote = finish_reason == nullptr ? "" : "\"";
  return sse_event(fmt::format(R"({}"choices":[{{"index":{},{},"finish_reason":{}{}{}}}]{}}})",
                               head_, index, content, quote,
                               finish_reason == nullptr ? "null" : finish_reason, quote,
                               include_usage_ ? R"(,"usage":null)" : ""));
}

std::string ChunkWriter::end(const Usage& usage) const {
  std::string events;
  if (include_usage_)
    events =
        sse_event(fmt::format(R"({}"choices":[],"usage":{}}})", head_, dump(usage_json(usage))));
  return events.append(kSseDone);
}

std::string end_stream_with_error(int status, const std::string& message) {
  return sse_event(error_json(status, message)).append(kSseDone);
}

}  // namespace minisgl::openai
