// A progress bar on a terminal.

#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace minisgl {

/// "Loading weights  [=======>      ]  54 %  52 MB of 98 MB", redrawn in place on standard error
/// and wiped at the end; silent when standard error is not a terminal. Not thread-safe.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Both redraw at most every 50 ms.
  void update(std::int64_t done_bytes, std::int64_t total_bytes);
  /// With `detail` in place of the bytes.
  void show(std::int64_t done, std::int64_t total, std::string_view detail);

 private:
  bool is_due(std::int64_t total);
  void draw(std::int64_t done, std::int64_t total, std::string_view detail);

  std::string label_;
  bool visible_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace minisgl
