// What rank 0's scheduler takes in, as bytes for the others.

#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/host_group.h"
#include "scheduler/inbox.h"

namespace minisgl {

/// Makes a request's constraint, of its response format and constraint_start.
using MakeConstraint = std::function<std::unique_ptr<TokenConstraint>(const NewRequest&)>;

/// What happens at one turn of the loop, on every rank.
struct RankTurn {
  std::vector<SchedulerMessage> messages;
  bool stopping = false;   ///< the loop ends with this turn
  bool roll_call = false;  ///< nothing is to be done: every rank shows that it is there
};

/// Everything in `turn` but the requests' constraints: those follow from their response formats.
Message encode_turn(const RankTurn& turn);

/// The same turn; `make_constraint` is asked where rank 0's request has a constraint.
/// Throws Error if the bytes are none of encode_turn().
RankTurn decode_turn(const Message& bytes, const MakeConstraint& make_constraint);

}  // namespace minisgl
