#include "scheduler/rank_turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/log.h"
#include "scheduler/scheduler.h"
#include "testing/fake_executor.h"
#include "testing/local_ranks.h"

namespace minisgl {
namespace {

using testing_util::LocalRank;
using testing_util::run_ranks;

class NoConstraint final : public TokenConstraint {
 public:
  bool fill(std::span<std::int32_t>) override { return false; }
  bool accept(TokenId) override { return true; }
  bool finished() const override { return false; }
};

NewRequest unusual_request() {
  NewRequest request{.id = {77}, .prompt = {5, 6, 7}, .sampling = {}};
  request.sampling = {.temperature = 0.7,
                      .top_k = 12,
                      .top_p = 0.9,
                      .min_p = 0.01,
                      .presence_penalty = 0.1,
                      .frequency_penalty = 0.2,
                      .repetition_penalty = 1.3,
                      .logit_bias = {{3, -1.5}, {4, 100}},
                      .seed = 12345678901234U,
                      .max_tokens = 321,
                      .min_tokens = 4,
                      .ignore_eos = true,
                      .stop_token_ids = {8, 9},
                      .stop = {"a", "", "end"},
                      .include_stop_str_in_output = true,
                      .skip_special_tokens = false,
                      .num_logprobs = 3,
                      .prompt_logprobs = 0,
                      .response_format = {ResponseFormat::Kind::kRegex, "[ab]+"}};
  request.constraint = std::make_unique<NoConstraint>();
  request.constraint_start = 2;
  return request;
}

RankTurn turn_with_all_kinds() {
  RankTurn turn;
  turn.messages.emplace_back(unusual_request());
  turn.messages.emplace_back(AbortRequest{{42}});
  turn.messages.emplace_back(FlushRequest{});
  turn.messages.emplace_back(NewRequest{.id = {78}, .prompt = {1}, .sampling = {}});
  turn.roll_call = true;
  return turn;
}

TEST(RankMessagesTest, EveryFieldArrives) {
  const Message bytes = encode_turn(turn_with_all_kinds());
  std::string format;
  const RankTurn turn = decode_turn(bytes, [&](const NewRequest& asked) {
    format = asked.sampling.response_format.text;
    EXPECT_EQ(asked.constraint_start, 2);
    return std::make_unique<NoConstraint>();
  });
  EXPECT_EQ(format, "[ab]+");
  EXPECT_TRUE(turn.roll_call);
  EXPECT_FALSE(turn.stopping);
  ASSERT_EQ(turn.messages.size(), 4U);
  const auto& request = std::get<NewRequest>(turn.messages[0]);
  const SamplingParams& s = request.sampling;
  EXPECT_EQ(request.id, RequestId{77});
  EXPECT_EQ(request.prompt, (std::vector<TokenId>{5, 6, 7}));
  EXPECT_EQ(s.temperature, 0.7);
  EXPECT_EQ(s.top_k, 12);
  EXPECT_EQ(s.logit_bias, (std::vector<LogitBias>{{3, -1.5}, {4, 100}}));
  EXPECT_EQ(s.seed, 12345678901234U);
  EXPECT_EQ(s.max_tokens, 321);
  EXPECT_EQ(s.stop, (std::vector<std::string>{"a", "", "end"}));
  EXPECT_EQ(s.num_logprobs, 3);
  EXPECT_EQ(s.prompt_logprobs, 0);
  EXPECT_EQ(s.response_format, unusual_request().sampling.response_format);
  EXPECT_NE(request.constraint, nullptr);
  EXPECT_EQ(std::get<AbortRequest>(turn.messages[1]).id, RequestId{42});
  EXPECT_EQ(std::get<NewRequest>(turn.messages[3]).constraint, nullptr);
  EXPECT_EQ(encode_turn(turn), bytes) << "something is lost on the way";
}

TEST(RankMessagesTest, CutBytesAreRefused) {
  const Message bytes = encode_turn(turn_with_all_kinds());
  const MakeConstraint make = [](const NewRequest&) { return std::make_unique<NoConstraint>(); };
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_THROW(
        decode_turn({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length)}, make),
        Error)
        << length;
  Message longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_THROW(decode_turn(longer, make), Error);
}

TEST(RankTurnsTest, AllGetTheTurnOfTheFirst) {
  run_ranks(3, [](int rank, LocalRank& local) {
    RankTurns turns(local.host, {});
    for (int i = 0; i < 3; ++i) {
      RankTurn turn;
      if (rank == 0) {
        turn.messages.emplace_back(AbortRequest{{static_cast<std::uint64_t>(i)}});
        turn.stopping = i == 2;
        turn.roll_call = i == 1;
      }
      turns.share(turn);
      ASSERT_EQ(turn.messages.size(), 1U);
      EXPECT_EQ(std::get<AbortRequest>(turn.messages[0]).id.value, static_cast<std::uint64_t>(i));
      EXPECT_EQ(turn.stopping, i == 2);
    }
  });
}

/// Of rank 0 of two, whose other one says what rank 0 says, until it is gone.
class EchoTransport final : public Transport {
 public:
  explicit EchoTransport(const bool& gone) : Transport(/*rank=*/0, /*size=*/2), gone_(gone) {}
  void exchange(std::span<const Send> sends, std::span<const Receive> receives) override {
    if (gone_) throw Error("rank 1 is gone");
    for (const Receive& receive : receives)
      std::copy_n(sends[0].data.begin(), receive.data.size(), receive.data.begin());
  }

 private:
  const bool& gone_;
};

TEST(RankTurnsTest, ARequestThatTheOthersCouldNotBeToldOfIsAnsweredWithTheFault) {
  log::set_level(log::Level::kOff);
  bool gone = false;
  HostGroup host(std::make_unique<EchoTransport>(gone));
  RankTurns turns(host, {.compare_batches = false});
  testing_util::FakeExecutor executor(
      {.num_pages = 64,
       .page_size = 1,
       .max_rows = 2,
       .max_seq_len = 32,
       .max_step_tokens = 16,
       .vocab_size = 100},
      [](std::span<const TokenId>) { return 7; }, /*seed=*/1);
  std::vector<TokenEvent> events;
  Scheduler scheduler(executor, {.ranks = &turns}, [&](std::span<const TokenEvent> more) {
    events.insert(events.end(), more.begin(), more.end());
  });
  gone = true;
  scheduler.submit({.id = {5}, .prompt = {1, 2, 3}, .sampling = {}});
  EXPECT_THROW(scheduler.step(), Error);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].request, RequestId{5});
  EXPECT_EQ(events[0].finish, FinishReason::kError);
  EXPECT_EQ(events[0].error, "rank 1 is gone");
}

TEST(RankTurnsTest, TheSeedIsThatOfTheFirst) {
  run_ranks(2, [](int rank, LocalRank& local) {
    RankTurns turns(local.host, {});
    EXPECT_EQ(turns.agree("same", rank == 0 ? 9 : 4), 9U);
  });
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(RankTurnsTest, OtherSettingsAreShown) {
  run_ranks(2, [](int rank, LocalRank& local) {
    RankTurns turns(local.host, {});
    EXPECT_EQ(error_of([&] { turns.agree(rank == 0 ? "16 pages" : "17 pages", 0); }),
              "rank 1 runs with other settings than rank 0: 17 pages; rank 0: 16 pages");
  });
}

TEST(RankTurnsTest, BatchesThatDifferAreShown) {
  const PageTable pages(2, 8, 0);
  const auto batch_of = [&](TokenId token) {
    Batch batch;
    batch.page_table = &pages;
    batch.rows = {{RowId{1}, 0, 2}};
    batch.num_rows = 1;
    batch.token_ids = {3, token};
    batch.samples = {{.batch_row = 0, .request = {6}}};
    return batch;
  };
  run_ranks(2, [&](int rank, LocalRank& local) {
    RankTurns turns(local.host, {.compare_batches = true});
    turns.compare(batch_of(4));
    const std::string error = error_of([&] { turns.compare(batch_of(4 + rank)); });
    EXPECT_EQ(
        error.find("step 2 of rank 1 is not that of rank 0: 1 rows, 0 of them decoding: row 1 "
                   "[0, 2)"),
        0U)
        << error;
    EXPECT_NE(error.find("; rank 0: 1 rows"), std::string::npos);
  });
}

}  // namespace
}  // namespace minisgl
