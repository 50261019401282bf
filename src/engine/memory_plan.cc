#include "engine/memory_plan.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "base/check.h"
#include "base/math.h"
#include "tensor/cuda/device.h"

namespace minisgl {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

/// A number in a one-line file; kUnlimited when the file is missing or says "max".
std::int64_t read_number(const char* path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  return file >> value ? value : kUnlimited;
}

std::int64_t mem_available() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::int64_t kilobytes = 0;
  std::string unit;
  while (file >> key >> kilobytes >> unit)
    if (key == "MemAvailable:") return kilobytes * 1024;
  return kUnlimited;
}

/// What a limit leaves; version 1 writes "no limit" as a number near 2^63.
std::int64_t left_of(std::int64_t limit, std::int64_t used) {
  if (limit >= (std::int64_t{1} << 60) || used == kUnlimited) return kUnlimited;
  return std::max<std::int64_t>(0, limit - used);
}

double gib(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

}  // namespace

std::int64_t available_memory_bytes() {
  const std::int64_t v2 = left_of(read_number("/sys/fs/cgroup/memory.max"),
                                  read_number("/sys/fs/cgroup/memory.current"));
  const std::int64_t v1 = left_of(read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
                                  read_number("/sys/fs/cgroup/memory/memory.usage_in_bytes"));
  return std::min({v2, v1, mem_available()});
}

std::int64_t available_memory_bytes(Device device) {
  if constexpr (cuda::kBuilt)
    if (!device.is_cpu()) return cuda::memory(device).free_bytes;
  return available_memory_bytes();
}

std::int64_t agree_on_memory(std::int64_t available_bytes, Device device, const RankLinks& ranks) {
  if (device.is_cpu()) available_bytes /= ranks.sharing_host;
  Message mine(sizeof(available_bytes));
  std::memcpy(mine.data(), &available_bytes, sizeof(available_bytes));
  std::int64_t least = kUnlimited;
  std::int64_t most = 0;
  std::string list;
  for (const Message& message : ranks.host->all_gather(mine)) {
    std::int64_t bytes = 0;
    check(message.size() == sizeof(bytes), "a rank did not say how much memory it has");
    std::memcpy(&bytes, message.data(), sizeof(bytes));
    least = std::min(least, bytes);
    most = std::max(most, bytes);
    list += fmt::format("{}{:.2f} GiB", list.empty() ? "" : ", ", gib(bytes));
  }
  constexpr std::int64_t kMostSpread = std::int64_t{2} << 30;
  if (!device.is_cpu() && most - least > kMostSpread)
    throw Error("the GPUs of the ranks have very different amounts of free memory (" + list +
                "): see what else runs on them");
  return least;
}

std::int64_t resident_memory_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t total_pages = 0;
  std::int64_t resident_pages = 0;
  if (!(file >> total_pages >> resident_pages)) return 0;
  return resident_pages * sysconf(_SC_PAGESIZE);
}

KvPlan plan_kv_cache(const KvPlanInput& in) {
  const std::int64_t pages_of_request = ceil_div<std::int64_t>(in.max_seq_len, in.page_size);
  const std::int64_t wanted = pages_of_request * in.max_rows;
  constexpr std::int64_t kMaxSlots =
      std::numeric_limits<std::int32_t>::max();  // a location is an int32
  const std::int64_t addressable = kMaxSlots / in.page_size - 1;
  KvPlan plan;
  std::int64_t pages = 0;
  if (in.num_pages_override > 0) {
    pages = in.num_pages_override;
    const std::int64_t needed = (pages + 1) * in.bytes_per_page;
    if (needed > in.available_bytes)
      throw Error(
          fmt::format("not enough memory for the KV cache: {} pages of {} tokens need {:.2f} GiB, "
                      "{:.2f} GiB are available; lower --num-pages",
                      pages, in.page_size, gib(needed), gib(in.available_bytes)));
    if (pages > addressable)
      throw Error(
          fmt::format("--num-pages {} of {} tokens are more than the {} that can be addressed",
                      pages, in.page_size, addressable));
  } else {
    const auto budget =
        static_cast<std::int64_t>(static_cast<double>(in.available_bytes) * in.memory_ratio);
    const std::int64_t affordable = budget / in.bytes_per_page - 1;  // one is the dummy page
    pages = std::min({wanted, affordable, addressable});
    plan.limited_by_memory = affordable < wanted;
    if (pages < 2)
      throw Error(fmt::format(
          "not enough memory for the KV cache: two pages of {} tokens need {:.2f} GiB, but "
          "{:.0f} % of the available {:.2f} GiB are allowed; lower --page-size or raise "
          "--memory-ratio",
          in.page_size, gib(3 * in.bytes_per_page), in.memory_ratio * 100,
          gib(in.available_bytes)));
  }
  plan.num_pages = static_cast<std::int32_t>(pages);
  plan.max_seq_len =
      static_cast<std::int32_t>(std::min<std::int64_t>(in.max_seq_len, pages * in.page_size));
  return plan;
}

}  // namespace minisgl
