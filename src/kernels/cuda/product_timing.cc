#include "kernels/cuda/product_timing.h"

#include <algorithm>
#include <exception>
#include <vector>

#include "base/check.h"
#include "base/math.h"
#include "kernels/cuda/launch.h"

namespace minisgl::kernels::gpu {
namespace {

constexpr const char* kWhat = "timing a product";

}  // namespace

TimingEvent::TimingEvent() { cuda::check_cuda(cudaEventCreate(&event_), "creating an event"); }
TimingEvent::~TimingEvent() { cudaEventDestroy(event_); }

std::size_t ProductTimer::fastest(std::size_t ways, Product product, const Run& run) {
  if (ways == 1) return 0;
  const std::int64_t l2 = l2_bytes();
  const std::int64_t weight_bytes = bytes_of(DType::kBF16, product.rows * product.cols);
  if (cold_.size() == 0)
    cold_ = Buffer(static_cast<std::size_t>(4 * l2), {.device = stream_.device()});
  if (product.into == Into::kAdd) {
    const auto y_bytes =
        static_cast<std::size_t>(bytes_of(product.y_type, product.tokens * product.y_stride));
    if (sums_.size() < y_bytes) sums_ = Buffer(y_bytes, {.device = stream_.device()});
    product.y = sums_.data();
  }
  // Each way has weights of its own, as far as there is room: until its turn comes again, the
  // others have read more than the cache keeps.
  const std::int64_t places = static_cast<std::int64_t>(cold_.size()) / weight_bytes;
  const auto length = std::clamp<std::int64_t>(ceil_div(l2, weight_bytes), 3, 8);
  std::int64_t place = 0;
  std::vector<Graph> graphs;
  for (std::size_t i = 0; i < ways; ++i) {
    std::vector<Product> chain(static_cast<std::size_t>(length), product);
    if (places > 1)
      for (Product& next : chain) next.w = cold_.data() + place++ % places * weight_bytes;
    graphs.push_back(record(i, chain, run));
  }
  // In turns, so that what else happens to the GPU meanwhile, such as a clock that rises, happens
  // to all of them. The first turn brings code and clocks up; who is far behind in the second is
  // not asked again.
  constexpr float kFarBehind = 1.15F;
  const int turns = weight_bytes < l2 ? 8 : 5;
  std::vector<float> fewest(ways);
  float best = 0;
  for (int turn = 0; turn < turns; ++turn) {
    for (std::size_t i = 0; i < ways; ++i) {
      if (turn > 1 && fewest[i] > kFarBehind * best) continue;
      const float milliseconds = time_of(graphs[i].get());
      if (turn == 1 || (turn > 1 && milliseconds < fewest[i])) fewest[i] = milliseconds;
    }
    best = std::ranges::min(fewest);
  }
  return static_cast<std::size_t>(std::ranges::min_element(fewest) - fewest.begin());
}

ProductTimer::Graph ProductTimer::record(std::size_t way, std::span<const Product> chain,
                                         const Run& run) {
  // As long as the kernels between the products of a layer are: time to bring weights. Not where a
  // block wants all of a multiprocessor's shared memory, which those kernels do not leave: what was
  // chosen with pauses was up to 2 % slower in Qwen3-14B's steps of 64 and 192 rows.
  constexpr std::int64_t kPauseNanoseconds = 3000;
  const cudaStream_t on = stream_.handle();
  run(way, chain.front());  // what is done only once is not recorded
  cuda::check_cuda(cudaStreamBeginCapture(on, cudaStreamCaptureModeThreadLocal), kWhat);
  std::exception_ptr fault;
  try {
    for (const Product& product : chain) {
      if (product.tokens <= kClusterTokens) pause(kPauseNanoseconds, on);
      run(way, product);
    }
  } catch (...) {
    fault = std::current_exception();
  }
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(on, &graph);
  if (fault != nullptr) std::rethrow_exception(fault);
  cuda::check_cuda(ended, kWhat);
  cudaGraphExec_t executable = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  cuda::check_cuda(made, kWhat);
  return Graph(executable, cudaGraphExecDestroy);
}

float ProductTimer::time_of(cudaGraphExec_t graph) {
  const cudaStream_t on = stream_.handle();
  cuda::check_cuda(cudaEventRecord(begin_.get(), on), kWhat);
  cuda::check_cuda(cudaGraphLaunch(graph, on), kWhat);
  cuda::check_cuda(cudaEventRecord(end_.get(), on), kWhat);
  cuda::check_cuda(cudaEventSynchronize(end_.get()), kWhat);
  float milliseconds = 0;
  cuda::check_cuda(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()), kWhat);
  return milliseconds;
}

std::int64_t ProductTimer::l2_bytes() const {
  int bytes = 0;
  cuda::check_cuda(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, stream_.device().index),
                   "asking for the size of the cache");
  return bytes;
}

}  // namespace minisgl::kernels::gpu
