#include "comm/cuda/one_shot.h"

#include <cuda_bf16.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <string>

#include "base/math.h"
#include "tensor/cuda/error.h"

namespace minisgl::gpu {
namespace {

using cuda::check_cuda;

constexpr int kMaxBlocks = 32;
constexpr int kThreads = 512;
constexpr std::int64_t kBoxBytes = OneShot::kMaxBytes / kMaxBlocks;  // of a block, a rank, a turn
constexpr int kTurns = 2;

/// Memory that a rank gives to all: boxes [turn][from][block], then flags [from][block].
constexpr std::int64_t kFlagsAt = kTurns * OneShot::kMaxRanks * OneShot::kMaxBytes;
constexpr std::int64_t kSharedBytes =
    kFlagsAt + std::int64_t{OneShot::kMaxRanks} * kMaxBlocks * sizeof(std::uint32_t);

struct Peers {
  std::byte* memory[OneShot::kMaxRanks];
};

__device__ std::int64_t box_at(int turn, int from, int block) {
  return ((std::int64_t{turn} * OneShot::kMaxRanks + from) * kMaxBlocks + block) * kBoxBytes;
}

__device__ std::uint32_t* flag_at(std::byte* memory, int from, int block) {
  return reinterpret_cast<std::uint32_t*>(memory + kFlagsAt) + from * kMaxBlocks + block;
}

__device__ void store_released(std::uint32_t* flag, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

__device__ std::uint32_t load_acquired(const std::uint32_t* flag) {
  std::uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

__device__ void add(uint4 more, float (&sums)[4], float /*type*/) {
  sums[0] += __uint_as_float(more.x);
  sums[1] += __uint_as_float(more.y);
  sums[2] += __uint_as_float(more.z);
  sums[3] += __uint_as_float(more.w);
}

__device__ uint4 packed(const float (&sums)[4], float /*type*/) {
  return {__float_as_uint(sums[0]), __float_as_uint(sums[1]), __float_as_uint(sums[2]),
          __float_as_uint(sums[3])};
}

__device__ void add(uint4 more, float (&sums)[8], __nv_bfloat16 /*type*/) {
  const std::uint32_t words[4] = {more.x, more.y, more.z, more.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // a bf16 is the upper half of an f32
    sums[2 * i] += __uint_as_float(words[i] << 16);
    sums[2 * i + 1] += __uint_as_float(words[i] & 0xFFFF0000U);
  }
}

__device__ uint4 packed(const float (&sums)[8], __nv_bfloat16 /*type*/) {
  std::uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(sums[2 * i], sums[2 * i + 1]);
    words[i] = *reinterpret_cast<const std::uint32_t*>(&pair);
  }
  return {words[0], words[1], words[2], words[3]};
}

/// x: `count` vectors of 16 bytes, of which block b has those from b * per_block on.
template <class T>
__global__ void __launch_bounds__(kThreads)
    one_shot_kernel(uint4* x, int count, int per_block, Peers peers, int rank, int size,
                    std::uint32_t* turns, const volatile std::uint32_t* aborted) {
  const int block = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int begin = block * per_block;
  const int mine = min(per_block, count - begin);
  const std::uint32_t turn = turns[block] + 1;  // written by thread 0, below, behind a barrier
  const int side = static_cast<int>(turn % kTurns);

  for (int i = thread; i < mine; i += kThreads) {
    const uint4 value = x[begin + i];
    for (int step = 1; step < size; ++step) {  // each rank begins with another
      const int to = (rank + step) % size;
      reinterpret_cast<uint4*>(peers.memory[to] + box_at(side, rank, block))[i] = value;
    }
  }
  __syncthreads();
  if (thread < size && thread != rank) {
    __threadfence_system();
    store_released(flag_at(peers.memory[thread], rank, block), turn);
    const std::uint32_t* const flag = flag_at(peers.memory[rank], thread, block);
    // Turns are compared as differences: they may pass 2^32.
    while (static_cast<std::int32_t>(load_acquired(flag) - turn) < 0) {
      if (*aborted != 0) break;
    }
  }
  if (thread == 0) turns[block] = turn;
  __syncthreads();

  constexpr int kNumbers = 16 / sizeof(T);
  for (int i = thread; i < mine; i += kThreads) {
    float sums[kNumbers] = {};
    for (int from = 0; from < size; ++from) {
      const uint4* const box =
          reinterpret_cast<const uint4*>(peers.memory[rank] + box_at(side, from, block));
      add(from == rank ? x[begin + i] : __ldcv(box + i), sums, T{});
    }
    x[begin + i] = packed(sums, T{});
  }
}

/// What a rank tells the others about its memory.
struct Offer {
  cudaIpcMemHandle_t memory;
  std::uint64_t process;  // no process can open its own handle
  char host[64];
  char bus_id[32];
  std::int32_t usable;
};

/// A number drawn by this process: those of the kernel may be the same in two containers.
std::uint64_t number_of_process() {
  static const std::uint64_t number = [] {
    std::random_device random;
    return (std::uint64_t{random()} << 32) | random();
  }();
  return number;
}

Offer make_offer(Device device, std::byte* memory) {
  Offer offer{};
  offer.usable = 1;
  offer.process = number_of_process();
  if (::gethostname(offer.host, sizeof(offer.host) - 1) != 0) offer.usable = 0;
  if (cudaDeviceGetPCIBusId(offer.bus_id, sizeof(offer.bus_id), device.index) != cudaSuccess)
    offer.usable = 0;
  if (memory == nullptr || cudaIpcGetMemHandle(&offer.memory, memory) != cudaSuccess)
    offer.usable = 0;
  cudaGetLastError();
  return offer;
}

/// The memory of another rank, as this one sees it; null if it cannot.
std::byte* map(const Offer& theirs) {
  void* mapped = nullptr;
  const cudaError_t status =
      cudaIpcOpenMemHandle(&mapped, theirs.memory, cudaIpcMemLazyEnablePeerAccess);
  return status == cudaSuccess ? static_cast<std::byte*>(mapped) : nullptr;
}

std::vector<Offer> exchange_offers(HostGroup& host, const Offer& mine) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&mine);
  std::vector<Offer> offers;
  for (const Message& message : host.all_gather({bytes, bytes + sizeof(mine)})) {
    Offer offer{};
    if (message.size() == sizeof(offer)) std::memcpy(&offer, message.data(), sizeof(offer));
    offers.push_back(offer);
  }
  return offers;
}

/// Whether all ranks say yes.
bool all_agree(HostGroup& host, bool yes) {
  bool all = true;
  for (const Message& message : host.all_gather({yes ? std::byte{1} : std::byte{0}}))
    all &= message.size() == 1 && message[0] == std::byte{1};
  return all;
}

bool can_reach(const Offer& mine, const Offer& theirs) {
  if (theirs.usable == 0 || std::strcmp(mine.host, theirs.host) != 0) return false;
  if (theirs.process == mine.process) return false;
  int own = 0;
  int other = 0;
  int access = 0;
  // Not among the GPUs that this process may see (CUDA_VISIBLE_DEVICES): the mapping will tell.
  if (cudaDeviceGetByPCIBusId(&other, theirs.bus_id) != cudaSuccess) {
    cudaGetLastError();
    return true;
  }
  return cudaGetDevice(&own) == cudaSuccess &&
         (own == other ||
          (cudaDeviceCanAccessPeer(&access, own, other) == cudaSuccess && access == 1));
}

}  // namespace

std::unique_ptr<OneShot> OneShot::make(HostGroup& host, Device device) {
  const cuda::DeviceScope scope(device);
  std::unique_ptr<OneShot> self(new OneShot());
  self->device_ = device;
  self->rank_ = host.rank();
  self->size_ = host.size();
  self->all_.resize(static_cast<std::size_t>(self->size_));
  bool good = self->size_ <= kMaxRanks;
  void* memory = nullptr;
  good = good && cudaMalloc(&memory, kSharedBytes) == cudaSuccess &&
         cudaMemset(memory, 0, kSharedBytes) == cudaSuccess;
  self->own_ = static_cast<std::byte*>(memory);
  void* turns = nullptr;
  good = good && cudaMalloc(&turns, kMaxBlocks * sizeof(std::uint32_t)) == cudaSuccess &&
         cudaMemset(turns, 0, kMaxBlocks * sizeof(std::uint32_t)) == cudaSuccess;
  self->turns_ = static_cast<std::uint32_t*>(turns);
  void* aborted = nullptr;
  good = good && cudaHostAlloc(&aborted, sizeof(std::uint32_t), cudaHostAllocMapped) == cudaSuccess;
  self->aborted_ = static_cast<std::uint32_t*>(aborted);
  if (aborted != nullptr) *self->aborted_ = 0;
  good = good && cudaDeviceSynchronize() == cudaSuccess;

  const Offer mine = make_offer(device, self->own_);
  const std::vector<Offer> offers = exchange_offers(host, mine);
  good = good && mine.usable == 1;
  for (int other = 0; good && other < self->size_; ++other) {
    std::byte*& at = self->all_[static_cast<std::size_t>(other)];
    if (other == self->rank_) {
      at = self->own_;
      continue;
    }
    const Offer& theirs = offers[static_cast<std::size_t>(other)];
    at = can_reach(mine, theirs) ? map(theirs) : nullptr;
    good = at != nullptr;
    if (good) self->mapped_.push_back(at);
  }
  cudaGetLastError();
  if (!all_agree(host, good)) self = nullptr;
  return self;
}

OneShot::~OneShot() {
  try {
    const cuda::DeviceScope scope(device_);
    for (std::byte* memory : mapped_) cudaIpcCloseMemHandle(memory);
    cudaFree(own_);
    cudaFree(turns_);
    cudaFreeHost(const_cast<std::uint32_t*>(aborted_));
    cudaGetLastError();
  } catch (const std::exception&) {  // the GPU is gone: so is the memory
  }
}

bool OneShot::fits(const TensorView& x) {
  return (x.dtype == DType::kF32 || x.dtype == DType::kBF16) && x.bytes() % 16 == 0 &&
         x.bytes() <= kMaxBytes && reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0;
}

void OneShot::all_reduce(TensorView x, cudaStream_t stream) {
  const int count = static_cast<int>(x.bytes() / 16);
  // As many blocks as have something to do for most of their threads, and no box too small.
  const int blocks = std::clamp(ceil_div(count, kThreads), 1, kMaxBlocks);
  const int per_block = ceil_div(count, blocks);
  Peers peers{};
  std::copy(all_.begin(), all_.end(), peers.memory);
  auto* const data = reinterpret_cast<uint4*>(x.data);
  if (x.dtype == DType::kF32) {
    one_shot_kernel<float><<<blocks, kThreads, 0, stream>>>(data, count, per_block, peers, rank_,
                                                            size_, turns_, aborted_);
  } else {
    one_shot_kernel<__nv_bfloat16><<<blocks, kThreads, 0, stream>>>(data, count, per_block, peers,
                                                                    rank_, size_, turns_, aborted_);
  }
  cuda::check_launch("one_shot_all_reduce");
}

void OneShot::abort() noexcept { *aborted_ = 1; }

}  // namespace minisgl::gpu
