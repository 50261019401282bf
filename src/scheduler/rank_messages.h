// What rank 0's scheduler takes in, as bytes for the others.

#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/host_group.h"
#include "scheduler/inbox.h"

namespace minisgl {

/// Makes what a request's response format allows; see NewRequest::constraint.
using MakeConstraint = std::function<std::unique_ptr<TokenConstraint>(const ResponseFormat&)>;

/// What happens at one turn of the loop, on every rank.
struct RankTurn {
  std::vector<SchedulerMessage> messages;
  bool stopping = false;   ///< the loop ends with this turn
  bool roll_call = false;  ///< nothing is to be done: every rank shows that it is there
};

/// Everything in `turn` but the requests' constraints: those follow from their response formats.
Message encode_turn(const RankTurn& turn);

/// The same turn; `make_constraint` is asked where a response format other than text is given.
/// Throws Error if the bytes are none of encode_turn().
RankTurn decode_turn(const Message& bytes, const MakeConstraint& make_constraint);

}  // namespace minisgl
