// Bodies to jobs and updates to replies, without a socket.

#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "server/answer.h"
#include "server/fake_generator_for_test.h"
#include "server/http_message.h"
#include "server/json.h"
#include "server/reply.h"

namespace minisgl::testing_util {

/// An update with 7 prompt tokens, 3 of them from the cache.
inline GenerateUpdate update(const std::string& text, int num_tokens,
                             FinishReason finish = FinishReason::kNone) {
  GenerateUpdate u;
  u.text = text;
  u.finish = finish;
  u.prompt_tokens = 7;
  u.cached_tokens = 3;
  u.completion_tokens = num_tokens;
  return u;
}

class ApiFixture : public testing::Test {
 protected:
  using Open = Job (*)(std::string_view body, const ApiContext& context);

  ApiContext context() const {
    return {.generator = *generator_, .rules = rules_, .unique_id = "1", .created = 99};
  }
  Job open(Open read, const std::string& body) const { return read(body, context()); }
  Answer answer(Open read, const std::string& body) const {
    Job job = open(read, body);
    return {job.request, std::move(job.reply)};
  }
  // "status param: message", or "no error".
  std::string error_of(Open read, const std::string& body) const {
    try {
      open(read, body);
    } catch (const StatusError& e) {
      return std::to_string(e.status()) + " " + e.param() + ": " + e.what();
    } catch (const RequestError& e) {
      return "400 " + e.param() + ": " + e.what();
    }
    return "no error";
  }
  void use(FakeGenerator::Options options) {
    generator_ = std::make_unique<FakeGenerator>(std::move(options));
  }

  std::unique_ptr<FakeGenerator> generator_ = std::make_unique<FakeGenerator>();
  RequestRules rules_{.served_name = "m", .accept_any_model = false};
};

}  // namespace minisgl::testing_util
