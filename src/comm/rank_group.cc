#include "comm/rank_group.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/check.h"
#include "base/env.h"
#include "comm/cpu_communicator.h"
#include "comm/cuda/nccl_communicator.h"
#include "comm/gloo_module.h"
#include "tensor/cuda/build.h"

namespace minisgl {
namespace {

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

std::int64_t number_from_environment(const char* name, std::int64_t min, std::int64_t max) {
  if (!is_set(name))
    throw Error(std::string("RANK or WORLD_SIZE is set, but ") + name +
                " is not; a launcher sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
  const std::int64_t value = env_int(name, 0);
  if (value < min || value > max)
    throw Error(std::string(name) + " is " + std::to_string(value) + ", not between " +
                std::to_string(min) + " and " + std::to_string(max));
  return value;
}

Message host_identity() {
  std::string text;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> text;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) text += std::string("/") + name.data();
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

}  // namespace

std::optional<RankPlace> place_from_environment() {
  if (!is_set("RANK") && !is_set("WORLD_SIZE")) return std::nullopt;
  constexpr std::int64_t kMostRanks = 1024;
  constexpr std::int64_t kLastPort = 65535;
  RankPlace place;
  place.size = static_cast<int>(number_from_environment("WORLD_SIZE", 1, kMostRanks));
  place.rank = static_cast<int>(number_from_environment("RANK", 0, place.size - 1));
  if (place.size == 1) return place;
  if (is_set("MASTER_ADDR")) place.address = std::getenv("MASTER_ADDR");
  place.port = static_cast<std::uint16_t>(number_from_environment("MASTER_PORT", 1, kLastPort));
  if (env_bool("TORCHELASTIC_USE_AGENT_STORE", false)) ++place.port;
  return place;
}

RankGroup::RankGroup(Options options, FileDescriptor listener)
    : rendezvous_({.rank = options.place.rank,
                   .size = options.place.size,
                   .address = options.place.address,
                   .port = options.place.port,
                   .timeout = options.timeout,
                   .fault = std::move(options.fault)},
                  std::move(listener)),
      host_(connect_with_gloo(rendezvous_, options.timeout)) {
  const std::vector<Message> hosts = host_.all_gather(host_identity());
  for (int other = 0; other < size(); ++other) {
    if (hosts[static_cast<std::size_t>(other)] != hosts[static_cast<std::size_t>(rank())]) continue;
    ++sharing_host_;
    if (other < rank()) ++rank_on_host_;
  }
}

RankGroup::~RankGroup() = default;

void RankGroup::connect_devices(Device device) {
  check(tensors_ == nullptr, "the devices of the ranks are connected already");
  if constexpr (cuda::kBuilt) {
    if (!device.is_cpu()) {
      tensors_ = make_nccl_communicator(host_, device, timeout());
      return;
    }
  }
  tensors_ = std::make_unique<CpuCommunicator>(connect_with_gloo(rendezvous_, timeout()));
}

RankLinks RankGroup::links() {
  return {.host = &host_, .tensors = tensors_.get(), .sharing_host = sharing_host_};
}

}  // namespace minisgl
