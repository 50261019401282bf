// Messages between the ranks' schedulers.

#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "comm/transport.h"

namespace minisgl {

using Message = std::vector<std::byte>;

/// What ranks tell one another besides tensors. All ranks call the same members in the same order;
/// one thread at a time. Throws Error naming a rank that is gone or does not answer in time.
class HostGroup {
 public:
  explicit HostGroup(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {}

  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }

  /// `message` becomes that of rank 0. One message each way for a short one (kShortBytes), which
  /// is what most steps need.
  void broadcast(Message& message);

  /// The messages of all ranks, in their order.
  std::vector<Message> all_gather(const Message& mine);

  /// Returns when all ranks have come here.
  void barrier();

  static constexpr std::size_t kShortBytes = 504;

 private:
  std::unique_ptr<Transport> transport_;
};

}  // namespace minisgl
