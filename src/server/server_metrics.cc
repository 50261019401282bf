#include "server/server_metrics.h"

#include <algorithm>
#include <vector>

#include "metrics/exposition.h"
#include "server/process_stats.h"

namespace minisgl {
namespace {

using metrics::Exposition;

std::vector<double> first_token_bounds() {
  return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
          1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
}

std::vector<double> token_bounds() {
  return {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
          0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
}

std::vector<double> request_bounds() {
  return {0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
          30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
}

double seconds(RequestTimer::Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

double as_double(std::int64_t value) { return static_cast<double>(value); }

void write_scheduler(Exposition& out, const SchedulerStats& s) {
  out.gauge("num_requests_running", "Requests that hold memory of the KV cache.",
            as_double(s.running));
  out.gauge("num_requests_waiting", "Requests that wait to be admitted.", as_double(s.waiting));
  // Cached prefixes that no request uses can be had at once: they count as free, as in vLLM.
  const double used =
      s.total_pages == 0
          ? 0
          : as_double(s.total_pages - s.free_pages - (s.cached_pages - s.locked_pages)) /
                as_double(s.total_pages);
  out.gauge("kv_cache_usage_perc", "Share of the KV cache that requests hold, 0 to 1.", used);
  out.gauge("gpu_cache_usage_perc", "The same under its former name.", used);
  out.counter("prompt_tokens_total", "Prompt tokens of admitted requests, cached ones included.",
              as_double(s.prompt_tokens));
  out.counter("generation_tokens_total", "Tokens that were generated.",
              as_double(s.generated_tokens));
  out.counter("prefix_cache_queries_total",
              "Prompt tokens that were looked up in the prefix cache.", as_double(s.prompt_tokens));
  out.counter("prefix_cache_hits_total", "Prompt tokens that were found there.",
              as_double(s.cached_prompt_tokens));
  // A request is admitted only when its whole answer fits: none is ever put back.
  out.counter("num_preemptions_total", "Requests that lost their memory and were computed again.",
              0);
  out.counter("engine_steps_total", "Forward passes.", as_double(s.steps));
}

void write_engine(Exposition& out, const EngineStats& s) {
  out.counter("estimated_flops_per_gpu_total",
              "Floating-point operations of all steps, estimated from the model's shape.",
              s.work.flops);
  out.counter("estimated_read_bytes_per_gpu_total",
              "Bytes of weights, keys and values read by all steps, estimated likewise.",
              s.work.read_bytes);
  out.counter("estimated_write_bytes_per_gpu_total", "Bytes of keys and values written.",
              s.work.write_bytes);
  out.counter("engine_busy_seconds_total", "Time in which at least one step was in flight.",
              s.busy_seconds);
  out.gauge("achieved_flops_per_second", "Estimated operations by busy second, lately.",
            s.flops_per_second);
  out.gauge("achieved_bytes_per_second", "Estimated bytes by busy second, lately.",
            s.bytes_per_second);
  out.counter("graph_replays_total", "Decode steps that replayed a graph.",
              as_double(s.graphs.replays));
  out.counter("graph_rows_total", "Rows of requests in replays.", as_double(s.graphs.real_rows));
  out.counter("graph_padding_rows_total", "Rows in replays that only fill up the graph.",
              as_double(s.graphs.padding_rows));
  out.gauge("graph_padding_waste", "Padding rows for each row of a request, since the start.",
            s.graphs.padding_waste());
}

void write_process(Exposition& out) {
  const ProcessStats s = process_stats();
  out.gauge("process_resident_memory_bytes", "Memory of the process that is in RAM.",
            s.resident_bytes);
  out.gauge("process_virtual_memory_bytes", "Addresses that the process has reserved.",
            s.virtual_bytes);
  out.counter("process_cpu_seconds_total", "Processor time of the process.", s.cpu_seconds);
  out.gauge("process_start_time_seconds", "When the process began, since 1970.", s.start_time);
  out.gauge("process_open_fds", "Open file descriptors.", s.open_fds);
  out.gauge("process_max_fds", "Most file descriptors that may be open.", s.max_fds);
}

}  // namespace

ServerMetrics::ServerMetrics(int max_seq_len)
    : time_to_first_token_(first_token_bounds()),
      inter_token_latency_(token_bounds()),
      time_per_output_token_(token_bounds()),
      e2e_latency_(request_bounds()),
      queue_time_(request_bounds()),
      prefill_time_(request_bounds()),
      decode_time_(request_bounds()),
      inference_time_(request_bounds()),
      prompt_tokens_(metrics::bounds_1_2_5(std::max(1, max_seq_len))),
      generation_tokens_(metrics::bounds_1_2_5(std::max(1, max_seq_len))) {}

std::string ServerMetrics::text(const std::string& prefix, std::string_view model_name,
                                const Generator& generator) const {
  Exposition out(prefix, {{"model_name", std::string(model_name)}, {"engine", "0"}});
  write_scheduler(out, generator.stats());
  constexpr std::array<std::string_view, kNumReasons> kReasons{"stop", "length", "abort", "error"};
  for (std::size_t i = 0; i < kNumReasons; ++i)
    out.counter("request_success_total", "Answers that ended, by their finish reason.",
                static_cast<double>(ended_[i].value()),
                {{"finished_reason", std::string(kReasons[i])}});
  out.histogram("time_to_first_token_seconds", "From a request's arrival to its first token.",
                time_to_first_token_);
  out.histogram("inter_token_latency_seconds", "From a token to the next one of the same answer.",
                inter_token_latency_);
  out.histogram("time_per_output_token_seconds", "The same under its former name.",
                inter_token_latency_);
  out.histogram("request_time_per_output_token_seconds",
                "Mean time from a token to the next, of each answer.", time_per_output_token_);
  out.histogram("e2e_request_latency_seconds", "From a request's arrival to its answer's end.",
                e2e_latency_);
  out.histogram("request_queue_time_seconds",
                "From the scheduler's receipt to the first forward pass.", queue_time_);
  out.histogram("request_prefill_time_seconds", "From there to the first token.", prefill_time_);
  out.histogram("request_inference_time_seconds", "From the first forward pass to the last token.",
                inference_time_);
  out.histogram("request_decode_time_seconds", "From an answer's first token to its last.",
                decode_time_);
  out.histogram("request_prompt_tokens", "Tokens of prompts.", prompt_tokens_);
  out.histogram("request_generation_tokens", "Tokens of answers.", generation_tokens_);
  write_engine(out, generator.engine_stats());
  Exposition process("", {});
  write_process(process);
  return out.text() + process.text();
}

void RequestTimer::observe(const GenerateUpdate& update, Clock::time_point now) {
  if (const int num_new = static_cast<int>(update.tokens.size()); num_new > 0) {
    if (num_tokens_ == 0) {
      metrics_->time_to_first_token_.observe(seconds(now - arrival_));
      first_ = now;
    } else {
      metrics_->inter_token_latency_.observe(seconds(now - last_) / num_new,
                                             static_cast<std::uint64_t>(num_new));
    }
    last_ = now;
    num_tokens_ += num_new;
  }
  if (update.finish != FinishReason::kNone) observe_end(update, now);
}

void RequestTimer::observe_end(const GenerateUpdate& update, Clock::time_point now) {
  metrics_->ended_[static_cast<std::size_t>(update.finish) - 1].add();
  metrics_->e2e_latency_.observe(seconds(now - arrival_));
  metrics_->prompt_tokens_.observe(update.prompt_tokens);
  metrics_->generation_tokens_.observe(update.completion_tokens);
  if (num_tokens_ > 1)
    metrics_->time_per_output_token_.observe(seconds(last_ - first_) / (num_tokens_ - 1));
  constexpr RequestTimes::Time kNever{};
  const RequestTimes& t = update.times;
  if (t.scheduled == kNever) return;  // it never left the queue
  metrics_->queue_time_.observe(seconds(t.scheduled - t.arrival));
  if (t.first_token == kNever) return;
  metrics_->prefill_time_.observe(seconds(t.first_token - t.scheduled));
  metrics_->decode_time_.observe(seconds(t.last_token - t.first_token));
  metrics_->inference_time_.observe(seconds(t.last_token - t.scheduled));
}

}  // namespace minisgl
