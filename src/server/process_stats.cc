#include "server/process_stats.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace minisgl {
namespace {

/// Fields 3 and up of /proc/self/stat: those before hold the name, in which there may be spaces.
std::vector<double> stat_fields() {
  std::ifstream file("/proc/self/stat");
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::size_t end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos) return {};
  std::istringstream rest(text.substr(end_of_name + 1));
  std::string state;
  rest >> state;
  std::vector<double> fields{0};
  for (double value = 0; rest >> value;) fields.push_back(value);
  return fields;
}

double boot_time() {
  std::ifstream file("/proc/stat");
  std::string word;
  double value = 0;
  while (file >> word)
    if (word == "btime" && file >> value) return value;
  return 0;
}

}  // namespace

ProcessStats process_stats() {
  ProcessStats stats;
  const std::vector<double> fields = stat_fields();  // man 5 proc: field n is fields[n - 3]
  if (fields.size() > 24 - 3) {
    const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
    stats.cpu_seconds = (fields[14 - 3] + fields[15 - 3]) / ticks;
    stats.start_time = boot_time() + fields[22 - 3] / ticks;
    stats.virtual_bytes = fields[23 - 3];
    stats.resident_bytes = fields[24 - 3] * static_cast<double>(::sysconf(_SC_PAGESIZE));
  }
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end;
       it.increment(error))
    ++stats.open_fds;
  if (stats.open_fds > 0) --stats.open_fds;  // the one that lists them
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) stats.max_fds = static_cast<double>(limit.rlim_cur);
  return stats;
}

}  // namespace minisgl
