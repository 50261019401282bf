// bench: how fast this machine is with a model.

#include <time.h>  // NOLINT: clock_gettime() is POSIX
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "bench.h"

namespace minisgl::app {

double seconds_since_start() {
  std::ifstream file("/proc/self/stat");
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  text.erase(0, text.rfind(')') + 1);  // the program's name may hold anything
  std::istringstream fields(text);
  constexpr int kStartTime = 22, kFirst = 3;  // man 5 proc: field 3 follows the name
  std::string field;
  for (int i = kFirst; i <= kStartTime; ++i)
    if (!(fields >> field)) return 0;
  timespec now{};
  if (::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) -
         std::stod(field) / ticks;
}

Command add_bench(CLI::App& app) {
  app.require_subcommand(1);
  CLI::App& offline =
      *app.add_subcommand("offline", "Random prompts, all at once, without a server");
  CLI::App& graphs =
      *app.add_subcommand("graphs", "Decode steps by the size of the graph that replays them");
  const Command run_offline = add_bench_offline(offline);
  const Command run_graphs = add_bench_graphs(graphs);
  CLI::App& sums = *app.add_subcommand("sums", "What ranks take to add up, by the size of the sum");
  const Command run_sums = add_bench_sums(sums);
  return [&graphs, &sums, run_offline, run_graphs, run_sums] {
    if (sums.parsed()) return run_sums();
    return graphs.parsed() ? run_graphs() : run_offline();
  };
}

}  // namespace minisgl::app
