#include "comm/child_ranks.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>

#include "minisgl/error.h"

namespace minisgl {
namespace {

/// argv of this process.
std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::vector<std::string> arguments;
  for (std::size_t at = 0; at < all.size(); at += arguments.back().size() + 1)
    arguments.emplace_back(all.c_str() + at);
  if (arguments.empty()) throw Error("ranks cannot be started: /proc/self/cmdline is empty");
  return arguments;
}

/// The environment with the variables of a rank in place of those that it had.
std::vector<std::string> environment_of(int rank, int size, std::uint16_t port) {
  const std::vector<std::string> own{"RANK=" + std::to_string(rank),
                                     "WORLD_SIZE=" + std::to_string(size), "MASTER_ADDR=127.0.0.1",
                                     "MASTER_PORT=" + std::to_string(port)};
  std::vector<std::string> all = own;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    bool replaced = false;
    for (const std::string& variable : own)
      replaced |= text.starts_with(variable.substr(0, variable.find('=') + 1));
    if (!replaced) all.push_back(text);
  }
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// What the new process does: nothing but system calls, as threads of the parent may hold locks.
[[noreturn]] void become_rank(pid_t parent, char* const* arguments, char* const* environment) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // it has ended in between
  sigset_t waiting;
  ::sigemptyset(&waiting);
  ::sigaddset(&waiting, SIGINT);
  ::sigaddset(&waiting, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &waiting, nullptr);
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  ::execve("/proc/self/exe", arguments, environment);
  ::_exit(127);
}

std::string end_of(int rank, pid_t process, int status) {
  const std::string who =
      "rank " + std::to_string(rank) + " (process " + std::to_string(process) + ")";
  if (WIFSIGNALED(status))
    return who + " was killed by signal " + std::to_string(WTERMSIG(status)) + " (" +
           ::strsignal(WTERMSIG(status)) + ")";
  return who + " has ended with status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

ChildRanks::ChildRanks(int size, std::uint16_t port) {
  std::vector<std::string> arguments = own_arguments();
  const std::vector<char*> argv = pointers_to(arguments);
  const pid_t parent = ::getpid();
  for (int rank = 1; rank < size; ++rank) {
    std::vector<std::string> environment = environment_of(rank, size, port);
    const std::vector<char*> envp = pointers_to(environment);
    auto child = std::make_unique<Child>();
    child->rank = rank;
    child->process = ::fork();
    if (child->process == 0) become_rank(parent, argv.data(), envp.data());
    if (child->process < 0)
      throw Error("rank " + std::to_string(rank) + " cannot be started: " + std::strerror(errno));
    child->watcher = std::thread([this, &child = *child] { watch(child); });
    children_.push_back(std::move(child));
  }
}

void ChildRanks::watch(Child& child) {
  int status = 0;
  // WNOWAIT: the number of the process stays its own until it is known to have ended, so that no
  // other process is killed in its place.
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(child.process), &info, WEXITED | WNOWAIT) != 0 &&
         errno == EINTR) {
  }
  const std::lock_guard lock(mutex_);
  child.running = false;
  while (::waitpid(child.process, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;  // only when it was told to
  child.end = end_of(child.rank, child.process, status);
  if (!stopping_ && fault_.empty()) fault_ = child.end;
}

std::string ChildRanks::fault() const {
  const std::lock_guard lock(mutex_);
  return fault_;
}

std::string ChildRanks::wait_for_end(std::chrono::milliseconds timeout) {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  constexpr auto kPoll = std::chrono::milliseconds(10);
  const auto end = std::chrono::steady_clock::now() + timeout;
  std::string problem;
  for (const auto& child : children_) {
    for (;; std::this_thread::sleep_for(kPoll)) {
      const std::lock_guard lock(mutex_);
      if (!child->running) {
        if (problem.empty()) problem = child->end;
        break;
      }
      if (std::chrono::steady_clock::now() < end) continue;
      if (problem.empty()) problem = "rank " + std::to_string(child->rank) + " does not end";
      ::kill(child->process, SIGKILL);
      break;
    }
  }
  return problem;
}

ChildRanks::~ChildRanks() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const auto& child : children_)
      if (child->running) ::kill(child->process, SIGKILL);
  }
  for (const auto& child : children_)
    if (child->watcher.joinable()) child->watcher.join();
}

}  // namespace minisgl
