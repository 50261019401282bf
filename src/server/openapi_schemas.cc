#include "server/openapi_schemas.h"

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>

namespace minisgl {
namespace {

// --- Shapes ---

Json ref(const std::string& schema) { return {{"$ref", "#/components/schemas/" + schema}}; }

Json any_of(Json schemas) { return {{"anyOf", std::move(schemas)}}; }

// A field that is null counts as absent.
Json or_null(Json schema) {
  if (const auto type = schema.find("type"); type != schema.end())
    *type = Json::array({*type, "null"});
  else
    schema["anyOf"].push_back({{"type", "null"}});
  return schema;
}

Json type(const char* name) { return {{"type", name}}; }
Json constant(const char* value) { return {{"const", value}}; }
Json one_of(Json values) { return {{"enum", std::move(values)}}; }
Json text() { return type("string"); }
Json text_not_empty() { return {{"type", "string"}, {"minLength", 1}}; }

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

Json integer(std::int64_t min, std::int64_t max = kNoLimit) {
  Json schema{{"type", "integer"}, {"minimum", min}};
  if (max != kNoLimit) schema["maximum"] = max;
  return schema;
}

Json number(double min, double max) {
  return {{"type", "number"}, {"minimum", min}, {"maximum", max}};
}

Json list(Json items, int min_items = 0) {
  Json schema{{"type", "array"}, {"items", std::move(items)}};
  if (min_items > 0) schema["minItems"] = min_items;
  return schema;
}

Json object(Json properties, Json required = Json::array()) {
  Json schema{{"type", "object"}, {"properties", std::move(properties)}};
  if (!required.empty()) schema["required"] = std::move(required);
  return schema;
}

// An object with the properties of the named schemas and its own.
Json extended(std::initializer_list<const char*> schemas, Json own) {
  Json all = Json::array();
  for (const char* schema : schemas) all.push_back(ref(schema));
  all.push_back(std::move(own));
  return {{"allOf", std::move(all)}};
}

Json described(Json schema, const char* description) {
  schema["description"] = description;
  return schema;
}

// Optional fields of requests.
Json flag() { return or_null(type("boolean")); }
Json optional_text() { return or_null(text()); }
Json optional_integer(std::int64_t min, std::int64_t max = kNoLimit) {
  return or_null(integer(min, max));
}
Json optional_number(double min, double max) { return or_null(number(min, max)); }
Json optional_object() { return or_null(type("object")); }

// --- What requests have in common ---

Json sampling() {
  return object({
      {"temperature", described(optional_number(0, 2),
                                "0 takes the most likely token. Default: the model's, else 1.")},
      {"top_p", optional_number(0, 1)},
      {"min_p", optional_number(0, 1)},
      {"top_k", described(or_null(type("integer")), "0 or less: off.")},
      {"presence_penalty", optional_number(-2, 2)},
      {"frequency_penalty", optional_number(-2, 2)},
      {"repetition_penalty",
       {{"type", {"number", "null"}}, {"exclusiveMinimum", 0}, {"maximum", 100}}},
      {"logit_bias",
       {{"type", {"object", "null"}},
        {"additionalProperties", number(-100, 100)},
        {"propertyNames", {{"pattern", "^[0-9]+$"}}},
        {"description", "Token id to what is added to its logit."}}},
      {"seed", described(or_null(type("integer")), "Answers with equal seeds are equal.")},
      {"stop_token_ids", or_null(list(integer(0)))},
      {"ignore_eos", flag()},
      {"min_tokens", optional_integer(0)},
      {"include_stop_str_in_output", flag()},
      {"no_stop_trim", flag()},
      {"skip_special_tokens", flag()},
  });
}

Json constraints() {
  const Json kinds{"text",    "json_object", "json_schema",   "regex",
                   "grammar", "choice",      "structural_tag"};
  const Json schema{{"type", {"object", "string", "boolean", "null"}}};
  return object({
      {"response_format",
       described(or_null(object(
                     {{"type", one_of(kinds)},
                      {"json_schema",
                       object({{"name", text()}, {"schema", {{"type", {"object", "boolean"}}}}})}},
                     {"type"})),
                 "What the answer has to look like.")},
      {"guided_json", schema},
      {"guided_regex", optional_text()},
      {"guided_grammar", optional_text()},
      {"guided_choice", or_null(list(text(), 1))},
      {"structured_outputs", optional_object()},
      {"json_schema", schema},
      {"regex", optional_text()},
      {"ebnf", optional_text()},
  });
}

Json choices() {
  return object({
      {"model", optional_text()},
      {"n", optional_integer(1, 128)},
      {"best_of", optional_integer(1, 128)},
      {"stream", flag()},
      {"stream_options",
       described(or_null(object({{"include_usage", flag()}})), "Together with stream only.")},
      {"stop", ref("Stop")},
  });
}

Json stop() {
  Json several = list(text_not_empty());
  several["maxItems"] = 16;
  return described(any_of({or_null(text_not_empty()), std::move(several)}),
                   "Texts that end the answer and are not part of it.");
}

Json token_ids() { return list(integer(0), 1); }

Json text_parts() {
  return list(object({{"type", constant("text")}, {"text", text()}}, {"type", "text"}));
}

Json message() {
  const Json function =
      object({{"name", text()}, {"arguments", {{"description", "JSON, as a string."}}}}, {"name"});
  return object({{"role", one_of({"system", "developer", "user", "assistant", "tool"})},
                 {"content", any_of({optional_text(), text_parts()})},
                 {"tool_call_id", Json::object()},
                 {"reasoning_content", Json::object()},
                 {"tool_calls",
                  or_null(list(object(
                      {{"id", Json::object()}, {"type", Json::object()}, {"function", function}},
                      {"function"})))}},
                {"role", "content"});
}

// A function as OpenAI's APIs describe it, with further members.
Json function_with(Json members, Json required) {
  members["name"] = text_not_empty();
  members["description"] = Json::object();
  members["parameters"] = optional_object();
  required.push_back("name");
  return object(std::move(members), std::move(required));
}

Json tool_choice(Json named) {
  return any_of({one_of({"none", "auto", "required", nullptr}), std::move(named)});
}

// --- Bodies ---

Json chat_request() {
  const Json named =
      object({{"type", constant("function")}, {"function", object({{"name", text()}}, {"name"})}},
             {"type", "function"});
  return extended(
      {"Sampling", "Constraints", "Choices"},
      object({{"messages", list(ref("Message"), 1)},
              {"max_tokens", optional_integer(0)},
              {"max_completion_tokens", optional_integer(0)},
              {"logprobs", flag()},
              {"top_logprobs", described(optional_integer(0, 20), "Together with logprobs only.")},
              {"tools",
               or_null(list(object({{"type", constant("function")},
                                    {"function", function_with(Json::object(), Json::array())}},
                                   {"function"})))},
              {"tool_choice", tool_choice(named)},
              {"parallel_tool_calls", flag()},
              {"separate_reasoning", flag()},
              {"continue_final_message", flag()},
              {"add_generation_prompt", flag()},
              {"chat_template_kwargs", optional_object()},
              {"documents", or_null(type("array"))},
              {"reasoning_effort", optional_text()}},
             {"messages"}));
}

Json completion_request() {
  return extended(
      {"Sampling", "Constraints", "Choices"},
      object({{"prompt", any_of({text(), list(text(), 1), token_ids(), list(token_ids(), 1)})},
              {"max_tokens", optional_integer(0)},
              {"logprobs", optional_integer(0, 20)},
              {"echo", flag()}},
             {"prompt"}));
}

Json response_request() {
  const Json tool = function_with({{"type", constant("function")}}, Json::array({"type"}));
  const Json named = object({{"type", constant("function")}, {"name", text()}}, {"type", "name"});
  return extended({"Sampling"},
                  object({{"model", optional_text()},
                          {"input", any_of({text(), list(type("object"), 1)})},
                          {"instructions", optional_text()},
                          {"max_output_tokens", optional_integer(0)},
                          {"stream", flag()},
                          {"tools", or_null(list(tool))},
                          {"tool_choice", tool_choice(named)},
                          {"parallel_tool_calls", flag()},
                          {"reasoning", or_null(object({{"effort", optional_text()}}))},
                          {"text", or_null(object({{"format", optional_object()}}))},
                          {"chat_template_kwargs", optional_object()}},
                         {"input"}));
}

Json messages_request() {
  const Json blocks =
      list(object({{"type", one_of({"text", "tool_use", "tool_result", "thinking"})}}, {"type"}));
  Json stop_sequences = or_null(list(text_not_empty()));
  stop_sequences["maxItems"] = 16;
  return extended(
      {"Sampling"},
      object({{"model", optional_text()},
              {"max_tokens", integer(0)},
              {"messages", list(object({{"role", one_of({"user", "assistant"})},
                                        {"content", any_of({text(), blocks})}},
                                       {"role", "content"}),
                                1)},
              {"system", any_of({optional_text(), text_parts()})},
              {"stop_sequences", std::move(stop_sequences)},
              {"stream", flag()},
              {"tools", or_null(list(object({{"name", text_not_empty()},
                                             {"description", optional_text()},
                                             {"input_schema", type("object")}},
                                            {"name", "input_schema"})))},
              {"tool_choice", or_null(object({{"type", one_of({"auto", "any", "tool", "none"})},
                                              {"name", text()},
                                              {"disable_parallel_tool_use", flag()}},
                                             {"type"}))},
              {"thinking",
               or_null(object({{"type", one_of({"enabled", "adaptive", "disabled"})}}, {"type"}))},
              {"chat_template_kwargs", optional_object()}},
             {"messages", "max_tokens"}));
}

Json sglang_params() {
  return or_null(any_of(
      {extended({"Sampling", "Constraints"}, object({{"max_new_tokens", optional_integer(0)},
                                                     {"min_new_tokens", optional_integer(0)},
                                                     {"sampling_seed", or_null(type("integer"))},
                                                     {"n", optional_integer(1, 128)},
                                                     {"stop", ref("Stop")}}))}));
}

// SGLang's form with its prompt in `input`.
Json sglang_request(const char* input, Json schema) {
  return object({{input, std::move(schema)},
                 {"sampling_params", ref("SglangParams")},
                 {"stream", flag()},
                 {"return_logprob", flag()},
                 {"top_logprobs_num", optional_integer(0, 50)},
                 {"logprob_start_len", optional_integer(-1)}},
                {input});
}

// --- Replies ---

Json reply(const char* kind, Json choice) {
  return object({{"id", text()},
                 {"object", constant(kind)},
                 {"created", type("integer")},
                 {"model", text()},
                 {"choices", list(std::move(choice))},
                 {"usage", ref("Usage")}},
                {"id", "object", "created", "model", "choices", "usage"});
}

Json chat_reply() {
  const Json message = object({{"role", constant("assistant")},
                               {"content", optional_text()},
                               {"reasoning_content", text()},
                               {"tool_calls", type("array")}},
                              {"role", "content"});
  return reply("chat.completion",
               object({{"index", type("integer")},
                       {"message", message},
                       {"logprobs", optional_object()},
                       {"finish_reason", one_of({"stop", "length", "tool_calls"})}},
                      {"index", "message", "logprobs", "finish_reason"}));
}

Json completion_reply() {
  return reply("text_completion", object({{"index", type("integer")},
                                          {"text", text()},
                                          {"logprobs", optional_object()},
                                          {"finish_reason", one_of({"stop", "length"})}},
                                         {"index", "text", "logprobs", "finish_reason"}));
}

Json response() {
  return object({{"id", text()},
                 {"object", constant("response")},
                 {"created_at", type("integer")},
                 {"status", one_of({"completed", "incomplete"})},
                 {"model", text()},
                 {"output", list(type("object"))},
                 {"usage", type("object")}},
                {"id", "object", "status", "output", "usage"});
}

Json messages_reply() {
  return object({{"id", text()},
                 {"type", constant("message")},
                 {"role", constant("assistant")},
                 {"model", text()},
                 {"content", list(type("object"))},
                 {"stop_reason", one_of({"end_turn", "max_tokens", "stop_sequence", "tool_use"})},
                 {"stop_sequence", optional_text()},
                 {"usage", type("object")}},
                {"id", "type", "role", "content", "stop_reason", "stop_sequence", "usage"});
}

Json usage() {
  return object({{"prompt_tokens", type("integer")},
                 {"completion_tokens", type("integer")},
                 {"total_tokens", type("integer")},
                 {"prompt_tokens_details", object({{"cached_tokens", type("integer")}})}},
                {"prompt_tokens", "completion_tokens", "total_tokens"});
}

Json server_info() {
  return object({{"model_path", text()},
                 {"served_model_name", text()},
                 {"tp_size", type("integer")},
                 {"dp_size", type("integer")},
                 {"version", text()}},
                {"model_path", "served_model_name", "tp_size", "dp_size", "version"});
}

Json error() {
  return object({{"error", object({{"message", text()},
                                   {"type", text()},
                                   {"param", optional_text()},
                                   {"code", optional_text()}},
                                  {"message", "type", "param", "code"})}},
                {"error"});
}

Json anthropic_error() {
  return object({{"type", constant("error")},
                 {"error", object({{"type", text()}, {"message", text()}}, {"type", "message"})}},
                {"type", "error"});
}

}  // namespace

Json openapi_schemas() {
  return {
      {"Sampling", sampling()},
      {"Constraints", constraints()},
      {"Choices", choices()},
      {"Stop", stop()},
      {"Message", message()},
      {"ChatRequest", chat_request()},
      {"CompletionRequest", completion_request()},
      {"ResponseRequest", response_request()},
      {"MessagesRequest", messages_request()},
      {"SglangParams", sglang_params()},
      {"GenerateRequest",
       any_of({ref("CompletionRequest"), sglang_request("text", any_of({text(), list(text(), 1)})),
               sglang_request("input_ids", any_of({token_ids(), list(token_ids(), 1)}))})},
      {"TokenizeRequest", any_of({object({{"model", optional_text()},
                                          {"prompt", text()},
                                          {"add_special_tokens", flag()},
                                          {"return_token_strs", flag()}},
                                         {"prompt"}),
                                  ref("ChatRequest")})},
      {"DetokenizeRequest",
       object({{"model", optional_text()}, {"tokens", list(integer(0))}}, {"tokens"})},
      {"ChatReply", chat_reply()},
      {"CompletionReply", completion_reply()},
      {"Response", response()},
      {"MessagesReply", messages_reply()},
      {"GenerateReply", {{"type", {"object", "array"}}}},
      {"Usage", usage()},
      {"TokenCount", object({{"input_tokens", type("integer")}}, {"input_tokens"})},
      {"Tokens", object({{"count", type("integer")},
                         {"max_model_len", type("integer")},
                         {"tokens", list(type("integer"))},
                         {"token_strs", or_null(list(text()))}},
                        {"count", "max_model_len", "tokens", "token_strs"})},
      {"Text", object({{"prompt", text()}}, {"prompt"})},
      {"Model", object({{"id", text()},
                        {"object", constant("model")},
                        {"created", type("integer")},
                        {"owned_by", text()}},
                       {"id", "object", "created", "owned_by"})},
      {"Models",
       object({{"object", constant("list")}, {"data", list(ref("Model"))}}, {"object", "data"})},
      {"ModelInfo", object({{"model_path", text()}}, {"model_path"})},
      {"ServerInfo", server_info()},
      {"Health", object({{"status", constant("ok")}}, {"status"})},
      {"Version", object({{"version", text()}}, {"version"})},
      {"Object", type("object")},
      {"Error", error()},
      {"AnthropicError", anthropic_error()},
  };
}

}  // namespace minisgl
