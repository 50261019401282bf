#include "llm/offline_workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/check.h"
#include "base/python_random.h"

namespace minisgl {
namespace {

constexpr const char* kOffline256 = "offline256";

/// Draws in the order of mini-sglang's benchmark/offline/bench.py: each prompt's length and then
/// its ids, and after all of them the answers' lengths.
std::vector<OfflineRequest> offline256_requests(int vocab_size) {
  constexpr int kRequests = 256, kMinLen = 100, kMaxLen = 1024, kLastId = 10'000;
  check(vocab_size > kLastId, "the workload offline256 has token ids up to ", kLastId,
        ", but the vocabulary of the model has only ", vocab_size);
  PythonRandom random(0);
  std::vector<OfflineRequest> requests(kRequests);
  for (OfflineRequest& request : requests) {
    request.prompt.resize(static_cast<std::size_t>(random.randint(kMinLen, kMaxLen)));
    for (TokenId& id : request.prompt) id = static_cast<TokenId>(random.randint(0, kLastId));
  }
  for (OfflineRequest& request : requests)
    request.output_len = static_cast<int>(random.randint(kMinLen, kMaxLen));
  return requests;
}

/// splitmix64.
std::uint64_t next(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9E3779B97F4A7C15U);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

std::vector<TokenId> random_ids(int count, int vocab_size, std::uint64_t& state) {
  constexpr int kMaxId = 10'000;
  const auto bound = static_cast<std::uint64_t>(std::min(vocab_size, kMaxId));
  std::vector<TokenId> ids(static_cast<std::size_t>(count));
  for (TokenId& id : ids) id = static_cast<TokenId>(next(state) % bound);
  return ids;
}

}  // namespace

std::string OfflineWorkload::name() const {
  if (offline256) return kOffline256;
  return fmt::format("{}x{}+{}", num_prompts, input_len, output_len);
}

OfflineWorkload parse_offline_workload(const std::string& text) {
  if (text == kOffline256) return {.offline256 = true};
  OfflineWorkload workload;
  const char* at = text.data();
  const char* const end = at + text.size();
  const std::array<int*, 3> numbers{&workload.num_prompts, &workload.input_len,
                                    &workload.output_len};
  constexpr std::array kAfter{'x', '+', '\0'};
  bool valid = true;
  for (std::size_t i = 0; i < numbers.size() && valid; ++i) {
    const auto [after, error] = std::from_chars(at, end, *numbers[i]);
    valid = error == std::errc() && *numbers[i] >= 1;
    at = after;
    if (kAfter[i] == '\0') break;
    valid = valid && at != end && *at++ == kAfter[i];
  }
  if (!valid || at != end)
    throw Error("the workload \"" + text +
                "\" is not known; it is offline256 or three numbers of " +
                "at least 1, such as 64x512+257: 64 prompts of 512 tokens, answers of 257");
  return workload;
}

std::vector<OfflineRequest> make_requests(const OfflineWorkload& workload, int vocab_size,
                                          std::uint64_t& state) {
  if (workload.offline256) return offline256_requests(vocab_size);
  check(workload.shared_len <= workload.input_len, "prompts of ", workload.input_len,
        " tokens cannot share their first ", workload.shared_len);
  const std::vector<TokenId> shared = random_ids(workload.shared_len, vocab_size, state);
  std::vector<OfflineRequest> requests(static_cast<std::size_t>(workload.num_prompts));
  for (OfflineRequest& request : requests) {
    request.prompt = random_ids(workload.input_len, vocab_size, state);
    std::copy(shared.begin(), shared.end(), request.prompt.begin());
    request.output_len = workload.output_len;
  }
  return requests;
}

}  // namespace minisgl
