// An ordered queue of work on a device, and marks in it.

#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "base/thread_pool.h"
#include "tensor/device.h"

namespace minisgl {

/// A mark in a stream. Made by Stream::make_event(), set by Stream::record(), may be recorded again
/// after it was reached.
class Event {
 public:
  virtual ~Event() = default;
  /// Blocks until the stream has reached the last record(); returns at once when never recorded.
  /// Rethrows what a task before the mark threw.
  virtual void synchronize() = 0;
  virtual bool reached() = 0;
};

/// Work enqueued on a stream runs in order, while the caller goes on. Any thread may enqueue.
///
/// When a task throws, the tasks after it are dropped (events are still reached) and the exception
/// is rethrown by synchronize() and Event::synchronize(), from then on always: an engine fault.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual Device device() const = 0;
  /// A dry stream drops all work: with a counting arena it tells how much scratch a step needs.
  virtual bool dry() const { return false; }

  /// Enqueues a whole step. On a CPU `step` becomes one task of the executor thread; on a GPU it
  /// runs at once on the calling thread and what it enqueues is the work.
  virtual void submit(std::function<void()> step) = 0;
  /// dst and src must stay valid until the copy was reached. Each may be memory of the host or of
  /// the stream's device.
  virtual void copy(void* dst, const void* src, std::size_t bytes) = 0;
  /// The same for the rows of a matrix, which lie stride_bytes apart.
  struct Rows {
    std::byte* data;
    std::size_t stride_bytes;
  };
  struct ConstRows {
    const std::byte* data;
    std::size_t stride_bytes;
  };
  virtual void copy_rows(Rows dst, ConstRows src, std::size_t row_bytes, std::size_t num_rows) {
    for (std::size_t i = 0; i < num_rows; ++i)
      copy(dst.data + i * dst.stride_bytes, src.data + i * src.stride_bytes, row_bytes);
  }
  virtual std::unique_ptr<Event> make_event() = 0;
  virtual void record(Event& event) = 0;
  /// Work enqueued from now on starts after `event` was reached.
  virtual void wait(Event& event) = 0;
  /// Blocks until all is done.
  virtual void synchronize() = 0;
};

/// A CPU as a device: one executor thread runs the tasks and shares loops with the compute pool,
/// of which it is the first thread.
class CpuStream final : public Stream {
 public:
  explicit CpuStream(int num_threads);
  /// A stream that drops all work, and stands for one of `num_threads` threads: the scratch memory
  /// that an op asks for may depend on them.
  static std::unique_ptr<CpuStream> make_dry(int num_threads = 1);
  ~CpuStream() override;

  Device device() const override { return kCpu; }
  bool dry() const override { return dry_; }
  int num_threads() const;
  void submit(std::function<void()> step) override;
  void copy(void* dst, const void* src, std::size_t bytes) override;
  std::unique_ptr<Event> make_event() override;
  void record(Event& event) override;
  void wait(Event& event) override;
  void synchronize() override;

  /// How a kernel starts: body(ThreadPool&) runs at once when the caller is a task of this stream
  /// (an op inside a step), else it is enqueued as a task of its own. Captures are by value.
  template <class Body>
  void run(Body body) {
    if (dry_) return;
    if (on_executor()) {
      body(*pool_);
    } else {
      submit([this, body = std::move(body)]() mutable { body(*pool_); });
    }
  }

 private:
  struct Dry {
    int num_threads;
  };
  explicit CpuStream(Dry);
  bool on_executor() const;

  struct Executor;
  bool dry_ = false;
  int dry_threads_ = 0;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<ThreadPool> pool_;
};

/// `stream` as a CPU stream; throws Error if it is one of another device.
CpuStream& as_cpu(Stream& stream);

}  // namespace minisgl
