#include "ranks.h"

#include <signal.h>  // NOLINT: pthread_sigmask is not in <csignal>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "comm/child_ranks.h"
#include "comm/rank_group.h"
#include "commands.h"
#include "hub/cache.h"
#include "minisgl/error.h"
#include "models/divide.h"

namespace minisgl::app {
namespace {

using std::chrono::milliseconds;

milliseconds timeout_of(const RankFlags& flags) {
  return milliseconds(std::llround(flags.timeout_s * 1000));
}

/// How many ranks there are to be.
int size_of(const RankFlags& flags, const std::optional<RankPlace>& place) {
  if (place && flags.size > 1 && flags.size != place->size)
    throw Error("--tp is " + std::to_string(flags.size) + ", but WORLD_SIZE is " +
                std::to_string(place->size));
  return place ? place->size : flags.size;
}

/// Rank 0 decides when a group ends: signals of a terminal or a launcher, which go to all, are not
/// for us.
int run_other_rank(const RankPlace& place, const RankFlags& flags, const OnRank& other) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  if (log::enabled(log::Level::kInfo) && !log::enabled(log::Level::kDebug))
    log::set_level(log::Level::kWarning);  // rank 0 says it all
  try {
    RankGroup group({.place = place, .timeout = timeout_of(flags)});
    return other({.group = &group, .fault = {}, .compare_batches = flags.check});
  } catch (const std::exception& e) {
    log::error("rank {}: {}", place.rank, e.what());
  }
  return 1;
}

/// Ends this process when a rank has failed and, for as long as a rank may take to answer, it has
/// not ended by itself: connecting, loading and what they leave behind are in the hands of
/// libraries. Watches until `done`.
void end_after_fault(std::shared_ptr<ChildRanks> children, std::shared_ptr<std::atomic<bool>> done,
                     milliseconds limit) {
  std::thread([children = std::move(children), done = std::move(done), limit] {
    constexpr milliseconds kPoll{20};
    while (children->fault().empty()) {
      if (done->load()) return;
      std::this_thread::sleep_for(kPoll);
    }
    for (milliseconds waited{0}; waited < limit; waited += kPoll) {
      if (done->load()) return;
      std::this_thread::sleep_for(kPoll);
    }
    log::error("{}", children->fault());
    std::_Exit(1);  // the other ranks end with it
  }).detach();
}

int run_first_rank(std::optional<RankPlace> place, const RankFlags& flags, const OnRank& first) {
  FileDescriptor listener;
  std::shared_ptr<ChildRanks> children;
  const auto done = std::make_shared<std::atomic<bool>>(false);
  std::function<std::string()> fault;
  if (!place) {
    listener = listen_at("127.0.0.1", 0);
    place = RankPlace{.rank = 0, .size = flags.size, .port = port_of(listener)};
    children = std::make_shared<ChildRanks>(flags.size, place->port);
    fault = [&children] { return children->fault(); };
    end_after_fault(children, done, timeout_of(flags));
  }
  int status = 0;
  {
    RankGroup group({.place = *place, .timeout = timeout_of(flags), .fault = fault},
                    std::move(listener));
    status = first({.group = &group, .fault = fault, .compare_batches = flags.check});
  }
  if (children == nullptr) return status;
  // They have been told to end.
  const std::string problem = children->wait_for_end(timeout_of(flags));
  done->store(true);
  if (!problem.empty()) throw Error(problem);
  return status;
}

/// Computes what the first rank asks for.
int follow(const LlmOptions& options, const RankSetup& ranks) {
  LocalGenerator generator(options, ranks);
  generator.wait();
  if (generator.fault().empty()) return 0;
  throw Error(generator.fault());
}

/// What nobody should have to wait for.
void check_model(const LlmOptions& options, int size) {
  models::check_divides(read_model_config(hub::find_model(options.model)), size);
}

}  // namespace

void add_rank_flags(CLI::App& app, RankFlags& flags) {
  const std::vector<CLI::Option*> options{
      app.add_option("--tensor-parallel-size,--tp-size,--tp", flags.size,
                     "Processes that share the model, each with a part of its weights; on GPUs one "
                     "for each")
          ->check(whole_number_from(1, 1024))
          ->type_name("N")
          ->capture_default_str(),
      app.add_option("--distributed-timeout", flags.timeout_s,
                     "A process that does not answer for so long has failed")
          ->check(number_from(0.1))
          ->type_name("SECONDS")
          ->capture_default_str(),
      app.add_flag("--check-ranks", flags.check,
                   "Stop when the processes differ in what they compute; slow")};
  for (CLI::Option* option : options) option->group("Several processes");
}

int on_ranks(const RankFlags& flags, const OnRank& first, const OnRank& other) {
  const std::optional<RankPlace> place = place_from_environment();
  if (size_of(flags, place) < 2) throw Error("there is one rank only; give --tp N");
  if (place && place->rank > 0) return run_other_rank(*place, flags, other);
  return run_first_rank(place, flags, first);
}

int with_ranks(const RankFlags& flags, const LlmOptions& options, const OnRank& command) {
  const std::optional<RankPlace> place = place_from_environment();
  const int size = size_of(flags, place);
  if (size == 1) return command({});
  if (!place || place->rank == 0) check_model(options, size);
  return on_ranks(flags, command, [&](const RankSetup& ranks) { return follow(options, ranks); });
}

}  // namespace minisgl::app
