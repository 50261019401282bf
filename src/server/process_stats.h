// What the system says about this process, as Prometheus' libraries report it.

#pragma once

namespace minisgl {

struct ProcessStats {
  double resident_bytes = 0;
  double virtual_bytes = 0;
  double cpu_seconds = 0;  ///< user and system, all threads
  double start_time = 0;   ///< seconds since 1970
  double open_fds = 0;
  double max_fds = 0;
};

/// Reads /proc; what cannot be read stays 0.
ProcessStats process_stats();

}  // namespace minisgl
