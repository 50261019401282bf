// A group of ranks: processes that compute one model together.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "comm/communicator.h"
#include "comm/host_group.h"
#include "comm/rendezvous.h"
#include "tensor/device.h"

namespace minisgl {

/// Where a process stands in its group, and where rank 0 is to be found.
struct RankPlace {
  int rank = 0;
  int size = 1;
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;
};

/// What a launcher says: RANK, WORLD_SIZE, MASTER_ADDR (127.0.0.1) and MASTER_PORT, as torchrun
/// sets them. Nullopt without RANK and WORLD_SIZE. Throws Error naming a variable that is missing
/// or makes no sense. torchrun's agent listens at MASTER_PORT itself: the ranks then take the next
/// one.
std::optional<RankPlace> place_from_environment();

/// What the parts of a rank need of the others. All pointers are null in a group of one.
struct RankLinks {
  HostGroup* host = nullptr;
  Communicator* tensors = nullptr;
  int sharing_host = 1;  ///< ranks on this host, this one included
};

/// One rank's connections with the others, through gloo; on GPUs through NCCL as well. The links
/// live as long as the group, which must outlive whatever uses them.
class RankGroup {
 public:
  /// `fault`: see RendezvousOptions. `timeout`: of the start, and of every operation.
  struct Options {
    RankPlace place;
    std::chrono::milliseconds timeout{60'000};
    std::function<std::string()> fault = {};
  };

  /// Waits for all ranks. Throws Error naming those that do not come. Rank 0 takes `listener`, or
  /// listens at its place.
  explicit RankGroup(Options options, FileDescriptor listener = {});
  ~RankGroup();

  int rank() const { return rendezvous_.rank(); }
  int size() const { return rendezvous_.size(); }
  std::chrono::milliseconds timeout() const { return rendezvous_.options().timeout; }
  /// Number of this rank among those on its host, from 0 on.
  int rank_on_host() const { return rank_on_host_; }

  /// Connects the ranks' devices, which are all CPUs or all GPUs, another one each. Once.
  void connect_devices(Device device);
  RankLinks links();

  /// Why a rank is known to have failed, "" if none is: see Rendezvous::fault(). For the time in
  /// which the ranks do not talk with each other, and none may end. Any thread.
  std::string fault() const { return rendezvous_.fault(); }

 private:
  Rendezvous rendezvous_;
  HostGroup host_;
  std::unique_ptr<Communicator> tensors_;
  int rank_on_host_ = 0;
  int sharing_host_ = 0;
};

}  // namespace minisgl
