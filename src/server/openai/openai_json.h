// What the objects of OpenAI's API have in common.
// Source: https://platform.openai.com/docs/api-reference

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/request.h"
#include "server/api_request.h"
#include "server/json.h"
#include "server/reply.h"

namespace minisgl::openai {

/// "stop", "length" or null.
const char* finish_name(FinishReason reason);
Json finish_json(FinishReason reason);

Json usage_json(const Usage& usage);

/// The beginning and the end of every chunk of one stream, written once.
class ChunkWriter {
 public:
  /// `object`: the type of the chunks.
  ChunkWriter(const ApiContext& context, const std::string& id, const char* object,
              bool include_usage);

  /// One event with one choice. `content`: its members between "index" and "finish_reason", as JSON
  /// text such as `"text":"a","logprobs":null`.
  /// `finish_reason`: null while the choice goes on.
  std::string event(std::size_t index, const std::string& content, const char* finish_reason) const;
  /// The events that end a stream.
  std::string end(const Usage& usage) const;

 private:
  std::string head_;  // {"id":...,"model":...,
  bool include_usage_;
};

/// The events that end a stream in which something went wrong.
std::string end_stream_with_error(int status, const std::string& message);

/// The members that every whole reply begins with.
Json envelope(const ApiContext& context, const std::string& id, const char* object);

}  // namespace minisgl::openai
