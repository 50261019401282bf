#include "server/openapi.h"

#include <string_view>
#include <utility>

#include "server/openapi_schemas.h"

namespace minisgl {
namespace {

struct Operation {
  const char* path;
  const char* method;
  const char* summary;
  const char* request;  // schema of the body; null: there is none
  const char* reply;    // schema of what comes with 200; null: text
  bool streams = false;
};

constexpr Operation kOperations[] = {
    {"/v1/chat/completions", "post", "A chat (OpenAI).", "ChatRequest", "ChatReply", true},
    {"/v1/completions", "post", "Text after a prompt (OpenAI).", "CompletionRequest",
     "CompletionReply", true},
    {"/v1/responses", "post", "A response, without memory (OpenAI).", "ResponseRequest", "Response",
     true},
    {"/v1/messages", "post", "A message (Anthropic).", "MessagesRequest", "MessagesReply", true},
    {"/v1/messages/count_tokens", "post", "Tokens of a message's prompt (Anthropic).",
     "MessagesRequest", "TokenCount"},
    {"/generate", "post", "mini-sglang's form, or SGLang's.", "GenerateRequest", "GenerateReply",
     true},
    {"/tokenize", "post", "Token ids of a text or a chat.", "TokenizeRequest", "Tokens"},
    {"/detokenize", "post", "Text of token ids.", "DetokenizeRequest", "Text"},
    {"/v1/models", "get", "The model that is served, under each of its names.", nullptr, "Models"},
    {"/v1/models/{id}", "get", "One of them.", nullptr, "Model"},
    {"/health", "get", "Counters; the port is open only when the model is ready.", nullptr,
     "Health"},
    {"/health_generate", "get", "One token is generated.", nullptr, nullptr},
    {"/metrics", "get", "Counters for Prometheus.", nullptr, nullptr},
    {"/model_info", "get", "The model, for routers.", nullptr, "ModelInfo"},
    {"/get_model_info", "get", "Older name of /model_info.", nullptr, "ModelInfo"},
    {"/server_info", "get", "The server, for routers.", nullptr, "ServerInfo"},
    {"/get_server_info", "get", "Older name of /server_info.", nullptr, "ServerInfo"},
    {"/flush_cache", "get", "Forgets the cached prefixes that no request uses.", nullptr, "Object"},
    {"/flush_cache", "post", "The same.", nullptr, "Object"},
    {"/version", "get", "The version.", nullptr, "Version"},
    {"/v1", "get", "Says that the server is there.", nullptr, "Object"},
    {"/v1", "post", "The same.", nullptr, "Object"},
    {"/openapi.json", "get", "This description.", nullptr, "Object"},
};

Json json_content(const std::string& schema) {
  return {{"application/json", {{"schema", {{"$ref", "#/components/schemas/" + schema}}}}}};
}

Json describe_operation(const Operation& operation) {
  const bool is_anthropic = std::string_view(operation.path).starts_with("/v1/messages");
  Json result{{"summary", operation.summary}};
  if (operation.request != nullptr)
    result["requestBody"] = {{"required", true}, {"content", json_content(operation.request)}};
  Json content = operation.reply != nullptr
                     ? json_content(operation.reply)
                     : Json{{"text/plain", {{"schema", {{"type", "string"}}}}}};
  if (operation.streams) content["text/event-stream"] = Json::object();
  result["responses"] = {{"200", {{"description", "The reply."}, {"content", std::move(content)}}},
                         {"default",
                          {{"$ref", std::string("#/components/responses/") +
                                        (is_anthropic ? "AnthropicError" : "Error")}}}};
  return result;
}

Json paths() {
  Json all = Json::object();
  for (const Operation& operation : kOperations) {
    Json& path = all[operation.path];
    path[operation.method] = describe_operation(operation);
    if (std::string_view(operation.path).ends_with("/{id}"))
      path["parameters"] = Json::array({{{"name", "id"},
                                         {"in", "path"},
                                         {"required", true},
                                         {"schema", {{"type", "string"}, {"minLength", 1}}}}});
  }
  return all;
}

Json responses() {
  return {{"Error",
           {{"description",
             "400: a bad field, broken JSON; 404: another model; 413: too long; 429: too many "
             "requests; 500: the engine failed; 503: the server is stopping."},
            {"content", json_content("Error")}}},
          {"AnthropicError",
           {{"description", "The same in Anthropic's form."},
            {"content", json_content("AnthropicError")}}}};
}

}  // namespace

const std::string& openapi_json() {
  static const std::string json = dump(
      {{"openapi", "3.1.0"},
       {"info",
        {{"title", "minisgl"}, {"description", "docs/http_api.md says more."}, {"version", "1"}}},
       {"paths", paths()},
       {"components", {{"responses", responses()}, {"schemas", openapi_schemas()}}}});
  return json;
}

}  // namespace minisgl
