#include "tensor/stream.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "base/check.h"

namespace minisgl {
namespace {

/// What the stream and its events share, so that an event may outlive the stream.
struct Fault {
  std::mutex mutex;
  std::exception_ptr first;

  void set(std::exception_ptr what) {
    const std::lock_guard lock(mutex);
    if (first == nullptr) first = std::move(what);
  }
  void rethrow() {
    const std::lock_guard lock(mutex);
    if (first != nullptr) std::rethrow_exception(first);
  }
};

class CpuEvent final : public Event {
 public:
  explicit CpuEvent(std::shared_ptr<Fault> fault) : state_(std::make_shared<State>()) {
    state_->fault = std::move(fault);
  }

  void synchronize() override {
    wait();
    state_->fault->rethrow();
  }

  bool reached() override {
    const std::lock_guard lock(state_->mutex);
    return state_->done == state_->recorded;
  }

  void wait() {
    std::unique_lock lock(state_->mutex);
    const std::uint64_t target = state_->recorded;
    state_->changed.wait(lock, [&] { return state_->done >= target; });
  }

  /// Returns the task that reaches this record.
  std::function<void()> mark() {
    const std::lock_guard lock(state_->mutex);
    return [state = state_, target = ++state_->recorded] {
      {
        const std::lock_guard inner(state->mutex);
        state->done = target;
      }
      state->changed.notify_all();
    };
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t recorded = 0;
    std::uint64_t done = 0;
    std::shared_ptr<Fault> fault;  // shared: the stream may be gone when the event is asked
  };
  std::shared_ptr<State> state_;  // shared with the task that will set it
};

}  // namespace

struct CpuStream::Executor {
  struct Task {
    std::function<void()> run;
    bool always = false;  // marks are reached even after a fault
  };

  Executor() : thread([this] { main(); }) {}

  ~Executor() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    wake.notify_all();
    thread.join();
  }

  void push(Task task) {
    {
      const std::lock_guard lock(mutex);
      tasks.push_back(std::move(task));
    }
    wake.notify_one();
  }

  void main() {
    bool failed = false;
    std::unique_lock lock(mutex);
    while (true) {
      wake.wait(lock, [&] { return stopping || !tasks.empty(); });
      if (tasks.empty()) return;  // stopping, and all that was enqueued is done
      Task task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      if (task.always || !failed) {
        try {
          task.run();
        } catch (...) {
          failed = true;
          fault->set(std::current_exception());
        }
      }
      task.run = nullptr;
      lock.lock();
    }
  }

  std::shared_ptr<Fault> fault = std::make_shared<Fault>();  // shared with events, see CpuEvent
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<Task> tasks;
  bool stopping = false;
  std::thread thread;  // last: starts when all else is there
};

CpuStream::CpuStream(int num_threads)
    : executor_(std::make_unique<Executor>()), pool_(std::make_unique<ThreadPool>(num_threads)) {}

CpuStream::CpuStream(Dry dry) : dry_(true), dry_threads_(dry.num_threads) {}

std::unique_ptr<CpuStream> CpuStream::make_dry(int num_threads) {
  return std::unique_ptr<CpuStream>(new CpuStream(Dry{num_threads}));
}

CpuStream::~CpuStream() {
  executor_.reset();  // runs what is left, which needs the pool
}

int CpuStream::num_threads() const { return dry_ ? dry_threads_ : pool_->num_threads(); }

bool CpuStream::on_executor() const {
  return std::this_thread::get_id() == executor_->thread.get_id();
}

void CpuStream::submit(std::function<void()> step) {
  if (!dry_) executor_->push({std::move(step)});
}

void CpuStream::copy(void* dst, const void* src, std::size_t bytes) {
  run([=](ThreadPool&) { std::memcpy(dst, src, bytes); });
}

std::unique_ptr<Event> CpuStream::make_event() {
  return std::make_unique<CpuEvent>(dry_ ? std::make_shared<Fault>() : executor_->fault);
}

void CpuStream::record(Event& event) {
  if (!dry_) executor_->push({static_cast<CpuEvent&>(event).mark(), /*always=*/true});
}

void CpuStream::wait(Event& event) {
  if (dry_) return;
  auto& cpu_event = static_cast<CpuEvent&>(event);
  if (cpu_event.reached()) return;
  submit([&cpu_event] { cpu_event.wait(); });
}

void CpuStream::synchronize() {
  if (dry_) return;
  const std::unique_ptr<Event> event = make_event();
  record(*event);
  event->synchronize();
}

CpuStream& as_cpu(Stream& stream) {
  check(stream.device().is_cpu(), "this op has no kernel for device ", to_string(stream.device()));
  return static_cast<CpuStream&>(stream);
}

}  // namespace minisgl
