#include "engine/rank_watch.h"

#include <utility>

#include "minisgl/error.h"

namespace minisgl {

RankWatch::RankWatch(Communicator& sums, std::chrono::milliseconds limit,
                     std::function<std::string()> fault)
    : sums_(sums), limit_(limit), ask_(std::move(fault)), thread_([this] { run(); }) {}

RankWatch::~RankWatch() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

RankWatch::Call::Call(RankWatch* watch) : watch_(watch) {
  if (watch_ == nullptr) return;
  const std::lock_guard lock(watch_->mutex_);
  watch_->begun_ = Clock::now();
  watch_->busy_ = true;
}

RankWatch::Call::~Call() {
  if (watch_ == nullptr) return;
  const std::lock_guard lock(watch_->mutex_);
  watch_->busy_ = false;
}

void RankWatch::check() const {
  const std::lock_guard lock(mutex_);
  if (!fault_.empty()) throw Error(fault_);
}

std::string RankWatch::find_fault() const {
  if (!busy_) return "";
  if (ask_)
    if (std::string fault = ask_(); !fault.empty()) return fault;
  if (Clock::now() - begun_ <= limit_) return "";
  return "a step was not done within " + std::to_string(limit_.count() / 1000) +
         " s (--distributed-timeout): a rank does not answer";
}

void RankWatch::run() {
  // Calls come and go in microseconds and are not to wake anybody.
  constexpr std::chrono::milliseconds kPoll{20};
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kPoll, [this] { return ends_; })) {
    fault_ = find_fault();
    if (fault_.empty()) continue;
    sums_.abort();
    return;
  }
}

}  // namespace minisgl
