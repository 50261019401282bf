#include "engine/graph_sizes.h"

#include <algorithm>
#include <string>

#include "minisgl/error.h"

namespace minisgl {
namespace {

std::vector<std::int32_t> from_list(std::span<const std::int32_t> listed) {
  std::vector<std::int32_t> sizes(listed.begin(), listed.end());
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  if (sizes.front() < 1)
    throw Error("a graph needs at least one row; the list of graph batch sizes has " +
                std::to_string(sizes.front()));
  return sizes;
}

}  // namespace

std::vector<std::int32_t> graph_batch_sizes(const GraphSizesInput& input) {
  if (!input.listed.empty()) return from_list(input.listed);
  constexpr std::int64_t kLargeDeviceBytes = std::int64_t{80} << 30;
  std::int32_t max = input.max_batch_size;
  if (max < 0) {
    if (input.device.is_cpu()) return {};
    max = input.free_bytes > kLargeDeviceBytes ? 256 : 160;
  }
  max = std::min(max, input.max_rows);
  std::vector<std::int32_t> sizes;
  for (const std::int32_t size : {1, 2, 4})
    if (size <= max) sizes.push_back(size);
  for (std::int32_t size = 8; size <= max; size += 8) sizes.push_back(size);
  if (!sizes.empty() && sizes.back() != max) sizes.push_back(max);
  return sizes;
}

}  // namespace minisgl
