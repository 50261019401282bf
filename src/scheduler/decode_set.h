#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "scheduler/sequence.h"

namespace minisgl {

/// The sequences whose next step computes one token, in order of arrival, which is the same on
/// every rank. Not thread-safe. Source: mini-sglang scheduler/decode.py, where this is a hash set.
class DecodeSet {
 public:
  void add(Sequence& sequence) { sequences_.emplace(sequence.arrival, &sequence); }
  /// Nothing if it is not in the set.
  void remove(const Sequence& sequence) { sequences_.erase(sequence.arrival); }

  std::int64_t size() const { return static_cast<std::int64_t>(sequences_.size()); }

  /// Appends all, in order.
  void collect(std::vector<Sequence*>& out) const {
    for (const auto& [arrival, sequence] : sequences_) out.push_back(sequence);
  }

 private:
  std::map<std::int64_t, Sequence*> sequences_;
};

}  // namespace minisgl
