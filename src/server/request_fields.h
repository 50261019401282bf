// Fields that several APIs have, with the same names and meaning.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llm/generator.h"
#include "server/api_request.h"
#include "server/json.h"

namespace minisgl {

inline constexpr std::int64_t kMaxChoices = 128;  ///< OpenAI's limit of n; ours of all choices

/// Throws StatusError 404 for another model than the served one, unless any is accepted.
void check_model(const Fields& fields, const RequestRules& rules);

/// OpenAI's defaults, under what the model advises (Generator::sampling_defaults).
SamplingParams openai_sampling(const Generator& generator);

/// Reads temperature, top_p, ... over `params`; not the limit of tokens. Throws RequestError that
/// names the field for a bad value.
SamplingParams read_sampling(const Fields& fields, const Generator& generator,
                             SamplingParams params);

/// Reads stream and stream_options into `request`.
void read_stream(const Fields& fields, bool stream_by_default, ApiRequest& request);

/// Reads n and best_of. Call it when `request` has its prompts: their number times best_of is
/// limited.
void read_num_choices(const Fields& fields, ApiRequest& request);

/// Reads prompt: a string, an array of strings, an array of token ids, or an array of arrays of
/// token ids.
void read_prompts(const Fields& fields, const Generator& generator, ApiRequest& request);

/// Token ids of the field `name`, checked against the vocabulary.
std::vector<TokenId> read_ids(const Json& ids, const std::string& name, int vocab_size);

/// Throws RequestError for a field that asks for what is not there: an answer without it would look
/// like one with it. Neutral values pass.
void refuse_unsupported(const Fields& fields);
/// The same for one field; null and false pass.
void refuse_field(const Fields& fields, const char* field);

}  // namespace minisgl
