#include "comm/host_group.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace minisgl {
namespace {

/// The beginning of every message: its length, and as much of it as fits.
struct Head {
  std::uint64_t bytes = 0;
  std::array<std::byte, HostGroup::kShortBytes> begin{};

  std::span<const std::byte> view() const { return std::as_bytes(std::span(this, 1)); }
  std::span<std::byte> view() { return std::as_writable_bytes(std::span(this, 1)); }
  std::size_t inside() const {
    return std::min<std::size_t>(static_cast<std::size_t>(bytes), HostGroup::kShortBytes);
  }
  bool is_whole() const { return bytes <= HostGroup::kShortBytes; }
};

Head head_of(const Message& message) {
  Head head;
  head.bytes = message.size();
  std::copy_n(message.begin(), head.inside(), head.begin.begin());
  return head;
}

/// Room for the message that begins so, with its beginning.
Message room_for(const Head& head) {
  Message message(static_cast<std::size_t>(head.bytes));
  std::copy_n(head.begin.begin(), head.inside(), message.begin());
  return message;
}

std::span<const std::byte> rest_of(const Message& message) {
  return std::span(message).subspan(HostGroup::kShortBytes);
}
std::span<std::byte> rest_of(Message& message) {
  return std::span(message).subspan(HostGroup::kShortBytes);
}

}  // namespace

void HostGroup::broadcast(Message& message) {
  if (rank() != 0) {
    Head head;
    const Transport::Receive first{0, head.view()};
    transport_->exchange({}, {&first, 1});
    message = room_for(head);
    if (head.is_whole()) return;
    const Transport::Receive second{0, rest_of(message)};
    transport_->exchange({}, {&second, 1});
    return;
  }
  const Head head = head_of(message);
  const auto send = [&](std::span<const std::byte> data) {
    std::vector<Transport::Send> sends;
    for (int to = 1; to < size(); ++to) sends.push_back({to, data});
    transport_->exchange(sends, {});
  };
  send(head.view());
  if (!head.is_whole()) send(rest_of(std::as_const(message)));
}

std::vector<Message> HostGroup::all_gather(const Message& mine) {
  const Head head = head_of(mine);
  std::vector<Head> heads(static_cast<std::size_t>(size()));
  std::vector<Transport::Send> sends;
  std::vector<Transport::Receive> receives;
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    sends.push_back({other, head.view()});
    receives.push_back({other, heads[static_cast<std::size_t>(other)].view()});
  }
  transport_->exchange(sends, receives);
  heads[static_cast<std::size_t>(rank())] = head;

  std::vector<Message> all;
  for (const Head& each : heads) all.push_back(room_for(each));
  all[static_cast<std::size_t>(rank())] = mine;
  if (std::all_of(heads.begin(), heads.end(), [](const Head& each) { return each.is_whole(); }))
    return all;
  sends.clear();
  receives.clear();
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    Message& theirs = all[static_cast<std::size_t>(other)];
    if (!head.is_whole()) sends.push_back({other, rest_of(mine)});
    if (!heads[static_cast<std::size_t>(other)].is_whole())
      receives.push_back({other, rest_of(theirs)});
  }
  transport_->exchange(sends, receives);
  return all;
}

void HostGroup::barrier() { all_gather({}); }

}  // namespace minisgl
