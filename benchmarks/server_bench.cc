// Processor time of the server process for each streamed token: HTTP, JSON, scheduling and
// detokenizing are real; forward pass and sampling are replaced by a delay.
//
//   server_bench MODEL [STREAMS [TOKENS [STEP_MS [ROUNDS]]]]      (256, 200, 20, 3)
//
//   server_bench MODEL serve PORT [STEP_MS [radix|naive]]     serves until it is interrupted, for
// other clients
//
// MODEL gives the tokenizer. The clients are a process of their own. Prints, for each round,
// tokens, seconds, and microseconds of processor time per token, of all threads and of each kind.

#include <arpa/inet.h>
#include <fmt/format.h>
#include <malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/log.h"
#include "engine/executor.h"
#include "llm/local_generator.h"
#include "minisgl/server.h"
#include "tokenizer/tokenizer.h"

namespace minisgl {
namespace {

using Clock = std::chrono::steady_clock;

struct Setting {
  std::string model;
  int streams = 256;
  int tokens = 200;
  double step_ms = 20;
  int rounds = 3;
  std::string prefix_cache = "radix";
};

/// Takes `delay` for every step, one after the other, and none of the processor.
class DelayExecutor final : public Executor {
 public:
  DelayExecutor(int rows, int vocab_size, std::chrono::microseconds delay)
      : limits_{.num_pages = rows * 256,
                .page_size = 1,
                .max_rows = rows,
                .max_seq_len = 1024,
                .max_step_tokens = 8192 + rows,
                .vocab_size = vocab_size},
        delay_(delay) {}

  const ExecutorLimits& limits() const override { return limits_; }
  void launch(Batch& batch) override {
    last_done_ = std::max(last_done_, Clock::now()) + delay_;
    done_[&batch] = last_done_;
  }
  void sample(Batch&) override {}  // collect() makes the tokens
  std::span<const TokenId> collect(Batch& batch) override {
    std::this_thread::sleep_until(done_[&batch]);
    tokens_.clear();
    // Ordinary pieces of words, another for every row and step.
    for (std::size_t i = 0; i < batch.samples.size(); ++i)
      tokens_.push_back(static_cast<TokenId>(1000 + (count_ += 7919) % 20000));
    return tokens_;
  }

 private:
  const ExecutorLimits limits_;
  const std::chrono::microseconds delay_;
  Clock::time_point last_done_{};
  std::map<const Batch*, Clock::time_point> done_;
  std::vector<TokenId> tokens_;
  std::uint64_t count_ = 0;
};

// --- The clients ---

int connect_to(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) std::abort();
  return fd;
}

/// Opens all streams and reads them to their ends. Returns the number of events that had text.
long read_streams(std::uint16_t port, const Setting& s) {
  const std::string body = fmt::format(
      R"({{"messages":[{{"role":"user","content":"Tell me a story."}}],"max_tokens":{},)"
      R"("ignore_eos":true,"stream":true}})",
      s.tokens);
  const std::string request = fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n"
      "Content-Length: {}\r\n\r\n{}",
      body.size(), body);
  std::vector<pollfd> streams;
  for (int i = 0; i < s.streams; ++i) {
    streams.push_back({connect_to(port), POLLIN, 0});
    if (::send(streams.back().fd, request.data(), request.size(), 0) < 0) std::abort();
  }
  long events = 0;
  static char bytes[1 << 16];
  for (std::size_t open = streams.size(); open > 0;) {
    ::poll(streams.data(), streams.size(), -1);
    for (pollfd& stream : streams) {
      if (stream.fd < 0 || stream.revents == 0) continue;
      const ssize_t size = ::recv(stream.fd, bytes, sizeof bytes, 0);
      if (size <= 0) {
        ::close(stream.fd);
        stream.fd = -1;
        --open;
        continue;
      }
      const std::string_view text(bytes, static_cast<std::size_t>(size));
      for (std::size_t at = 0; (at = text.find("data: {", at)) != std::string_view::npos; ++at)
        ++events;
    }
  }
  return events;
}

/// The process of the clients: for every port that it is told, reads streams and reports events.
[[noreturn]] void run_clients(int from_parent, int to_parent, const Setting& s) {
  std::uint16_t port = 0;
  while (::read(from_parent, &port, sizeof port) == sizeof port) {
    const long events = read_streams(port, s);
    if (::write(to_parent, &events, sizeof events) != sizeof events) break;
  }
  std::_Exit(0);
}

// --- The server ---

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double system_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_stime.tv_usec);
}

/// Nanoseconds on a processor of every thread so far, by its id.
std::map<std::string, double> thread_nanoseconds() {
  std::map<std::string, double> threads;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "schedstat");
    double ns = 0;
    if (file >> ns) threads[task.path().filename().string()] = ns;
  }
  return threads;
}

void measure(const Setting& s, std::uint16_t port, int to_clients, int from_clients) {
  const auto begin = Clock::now();
  const double cpu = cpu_seconds();
  const double system = system_seconds();
  const auto threads = thread_nanoseconds();
  long events = 0;
  if (::write(to_clients, &port, sizeof port) != sizeof port ||
      ::read(from_clients, &events, sizeof events) != sizeof events)
    std::abort();
  const std::chrono::duration<double> elapsed = Clock::now() - begin;
  const double tokens = static_cast<double>(s.streams) * s.tokens;
  std::string by_thread;
  for (const auto& [id, ns] : thread_nanoseconds()) {
    const auto before = threads.find(id);
    const double spent = ns - (before == threads.end() ? 0 : before->second);
    if (spent / tokens > 50) by_thread += fmt::format(" {:.2f}", spent / tokens / 1000);
  }
  fmt::print(
      "{} streams: {:.0f} tokens, {} events in {:.2f} s; {:.2f} us of processor time per token, "
      "{:.2f} "
      "of them in the kernel; threads:{}\n",
      s.streams, tokens, events, elapsed.count(), 1e6 * (cpu_seconds() - cpu) / tokens,
      1e6 * (system_seconds() - system) / tokens, by_thread);
  std::fflush(stdout);
}

/// A server of `max_rows` answers at once that computes nothing.
class HollowServer {
 public:
  HollowServer(const Setting& s, int max_rows, std::uint16_t port)
      : generator_(make_generator(s, max_rows)), server_(*generator_, options(port)) {
    server_.start();
  }
  std::uint16_t port() const { return server_.port(); }

 private:
  static std::unique_ptr<LocalGenerator> make_generator(const Setting& s, int max_rows) {
    auto tokenizer = load_tokenizer(s.model);
    const int vocab_size = tokenizer->vocab_size();
    const std::chrono::microseconds delay(static_cast<std::int64_t>(1000 * s.step_ms));
    return std::make_unique<LocalGenerator>(
        "bench", std::make_unique<DelayExecutor>(max_rows, vocab_size, delay), std::move(tokenizer),
        SchedulerConfig{.prefix_cache = s.prefix_cache});
  }
  static ServerOptions options(std::uint16_t port) {
    ServerOptions options;
    options.port = port;
    return options;
  }

  std::unique_ptr<LocalGenerator> generator_;
  Server server_;
};

int serve(const Setting& s, std::uint16_t port) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // for all threads to come
  log::set_level(log::Level::kWarning);
  mallopt(M_ARENA_MAX, 1);  // as minisgl serve does
  const HollowServer server(s, /*max_rows=*/1024, port);
  int signal = 0;
  sigwait(&signals, &signal);
  return 0;
}

int run(const Setting& s) {
  std::array<int, 2> down{}, up{};
  if (::pipe(down.data()) != 0 || ::pipe(up.data()) != 0) return 1;
  const pid_t clients = ::fork();  // before there are threads
  if (clients == 0) {
    ::close(down[1]);
    run_clients(down[0], up[1], s);
  }
  ::close(down[0]);
  log::set_level(log::Level::kWarning);
  const HollowServer server(s, s.streams, /*port=*/0);
  for (int i = 0; i < s.rounds; ++i) measure(s, server.port(), down[1], up[0]);
  ::close(down[1]);
  ::waitpid(clients, nullptr, 0);
  return 0;
}

}  // namespace
}  // namespace minisgl

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: server_bench MODEL [STREAMS [TOKENS [STEP_MS [ROUNDS]]]]\n", stderr);
    return 2;
  }
  minisgl::Setting setting;
  setting.model = argv[1];
  if (argc > 3 && std::string_view(argv[2]) == "serve") {
    if (argc > 4) setting.step_ms = std::atof(argv[4]);
    if (argc > 5) setting.prefix_cache = argv[5];
    return minisgl::serve(setting, static_cast<std::uint16_t>(std::atoi(argv[3])));
  }
  if (argc > 2) setting.streams = std::atoi(argv[2]);
  if (argc > 3) setting.tokens = std::atoi(argv[3]);
  if (argc > 4) setting.step_ms = std::atof(argv[4]);
  if (argc > 5) setting.rounds = std::atoi(argv[5]);
  return minisgl::run(setting);
}
