#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace minisgl {
namespace {

constexpr std::uint64_t kPartBits = 20;
constexpr std::uint64_t kPartMask = (1U << kPartBits) - 1;
constexpr std::int64_t kMaxPartsAtOnce = kPartMask;
constexpr int kSpins = 2000;  // about 50 us of pauses on a 2.6 GHz EPYC

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

std::uint64_t claimed(std::uint64_t state) { return state & kPartMask; }
std::uint64_t parts(std::uint64_t state) { return (state >> kPartBits) & kPartMask; }
bool has_work(std::uint64_t state) { return claimed(state) < parts(state); }

/// cpu.max of cgroup v2 or cpu.cfs_* of v1, in processors; 0 when there is no limit.
double cgroup_cpu_limit() {
  {
    std::ifstream file("/sys/fs/cgroup/cpu.max");
    std::string quota;
    double period = 0;
    if (file >> quota >> period && quota != "max" && period > 0) return std::stod(quota) / period;
  }
  std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  if (quota_file >> quota && period_file >> period && quota > 0 && period > 0)
    return quota / period;
  return 0;
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  check(num_threads >= 1, "a thread pool needs at least one thread, not ", num_threads);
  helpers_.reserve(num_threads - 1);
  for (int i = 1; i < num_threads; ++i) helpers_.emplace_back([this] { helper_main(); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  wake_.fetch_add(1);
  wake_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void ThreadPool::run(std::int64_t num_parts, Call call, const void* body) {
  for (std::int64_t base = 0; base < num_parts; base += kMaxPartsAtOnce)
    run_some(base, std::min(num_parts - base, kMaxPartsAtOnce), call, body);
}

void ThreadPool::run_some(std::int64_t base, std::int64_t num_parts, Call call, const void* body) {
  call_ = call;
  body_ = body;
  base_ = base;
  done_.store(0, std::memory_order_relaxed);
  const std::uint64_t loops = (state_.load(std::memory_order_relaxed) >> (2 * kPartBits)) + 1;
  // Sequentially consistent: either a helper that is about to sleep sees this loop, or we see it
  // counted among the sleepers.
  state_.store((loops << (2 * kPartBits)) | (static_cast<std::uint64_t>(num_parts) << kPartBits));
  if (sleepers_.load() > 0) {
    wake_.fetch_add(1);
    wake_.notify_all();
  }
  while (claim_and_run()) {
  }
  for (int spins = 0; done_.load(std::memory_order_acquire) != num_parts; ++spins) {
    if (spins < kSpins) {
      pause();
    } else {
      std::this_thread::yield();  // a helper was put aside in the middle of its part
    }
  }
}

bool ThreadPool::claim_and_run() {
  std::uint64_t state = state_.load(std::memory_order_acquire);
  do {
    if (!has_work(state)) return false;
  } while (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel));
  call_(body_, base_ + static_cast<std::int64_t>(claimed(state)));
  done_.fetch_add(1, std::memory_order_release);
  return true;
}

void ThreadPool::helper_main() {
  while (!stopping_.load()) {
    if (claim_and_run()) continue;
    bool found = false;
    for (int spins = 0; spins < kSpins && !found; ++spins) {
      pause();
      found = has_work(state_.load(std::memory_order_acquire));
    }
    if (found) continue;
    sleepers_.fetch_add(1);
    const std::uint32_t seen = wake_.load();
    if (!has_work(state_.load()) && !stopping_.load()) wake_.wait(seen);
    sleepers_.fetch_sub(1);
  }
}

int available_processors() {
  int count = 1;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) count = std::max(1, CPU_COUNT(&set));
  const double limit = cgroup_cpu_limit();
  if (limit > 0) count = std::min(count, std::max(1, static_cast<int>(limit + 0.999)));
  return count;
}

}  // namespace minisgl
