// The sample model divided over three ranks: its nine query heads and three key heads allow that.

#include <gtest/gtest.h>

#include <string>

#include "sample_model.h"
#include "testing/golden.h"
#include "testing/ranked_answers.h"

namespace minisgl {
namespace {

TEST(SampleModelRanksTest, AnswersOfThreeRanksAreThoseOfOneInASampleOfSettings) {
  const nlohmann::json golden = testing_util::read_json(sample_model_data() / "golden.json");
  testing_util::Prompts prompts;
  for (const auto& prompt : golden["prompts"]) {
    const auto name = prompt["name"].get<std::string>();
    if (name == "plain0" || name == "plain3" || name == "chat2" || name == "chat4")
      prompts.push_back(prompt["ids"]);
  }
  ASSERT_EQ(prompts.size(), 4U);  // of 11, 1, 31 and 66 tokens
  const auto whole = testing_util::answers(sample_model_path(), {.threads = 2}, prompts);
  const std::vector<testing_util::RunConfig> settings = testing_util::settings_of_ranks();
  for (const std::size_t chosen : {1, 2, 9, 10}) {  // every value of each
    ASSERT_LT(chosen, settings.size());
    testing_util::expect_answers(whole, sample_model_path(), 3, settings[chosen], prompts);
  }
}

}  // namespace
}  // namespace minisgl
