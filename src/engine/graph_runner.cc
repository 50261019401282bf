#include "engine/graph_runner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/progress.h"
#include "engine/emulated_graph.h"
#include "engine/forward_scope.h"
#include "engine/memory_plan.h"

namespace minisgl {
namespace {

constexpr BatchRow padding_row(RowId dummy_row) { return {dummy_row, 0, 1}; }

double gib(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

/// The part of `dst` that a copy of `src` writes.
TensorView written_part(TensorView dst, const TensorView& src) {
  if (src.rank() == 2) dst = dst.columns(0, src.dim(1));
  return dst.slice(0, src.dim(0));
}

/// Of this thread, whatever it enqueues.
template <class F>
double seconds_of(F&& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TokenLoc dummy_loc(const PageTable& table) { return table.row(table.dummy_row()).front(); }

}  // namespace

void GraphWriter::copy(std::string_view name, TensorView dst, TensorView src, Stream& stream) {
  check(src.rank() == dst.rank() && (src.rank() == 1 || src.rank() == 2) &&
            src.dtype == dst.dtype && src.stride(-1) == 1 && dst.stride(-1) == 1,
        "graph input ", name,
        " and what is copied there must be alike: one or two dimensions, one "
        "type, contiguous in the last dimension");
  if (name == left_out_) return;
  dst = written_part(dst, src);
  if (checker_ != nullptr) checker_->written(name, dst);
  if (src.numel() == 0) return;
  if (src.is_contiguous() && dst.is_contiguous()) {
    stream.copy(dst.data, src.data, static_cast<std::size_t>(src.bytes()));
    return;
  }
  stream.copy_rows({dst.data, static_cast<std::size_t>(bytes_of(dst.dtype, dst.stride(0)))},
                   {src.data, static_cast<std::size_t>(bytes_of(src.dtype, src.stride(0)))},
                   static_cast<std::size_t>(bytes_of(src.dtype, src.dim(1))),
                   static_cast<std::size_t>(src.dim(0)));
}

void GraphWriter::fill(std::string_view name, TensorView dst,
                       const std::function<void(TensorView)>& write) {
  if (name == left_out_) return;
  if (checker_ != nullptr) checker_->written(name, dst);
  write(dst);
}

std::unique_ptr<Graph> emulate_graph(GraphRecording recording) {
  return std::make_unique<EmulatedGraph>(recording.context, recording.inputs, recording.metadata,
                                         std::move(recording.forward));
}

bool wants_graphs(std::span<const std::int32_t> batch_sizes, const AttentionBackend& attention,
                  Device device) {
  if (batch_sizes.empty()) {
    log::debug("Graphs are off");
    return false;
  }
  if (!attention.supports_graphs()) {
    log::info("Graphs are off: the attention backend {} cannot be captured on {}", attention.name(),
              to_string(device));
    return false;
  }
  return true;
}

GraphRunner::GraphRunner(GraphRunnerConfig config, ForwardContext& context,
                         const PageTable& page_table, TensorView logits, Forward forward)
    : config_(std::move(config)),
      context_(context),
      forward_(std::move(forward)),
      buffer_(config_.batch_sizes.empty() ? 0 : config_.batch_sizes.back(), dummy_loc(page_table),
              logits, context.stream) {
  const std::vector<std::int32_t>& sizes = config_.batch_sizes;
  check(!sizes.empty() && sizes.front() > 0 && std::is_sorted(sizes.begin(), sizes.end()),
        "graphs need at least one batch size, in ascending order");
  check(context_.attention.supports_graphs(), "the attention backend ", context_.attention.name(),
        " cannot be captured in a graph");
  context_.attention.init_capture_graph(sizes, config_.max_seq_len_tokens);
  context_.stream.synchronize();
  const auto begin = std::chrono::steady_clock::now();
  if (config_.check) checker_ = std::make_unique<GraphChecker>();
  writer_.watch(checker_.get());
  log::info("Capturing graphs of sizes [{}]; {:.2f} GiB of memory free", fmt::join(sizes, ", "),
            gib(available_memory_bytes(context_.stream.device())));
  ProgressBar bar("Capturing graphs");
  std::int64_t done = 0;
  for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
    const auto total = static_cast<std::int64_t>(sizes.size());
    bar.show(done, total,
             fmt::format("size {}, {:.2f} GiB free", *size,
                         gib(available_memory_bytes(context_.stream.device()))));
    capture(*size, page_table);
    ++done;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  log::info(
      "Captured {} {} in {:.2f} s, {:.1f} MiB of scratch memory shared by all; {:.2f} GiB of "
      "memory free",
      sizes.size(), sizes.size() == 1 ? "graph" : "graphs", seconds.count(),
      static_cast<double>(pool_bytes_) / (1 << 20),
      gib(available_memory_bytes(context_.stream.device())));
}

/// A step of padding alone, run once to do what is done only the first time, and then recorded.
void GraphRunner::capture(std::int32_t num_rows, const PageTable& page_table) {
  Stream& stream = context_.stream;
  AttentionBackend& attention = context_.attention;
  const AttentionMetadata& metadata = attention.prepare_for_capture(num_rows, stream);
  const ForwardInputs inputs = buffer_.set_batch(num_rows);
  const TensorView logits = buffer_.logits.slice(0, num_rows);

  // The way of every replay, so the captured metadata is that of padding rows.
  Batch batch;
  batch.page_table = &page_table;
  batch.rows.assign(static_cast<std::size_t>(num_rows), padding_row(page_table.dummy_row()));
  batch.num_rows = batch.num_decode = num_rows;
  const std::unique_ptr<AttentionMetadata> live = attention.prepare_metadata(batch, stream);
  attention.prepare_for_replay(num_rows, *live, writer_, stream);
  stream.submit([&] {
    const ForwardScope scope(context_, inputs, metadata);
    forward_(context_, logits);
  });
  stream.synchronize();

  const std::int64_t peak_bytes = context_.scratch.peak_bytes();
  if (graphs_.empty()) pool_bytes_ = peak_bytes;
  check(peak_bytes == pool_bytes_, "the graph of ", num_rows, " rows needs ", peak_bytes,
        " bytes of scratch memory, the larger ones before it ", pool_bytes_);
  graphs_[num_rows] = config_.record(
      {.context = context_, .inputs = inputs, .metadata = metadata, .forward = [this, logits] {
         forward_(context_, logits);
       }});
  if (checker_ != nullptr)
    checker_->add(num_rows, buffer_.buffers(num_rows), attention.captured_buffers(num_rows));
  if (num_rows == batch_sizes().front() && !stream.device().is_cpu()) {
    const double eager = seconds_of([&] {
      const ForwardScope scope(context_, inputs, metadata);
      forward_(context_, logits);
    });
    graphs_[num_rows]->replay(stream);  // the first one takes longer
    stream.synchronize();
    const double replayed = seconds_of([&] { graphs_[num_rows]->replay(stream); });
    stream.synchronize();
    log::info("Launching a step of {} {} takes {:.0f} us without a graph, {:.0f} us with one",
              num_rows, num_rows == 1 ? "row" : "rows", 1e6 * eager, 1e6 * replayed);
  }
}

void GraphRunner::pad_batch(Batch& batch) {
  if (!can_use(batch)) {
    eager_steps_.fetch_add(1, std::memory_order_relaxed);
    if (batch.is_decode()) eager_decode_steps_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  check(static_cast<std::int32_t>(batch.rows.size()) == batch.num_rows, "a step was padded twice");
  const auto size = *std::lower_bound(batch_sizes().begin(), batch_sizes().end(), batch.num_rows);
  const auto padded = static_cast<std::size_t>(size);
  batch.rows.resize(padded, padding_row(batch.page_table->dummy_row()));
  batch.token_ids.resize(padded, 0);
}

TensorView GraphRunner::replay(const Batch& batch,
                               const std::function<void(TensorView)>& write_input_ids) {
  const auto num_rows = static_cast<std::int32_t>(batch.rows.size());
  const auto graph = graphs_.find(num_rows);
  check(can_use(batch) && graph != graphs_.end() &&
            static_cast<std::int32_t>(batch.samples.size()) == batch.num_rows,
        "a step of ", batch.num_rows, " rows (", num_rows, " with padding), of which ",
        batch.num_decode, " decode and ", batch.samples.size(), " are sampled, has no graph");
  Stream& stream = context_.stream;
  observe(ReplayPoint::kBegin, batch);
  if (checker_ != nullptr) checker_->poison(num_rows, stream);
  buffer_.copy_from(batch.inputs, num_rows, writer_, stream);
  context_.attention.prepare_for_replay(num_rows, *batch.attention, writer_, stream);
  if (write_input_ids)
    writer_.fill("input_ids", buffer_.input_ids.view().slice(0, batch.num_decode), write_input_ids);
  if (checker_ != nullptr) checker_->verify(num_rows, stream);
  observe(ReplayPoint::kRefreshed, batch);
  graph->second->replay(stream);
  observe(ReplayPoint::kEnd, batch);
  replays_.fetch_add(1, std::memory_order_relaxed);
  real_rows_.fetch_add(batch.num_rows, std::memory_order_relaxed);
  padding_rows_.fetch_add(num_rows - batch.num_rows, std::memory_order_relaxed);
  return buffer_.logits.slice(0, batch.num_rows);
}

std::vector<CapturedBuffer> GraphRunner::captured_buffers(std::int32_t num_rows) const {
  std::vector<CapturedBuffer> buffers = buffer_.buffers(num_rows);
  for (CapturedBuffer& buffer : context_.attention.captured_buffers(num_rows))
    buffers.push_back(std::move(buffer));
  return buffers;
}

void GraphRunner::destroy() {
  if (graphs_.empty()) return;
  const GraphStats s = stats();
  log::debug(
      "graphs: {} replays of {} rows, {} rows of padding ({:.1f} %), {} steps without a graph, {} "
      "of them decoding",
      s.replays, s.real_rows, s.padding_rows, 100 * s.padding_waste(), s.eager_steps,
      s.eager_decode_steps);
  graphs_.clear();
}

GraphStats GraphRunner::stats() const {
  return {.replays = replays_.load(std::memory_order_relaxed),
          .eager_steps = eager_steps_.load(std::memory_order_relaxed),
          .eager_decode_steps = eager_decode_steps_.load(std::memory_order_relaxed),
          .real_rows = real_rows_.load(std::memory_order_relaxed),
          .padding_rows = padding_rows_.load(std::memory_order_relaxed)};
}

void GraphRunner::leave_out(std::string_view name) {
  std::string known;
  for (const CapturedBuffer& buffer : captured_buffers(batch_sizes().front())) {
    if (buffer.content == CapturedContent::kConstant) continue;
    if (buffer.name == name || name.empty()) {
      writer_.leave_out(std::string(name));
      return;
    }
    known += (known.empty() ? "" : ", ") + buffer.name;
  }
  throw Error("there is no refreshed graph input \"" + std::string(name) + "\"; there are " +
              known);
}

}  // namespace minisgl
