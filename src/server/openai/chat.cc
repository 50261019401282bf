#include "server/openai/chat.h"

#include <memory>
#include <utility>

#include "server/openai/chat_reply.h"
#include "server/request_fields.h"

namespace minisgl::openai {
namespace {

void read_prompt(const Fields& fields, const Generator& generator, ApiRequest& request) {
  const Json* messages = fields.find("messages");
  if (messages == nullptr) {
    // Upstream's chat endpoint also takes a raw prompt, without a template.
    if (auto prompt = fields.string("prompt")) {
      request.param = "prompt";
      request.prompts.emplace_back(std::move(*prompt));
      return;
    }
    throw RequestError("messages is missing", "messages");
  }
  request.param = "messages";
  Json kwargs = Json::object();
  if (const Json* given = fields.object("chat_template_kwargs")) kwargs = *given;
  if (const Json* documents = fields.array("documents")) kwargs["documents"] = *documents;
  if (auto effort = fields.string("reasoning_effort")) kwargs["reasoning_effort"] = *effort;
  Json tools;
  const Json* choice = fields.find("tool_choice");
  if (const Json* given = fields.array("tools");
      given != nullptr && !given->empty() && (choice == nullptr || *choice != "none"))
    tools = *given;
  request.prompts.emplace_back(generator.render_chat(
      *messages, tools, kwargs, fields.boolean("add_generation_prompt", true)));
}

}  // namespace

Job open_chat(std::string_view body, const ApiContext& context) {
  const Json object = parse_object(body);
  const Fields fields(object);
  ApiRequest request{
      .model = context.rules.served_name, .prompts = {}, .sampling = {}, .param = {}};
  check_model(fields, context.rules);
  refuse_unsupported(fields);
  read_stream(fields, /*stream_by_default=*/false, request);
  request.sampling = read_sampling(fields, context.generator, openai_sampling(context.generator));
  const auto old_name = fields.integer("max_tokens", 0);
  const auto new_name = fields.integer("max_completion_tokens", 0);
  request.sampling.max_tokens = new_name ? *new_name : old_name.value_or(-1);
  read_prompt(fields, context.generator, request);
  read_num_choices(fields, request);
  auto reply = std::make_unique<ChatReply>(context, request);
  return {.request = std::move(request), .reply = std::move(reply)};
}

}  // namespace minisgl::openai
