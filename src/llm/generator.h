// The one place that joins text, scheduler and ranks, as its callers (server, shell, offline API)
// see it.

#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/types.h"
#include "chat/chat_dialect.h"
#include "core/request.h"
#include "engine/engine_stats.h"
#include "minisgl/llm.h"
#include "minisgl/sampling_params.h"
#include "scheduler/scheduler.h"
#include "tokenizer/marked_text.h"

namespace minisgl {

struct GenerateRequest {
  /// Raw text (special tokens in it are parsed, BOS is added), token ids as they are, or a rendered
  /// chat (no BOS added: the template writes it).
  std::variant<std::string, std::vector<TokenId>, MarkedText> prompt;
  /// max_tokens < 0 means here: until the context ends.
  SamplingParams sampling = {};
  /// The request's field that errors about the prompt name: "prompt" or "messages".
  std::string param = "prompt";
  /// Before an answer with a response format. Others than kOver need
  /// ChatDialect::reasoning_before_formats.
  ReasoningStart reasoning = ReasoningStart::kOver;
};

/// What an answer gained. Delivered on the scheduler's thread, in order: a receiver must be quick
/// and must not throw.
struct GenerateUpdate {
  std::string text;             ///< whole characters; never part of a stop string
  std::vector<TokenId> tokens;  ///< the tokens of this update, an end token included
  /// Not kNone in the last update only.
  FinishReason finish = FinishReason::kNone;
  /// Of the whole answer so far. cached_tokens of the prompt were taken from the prefix cache.
  int prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  std::string error;  ///< for kError

  /// For kStop: the stop text that was found, or the token that ended the answer; neither when a
  /// response format ended it.
  StopReason stop_reason = {};
  /// One for each of `tokens`, if sampling.num_logprobs asked for it; else empty.
  std::vector<TextLogprobs> logprobs = {};
  /// In the first update, if sampling.prompt_logprobs asked for it: one for each token of the
  /// prompt; the first has none, as nothing stands before it.
  std::vector<std::optional<TextLogprobs>> prompt_logprobs = {};
  /// Sum of the log-probabilities of the whole answer so far, if num_logprobs asked for them.
  double cumulative_logprob = 0;
  RequestTimes times = {};
};

/// Text in, text out. All members may be called by any thread.
class Generator {
 public:
  virtual ~Generator() = default;

  /// Tokenizes (on the caller's thread) and queues. `on_update` is called until an update has a
  /// finish reason; it may be called before submit() returns. Throws RequestError at once for a
  /// request that cannot be served; then `on_update` is never called.
  virtual RequestId submit(GenerateRequest request,
                           std::function<void(GenerateUpdate)> on_update) = 0;
  /// Ends a request, waiting or running; its last update has kAbort. Unknown and finished ids are
  /// ignored.
  virtual void abort(RequestId id) = 0;

  /// Forgets the prefixes that no request uses, soon.
  virtual void flush_cache() {}

  /// The prompt of a chat: OpenAI `messages` (array), `tools` (array or null), `kwargs` (object or
  /// null: further variables of the template). Throws RequestError for messages that the template
  /// or the model cannot take.
  virtual MarkedText render_chat(const nlohmann::ordered_json& messages,
                                 const nlohmann::ordered_json& tools,
                                 const nlohmann::ordered_json& kwargs,
                                 bool add_generation_prompt) const = 0;

  /// How the model's answers write tool calls and reasoning.
  virtual ChatDialect chat_dialect() const { return {}; }

  /// Ids of a prompt, as submit() makes them of it; `add_special` is for raw text: whether BOS is
  /// added. Throws RequestError when the model has no tokenizer that we can read.
  virtual std::vector<TokenId> encode(const decltype(GenerateRequest::prompt)& prompt,
                                      bool add_special) const = 0;
  /// Text of ids; those without a token give nothing. Throws as encode() does.
  virtual std::string decode(std::span<const TokenId> ids, bool skip_special) const = 0;
  /// What a token stands for, which may be part of a character; a special token's text. Empty when
  /// there is none.
  virtual std::string token_bytes(TokenId id) const = 0;

  virtual std::string model_name() const = 0;  ///< the id under which the model is served
  /// What it was loaded from: a path, or a hub's name.
  virtual std::string model_path() const { return model_name(); }
  virtual int max_seq_len() const = 0;       ///< tokens, prompt and answer together
  virtual int vocab_size() const = 0;        ///< token ids are in [0, vocab_size)
  virtual SchedulerStats stats() const = 0;  ///< a snapshot; cheap
  virtual EngineStats engine_stats() const { return {}; }
  /// For what a request leaves open; empty unless the model's files have an advice.
  virtual SamplingDefaults sampling_defaults() const { return {}; }
};

}  // namespace minisgl
