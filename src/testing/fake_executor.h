// An executor without a model, for the scheduler's tests.

#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "engine/executor.h"
#include "testing/random.h"

namespace minisgl::testing_util {

/// The next token, a pure function of all tokens before it.
using TokenModel = std::function<TokenId(std::span<const TokenId> history)>;

/// Draws every token from the history that it finds in a pool of its own: a step writes its tokens
/// to the locations that the page table named at launch, and reads the history back from there. So
/// a page that two requests share by mistake, that was freed too early or that holds an older
/// prompt changes the answer, as it would with keys and values.
///
/// A step is run when it is collected, when the next one is launched or when that one is collected,
/// by a draw from `seed`: what the scheduler changes between launch and collection must not matter.
///
/// launch() throws Error if the batch breaks the contract of core/batch.h and engine/executor.h.
class FakeExecutor final : public Executor {
 public:
  FakeExecutor(const ExecutorLimits& limits, TokenModel model, std::uint64_t seed)
      : limits_(limits),
        model_(std::move(model)),
        random_(seed),
        pool_(static_cast<std::size_t>((limits.num_pages + 1) * limits.page_size)),
        last_token_(static_cast<std::size_t>(limits.max_rows), -1),
        last_device_len_(static_cast<std::size_t>(limits.max_rows), -1) {}

  const ExecutorLimits& limits() const override { return limits_; }

  void launch(Batch& batch) override {
    check(launched_.size() < 2, "contract: a third step in flight");
    std::fill(tokens_.begin(), tokens_.end(),
              kStale);  // the span that collect() returned ends here
    check(launched_.empty() || !launched_.back().waits,
          "contract: a step was launched before the one before it was sampled");
    if (random_.below(2) == 0) run_all();
    check_contract(batch);
    launched_.push_back(make_job(batch));
    ++num_launched;
    if (log != nullptr) *log += describe(batch);
    if (fail_at_launch == num_launched) throw Error("launch failed");
  }

  void sample(Batch& batch) override {
    check(!launched_.empty() && launched_.back().batch == &batch && launched_.back().waits,
          "contract: sample() of a step that is not the last, or does not wait");
    check(launched_.size() == 1, "contract: sample() before the step before it was collected");
    launched_.back().waits = false;
    take_edits(batch, launched_.back());
    ++num_waited;
    if (random_.below(2) == 0) run_all();
  }

  std::span<const TokenId> collect(Batch& batch) override {
    check(!launched_.empty() && launched_.front().batch == &batch,
          "contract: steps are collected in order of launch");
    if (fail_at_collect == ++num_collected) throw Error("device lost");
    launched_.front().run_by_now = true;
    if (random_.below(2) == 0) run_all();  // or the device has run ahead of the host
    for (Job& job : launched_) {
      if (job.run_by_now) run(job);
    }
    tokens_ = launched_.front().tokens;
    check(launched_.front().done, "contract: a step was collected that was not sampled");
    fill_logprobs(batch);
    launched_.pop_front();
    return tokens_;
  }

  std::int64_t num_launched = 0, num_collected = 0;
  std::int64_t max_step_tokens_seen = 0, max_rows_seen = 0;
  std::int64_t num_mixed = 0;         ///< steps with both kinds of row
  std::int64_t num_waited = 0;        ///< steps whose sampling waited
  std::int64_t fail_at_launch = -1;   ///< the launch that throws, counted from 1
  std::int64_t fail_at_collect = -1;  ///< the collection that throws
  bool ids_are_ordered = true;        ///< check that rows are in order of request id
  std::string* log = nullptr;         ///< every batch is appended
  std::map<std::uint64_t, std::vector<SampleRow>> samples;  ///< by request

 private:
  static constexpr TokenId kStale = -77;

  struct Slot {
    TokenId token = -1;
    std::int32_t position = -1;
  };
  struct JobRow {
    BatchRow row;
    std::vector<TokenLoc> locs;  // of [0, device_len), as the page table was at launch
    std::vector<TokenId> ids;
    bool sampled = false;
    SampleRow sample = {};  // whose edits are these:
    std::vector<TokenEdit> edits = {};
    std::vector<std::int32_t> mask = {};
  };
  struct Job {
    const Batch* batch;
    std::vector<JobRow> rows;
    std::vector<TokenId> tokens;
    bool run_by_now = false, done = false;
    bool waits = false;
  };

  void run_all() {
    for (Job& job : launched_) run(job);
  }

  Job make_job(const Batch& batch) {
    Job job{.batch = &batch, .rows = {}, .tokens = {}, .waits = batch.sampling_waits};
    std::size_t next_id = 0, next_sample = 0;
    for (std::size_t i = 0; i < batch.rows.size(); ++i) {
      JobRow row{.row = batch.rows[i], .locs = {}, .ids = {}};
      const std::span<const TokenLoc> locs = batch.page_table->row(row.row.row);
      row.locs.assign(locs.begin(), locs.begin() + row.row.device_len);
      for (int k = 0; k < row.row.extend_len(); ++k) row.ids.push_back(batch.token_ids[next_id++]);
      if (next_sample < batch.samples.size() &&
          batch.samples[next_sample].batch_row == static_cast<std::int32_t>(i)) {
        samples[batch.samples[next_sample].request.value].push_back(batch.samples[next_sample]);
        row.sampled = true;
        row.sample = batch.samples[next_sample];
        ++next_sample;
      }
      job.rows.push_back(std::move(row));
    }
    check(next_sample == batch.samples.size(), "contract: samples are not in order of rows");
    if (!job.waits) take_edits(batch, job);
    return job;
  }

  /// Copies edits and masks: the batch's are read while it is sampled, not later.
  void take_edits(const Batch& batch, Job& job) {
    const auto words = static_cast<std::size_t>((limits_.vocab_size + 31) / 32);
    for (const SampleRow& sample : batch.samples) {
      JobRow& row = job.rows[static_cast<std::size_t>(sample.batch_row)];
      row.sample = sample;
      row.edits.assign(sample.edits.begin(), sample.edits.end());
      if (sample.mask < 0) continue;
      const auto begin = static_cast<std::size_t>(sample.mask) * words;
      check(begin + words <= batch.masks.size(), "contract: mask ", sample.mask, " is not there");
      row.mask.assign(batch.masks.begin() + static_cast<std::ptrdiff_t>(begin),
                      batch.masks.begin() + static_cast<std::ptrdiff_t>(begin + words));
    }
  }

  static bool is_allowed(const JobRow& row, TokenId token) {
    const auto word = static_cast<std::size_t>(token / 32);
    if (!row.mask.empty() && (static_cast<std::uint32_t>(row.mask[word]) >> (token % 32) & 1U) == 0)
      return false;
    return std::none_of(row.edits.begin(), row.edits.end(), [token](const TokenEdit& edit) {
      return edit.token == token && edit.bias < -1e30F;
    });
  }

  /// The model's token, or the first allowed one after it.
  TokenId draw(const JobRow& row, const std::vector<TokenId>& history) const {
    const TokenId wanted = model_(history);
    for (std::int32_t i = 0; i < limits_.vocab_size; ++i)
      if (const TokenId token = (wanted + i) % limits_.vocab_size; is_allowed(row, token))
        return token;
    return 0;
  }

  /// Penalties count what was really drawn, although the step was launched before it was known.
  static void check_edits(const JobRow& row, const std::vector<TokenId>& history) {
    const SampleRow& s = row.sample;
    if (s.repetition_penalty == 1 && s.frequency_penalty == 0 && s.presence_penalty == 0) return;
    const auto answer = history.end() - static_cast<std::ptrdiff_t>(s.position);
    std::map<TokenId, std::int32_t> counts;
    for (auto at = answer; at != history.end(); ++at) ++counts[*at];
    for (const TokenEdit& edit : row.edits) {
      check(edit.count == counts[edit.token], "contract: token ", edit.token, " is in the answer ",
            counts[edit.token], " times, not ", edit.count);
      counts.erase(edit.token);
    }
    for (const auto& [token, count] : counts)
      check(count == 0, "contract: token ", token, " is not counted");
  }

  /// The log-probability of a token is its negative number, of a prompt's less 0.5.
  void fill_logprobs(Batch& batch) const {
    batch.logprobs.clear();
    batch.score_logprobs.clear();
    const auto add = [](TokenId token, int count, float offset, auto& to) {
      PositionLogprobs p{.chosen = {token, -static_cast<float>(token) - offset}, .top = {}};
      for (TokenId i = 0; i < count; ++i) p.top.push_back({i, -static_cast<float>(i) - offset});
      to.push_back(std::move(p));
    };
    for (std::size_t i = 0; i < batch.samples.size(); ++i)
      if (batch.samples[i].num_logprobs >= 0)
        add(tokens_[i], batch.samples[i].num_logprobs, 0, batch.logprobs);
    for (const ScoreRow& score : batch.scores)
      add(score.target, score.num_logprobs, 0.5F, batch.score_logprobs);
  }

  void run(Job& job) {
    if (job.done || job.waits) return;
    job.done = true;
    for (const JobRow& row : job.rows) {  // all keys are written before one is read
      for (std::size_t k = 0; k < row.ids.size(); ++k) {
        const auto position = static_cast<std::size_t>(row.row.cached_len) + k;
        const TokenId id = row.ids[k] >= 0 ? row.ids[k] : last_token_[row.row.row.value];
        check(id >= 0, "no token was drawn for row ", row.row.row.value);
        pool_[row.locs[position]] = {id, static_cast<std::int32_t>(position)};
      }
    }
    for (const JobRow& row : job.rows) {
      std::vector<TokenId> history;
      for (std::size_t position = 0; position < row.locs.size(); ++position) {
        const Slot slot = pool_[row.locs[position]];
        check(slot.position == static_cast<std::int32_t>(position), "location ", row.locs[position],
              " holds position ", slot.position, ", not ", position);
        history.push_back(slot.token);
      }
      if (!row.sampled) continue;
      check_edits(row, history);
      last_token_[row.row.row.value] = draw(row, history);
      job.tokens.push_back(last_token_[row.row.row.value]);
    }
  }

  void check_contract(const Batch& batch) {
    const auto num_rows = static_cast<std::int32_t>(batch.rows.size());
    check(num_rows > 0 && num_rows == batch.num_rows && num_rows <= limits_.max_rows,
          "contract: ", num_rows, " rows, num_rows ", batch.num_rows);
    check(batch.num_tokens() == static_cast<std::int64_t>(batch.token_ids.size()) &&
              batch.num_tokens() <= limits_.max_step_tokens,
          "contract: ", batch.num_tokens(), " tokens, ", batch.token_ids.size(), " ids, at most ",
          limits_.max_step_tokens);
    check(static_cast<std::int32_t>(batch.samples.size()) >= batch.num_decode,
          "contract: a decode row is not sampled");
    max_step_tokens_seen = std::max(max_step_tokens_seen, batch.num_tokens());
    max_rows_seen = std::max<std::int64_t>(max_rows_seen, num_rows);
    num_mixed += batch.num_decode > 0 && batch.num_decode < num_rows ? 1 : 0;
    std::set<RowId> rows;
    std::set<TokenLoc> written;
    std::size_t next_id = 0;
    for (std::int32_t i = 0; i < num_rows; ++i) {
      const BatchRow& row = batch.rows[i];
      check(row.row.value >= 0 && row.row.value < limits_.max_rows && rows.insert(row.row).second,
            "contract: row ", row.row.value, " is there twice or is no row");
      check(row.cached_len >= 0 && row.extend_len() > 0 && row.device_len < limits_.max_seq_len + 1,
            "contract: lengths ", row.cached_len, " and ", row.device_len);
      const bool decode = i < batch.num_decode;
      if (decode) {
        check(row.extend_len() == 1 && last_device_len_[row.row.value] == row.cached_len,
              "contract: decode row at ", row.cached_len, " after ",
              last_device_len_[row.row.value]);
      }
      last_device_len_[row.row.value] = row.device_len;
      for (int k = 0; k < row.extend_len(); ++k) {
        const TokenId id = batch.token_ids[next_id++];
        check(decode ? id == -1 : (id >= 0 && id < limits_.vocab_size), "contract: id ", id);
      }
      check_locations(*batch.page_table, row, written);
    }
    for (std::size_t k = 1; k < batch.samples.size(); ++k) {
      const bool same_part = static_cast<int>(k) != batch.num_decode;
      const bool ascending = batch.samples[k - 1].request < batch.samples[k].request;
      check(batch.samples[k - 1].batch_row < batch.samples[k].batch_row &&
                (ascending || !same_part || !ids_are_ordered),
            "contract: rows are not in order of admission");
    }
  }

  void check_locations(const PageTable& table, const BatchRow& row,
                       std::set<TokenLoc>& written) const {
    const std::span<const TokenLoc> locs = table.row(row.row);
    for (int position = 0; position < row.device_len; ++position) {
      const TokenLoc loc = locs[position];
      check(loc >= 0 && loc < limits_.dummy_loc(), "contract: location ", loc);
      const int offset = position % limits_.page_size;
      check(loc % limits_.page_size == offset && (offset == 0 || locs[position - 1] + 1 == loc),
            "contract: position ", position, " is not inside a page");
      check(position < row.cached_len || written.insert(loc).second, "contract: location ", loc,
            " is written by two rows");
    }
  }

  /// "2: 0[7,8)@7 3[4,5)@36 1[0,20)@48 r1 r4": decode rows, rows with lengths and first location,
  /// requests that are sampled.
  static std::string describe(const Batch& batch) {
    std::string text = fmt::format("{}:", batch.num_decode);
    for (const BatchRow& row : batch.rows) {
      text += fmt::format(" {}[{},{})@{}", row.row.value, row.cached_len, row.device_len,
                          batch.page_table->row(row.row)[row.cached_len]);
    }
    for (const SampleRow& sample : batch.samples) text += fmt::format(" r{}", sample.request.value);
    return text + "\n";
  }

  ExecutorLimits limits_;
  TokenModel model_;
  Random random_;
  std::vector<Slot> pool_;
  std::vector<TokenId> last_token_;
  std::vector<std::int32_t> last_device_len_;
  std::deque<Job> launched_;
  std::vector<TokenId> tokens_;
};

/// A model that mixes the whole history: any wrong token in it gives another answer.
inline TokenModel hashing_model(std::int32_t vocab_size) {
  return [vocab_size](std::span<const TokenId> history) {
    std::uint64_t state = 1469598103934665603U;
    for (const TokenId token : history)
      state = (state ^ static_cast<std::uint64_t>(token)) * 1099511628211U;
    return static_cast<TokenId>((state >> 20) % static_cast<std::uint64_t>(vocab_size));
  };
}

}  // namespace minisgl::testing_util
