// What `minisgl bench offline` asks for: requests of token ids, all at once.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/types.h"

namespace minisgl {

struct OfflineWorkload {
  /// offline256: the workload of mini-sglang's benchmark/offline/bench.py. 256 requests, prompts
  /// and answers of 100 to 1024 tokens, drawn by Python's random with seed 0: 142,827 prompt
  /// tokens and 133,966 of answers. What follows does not count then.
  bool offline256 = false;
  int num_prompts = 1;
  int input_len = 512;   ///< tokens of each prompt
  int output_len = 128;  ///< tokens of each answer
  int shared_len = 0;    ///< tokens at the beginning that all prompts of a pass have in common

  /// "offline256", or "64x512+257": 64 prompts of 512 tokens, 257 tokens out.
  std::string name() const;
};

/// Reads what OfflineWorkload::name() writes. Throws Error saying what it must look like.
OfflineWorkload parse_offline_workload(const std::string& text);

struct OfflineRequest {
  std::vector<TokenId> prompt;
  int output_len = 0;
};

/// One pass' requests. The ids of offline256 are always the same (the caller flushes the prefix
/// cache); others are different in every call, as `state` moves on. Ids are below `vocab_size`.
std::vector<OfflineRequest> make_requests(const OfflineWorkload& workload, int vocab_size,
                                          std::uint64_t& state);

}  // namespace minisgl
