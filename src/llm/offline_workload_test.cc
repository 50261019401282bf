#include "llm/offline_workload.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "minisgl/error.h"

namespace minisgl {
namespace {

TEST(OfflineWorkloadTest, Offline256IsTheOneOfPythonsRandomWithSeedZero) {
  std::uint64_t state = 7;
  const auto requests = make_requests(parse_offline_workload("offline256"), 151'936, state);
  EXPECT_EQ(state, 7U);
  ASSERT_EQ(requests.size(), 256U);
  std::size_t prompt_tokens = 0;
  int output_tokens = 0;
  for (const OfflineRequest& request : requests) {
    prompt_tokens += request.prompt.size();
    output_tokens += request.output_len;
  }
  EXPECT_EQ(prompt_tokens, 142'827U);
  EXPECT_EQ(output_tokens, 133'966);
  const std::vector<TokenId>& first = requests.front().prompt;
  const std::vector<TokenId>& last = requests.back().prompt;
  EXPECT_EQ(first.size(), 964U);
  EXPECT_EQ(std::vector(first.begin(), first.begin() + 4),
            (std::vector<TokenId>{6311, 6890, 663, 4242}));
  EXPECT_EQ(std::vector(last.end() - 2, last.end()), (std::vector<TokenId>{9046, 1958}));
  EXPECT_EQ(requests[0].output_len, 845);
  EXPECT_EQ(requests[1].output_len, 312);
  EXPECT_EQ(requests.back().output_len, 312);
}

TEST(OfflineWorkloadTest, Offline256NeedsItsIdsInTheVocabulary) {
  std::uint64_t state = 0;
  EXPECT_THROW(make_requests({.offline256 = true}, 10'000, state), Error);
  EXPECT_EQ(make_requests({.offline256 = true}, 10'001, state).size(), 256U);
}

TEST(OfflineWorkloadTest, OthersAreNamedByTheirNumbers) {
  const OfflineWorkload workload = parse_offline_workload("64x512+257");
  EXPECT_EQ(workload.num_prompts, 64);
  EXPECT_EQ(workload.input_len, 512);
  EXPECT_EQ(workload.output_len, 257);
  EXPECT_EQ(workload.name(), "64x512+257");
  EXPECT_EQ(parse_offline_workload("offline256").name(), "offline256");
  for (const std::string text : {"", "offline", "64", "64x", "64x512", "64x512+", "0x1+1", "1x0+1",
                                 "1x1+0", "1x1+1x", "1x1+1 ", "-1x1+1", "1x1x1", "99999999999x1+1"})
    EXPECT_THROW(parse_offline_workload(text), Error) << '"' << text << '"';
}

TEST(OfflineWorkloadTest, PromptsAreNewInEveryPassAndShareWhatTheyAreToldTo) {
  std::uint64_t state = 0;
  const OfflineWorkload workload{
      .num_prompts = 3, .input_len = 20, .output_len = 4, .shared_len = 12};
  const auto pass = make_requests(workload, 50, state);
  const auto next_pass = make_requests(workload, 50, state);
  ASSERT_EQ(pass.size(), 3U);
  for (const OfflineRequest& request : pass) {
    ASSERT_EQ(request.prompt.size(), 20U);
    EXPECT_EQ(request.output_len, 4);
    for (const TokenId id : request.prompt) EXPECT_TRUE(id >= 0 && id < 50) << id;
    for (int i = 0; i < 12; ++i) EXPECT_EQ(request.prompt[i], pass[0].prompt[i]);
  }
  EXPECT_NE(pass[0].prompt, pass[1].prompt);
  EXPECT_NE(pass[0].prompt, next_pass[0].prompt);
  EXPECT_THROW(make_requests({.input_len = 4, .shared_len = 5}, 50, state), Error);
}

}  // namespace
}  // namespace minisgl
