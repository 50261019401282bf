// What /metrics says: vLLM's names, so that its dashboards work with another prefix.

#pragma once

#include <array>
#include <chrono>
#include <string>
#include <string_view>

#include "llm/generator.h"
#include "metrics/metrics.h"

namespace minisgl {

/// Counts what requests go through. Thread-safe and, but for text(), without locks.
///
/// Source: vLLM v1/metrics/loggers.py (names, bounds, what is observed when).
class ServerMetrics {
 public:
  /// `max_seq_len` bounds the histograms of tokens.
  explicit ServerMetrics(int max_seq_len);

  /// Prometheus' text: what was observed here, and the state of `generator`. `prefix`: "minisgl:".
  std::string text(const std::string& prefix, std::string_view model_name,
                   const Generator& generator) const;

 private:
  friend class RequestTimer;
  static constexpr std::size_t kNumReasons = 4;  // FinishReason without kNone

  metrics::Histogram time_to_first_token_;
  metrics::Histogram inter_token_latency_;
  metrics::Histogram time_per_output_token_;  // mean of a request
  metrics::Histogram e2e_latency_;
  metrics::Histogram queue_time_;
  metrics::Histogram prefill_time_;
  metrics::Histogram decode_time_;
  metrics::Histogram inference_time_;
  metrics::Histogram prompt_tokens_;
  metrics::Histogram generation_tokens_;
  std::array<metrics::Counter, kNumReasons> ended_;
};

/// One answer's times, from the moment its request had come in. Cheap to copy. Not thread-safe.
class RequestTimer {
 public:
  using Clock = std::chrono::steady_clock;

  /// `metrics` must outlive the last update.
  RequestTimer(ServerMetrics& metrics, Clock::time_point arrival)
      : metrics_(&metrics), arrival_(arrival) {}

  /// Call it with every update, when it comes.
  void observe(const GenerateUpdate& update) { observe(update, Clock::now()); }
  void observe(const GenerateUpdate& update, Clock::time_point now);

 private:
  void observe_end(const GenerateUpdate& update, Clock::time_point now);

  ServerMetrics* metrics_;
  Clock::time_point arrival_;
  Clock::time_point first_{}, last_{};  // tokens
  int num_tokens_ = 0;
};

}  // namespace minisgl
