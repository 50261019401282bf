// How much memory there is, and how many pages of KV cache it makes.

#pragma once

#include <cstdint>

#include "comm/rank_group.h"
#include "tensor/device.h"

namespace minisgl {

/// Bytes that this process may still take: what the cgroup's limit leaves, but not more than
/// MemAvailable of /proc/meminfo.
std::int64_t available_memory_bytes();

/// The same of a device: of a GPU what is free, whoever uses the rest.
std::int64_t available_memory_bytes(Device device);

/// What each of the ranks may count on, where this one finds `available_bytes` on `device`: the
/// least of all, on a CPU divided by the ranks that share a host. All ranks call it together.
/// Throws Error if GPUs differ by more than 2 GiB: something else is on one of them.
std::int64_t agree_on_memory(std::int64_t available_bytes, Device device, const RankLinks& ranks);

/// Bytes of this process that are in memory now.
std::int64_t resident_memory_bytes();

struct KvPlan {
  std::int32_t num_pages = 0;      ///< without the dummy page
  std::int32_t max_seq_len = 0;    ///< tokens; not more than the pool holds
  bool limited_by_memory = false;  ///< and not by the number of requests
};

struct KvPlanInput {
  std::int64_t bytes_per_page = 0;
  std::int32_t page_size = 1;
  std::int32_t max_rows = 0;
  std::int32_t max_seq_len = 0;  ///< of the model, or as overridden
  std::int64_t available_bytes = 0;
  double memory_ratio = 0.5;            ///< share of the available memory for the pool
  std::int32_t num_pages_override = 0;  ///< 0: as many as make sense
};

/// The smallest of: memory_ratio of the available memory; max_rows requests of max_seq_len tokens.
/// Throws Error naming needed and available bytes when not even two pages fit, or when
/// num_pages_override needs more than is available.
KvPlan plan_kv_cache(const KvPlanInput& input);

}  // namespace minisgl
