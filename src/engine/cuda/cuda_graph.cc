#include "engine/cuda/cuda_graph.h"

#include <cuda_runtime_api.h>

#include "base/log.h"
#include "engine/forward_scope.h"
#include "tensor/cuda/error.h"
#include "tensor/cuda/stream.h"

namespace minisgl {
namespace {

using cuda::check_cuda;

class CudaGraph final : public Graph {
 public:
  explicit CudaGraph(cudaGraph_t graph) {
    check_cuda(cudaGraphInstantiate(&executable_, graph, 0), "making a graph executable");
  }
  ~CudaGraph() override { cudaGraphExecDestroy(executable_); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void replay(Stream& stream) override {
    check_cuda(cudaGraphLaunch(executable_, cuda::as_cuda(stream).handle()), "launching a graph");
  }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

/// Ends the capture however its scope ends.
class Capture {
 public:
  explicit Capture(cudaStream_t stream) : stream_(stream) {
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
               "beginning to record a graph");
  }
  ~Capture() {
    if (open_) cudaStreamEndCapture(stream_, &graph_);
    cudaGetLastError();
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  cudaGraph_t end() {
    open_ = false;
    check_cuda(cudaStreamEndCapture(stream_, &graph_), "recording a graph");
    return graph_;
  }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  bool open_ = true;
};

}  // namespace

std::unique_ptr<Graph> record_cuda_graph(GraphRecording recording) {
  cuda::CudaStream& stream = cuda::as_cuda(recording.context.stream);
  std::unique_ptr<Graph> graph;
  stream.submit([&] {
    Capture capture(stream.handle());
    {
      const ForwardScope scope(recording.context, recording.inputs, recording.metadata);
      recording.forward();
    }
    const cudaGraph_t recorded = capture.end();
    std::size_t nodes = 0;
    check_cuda(cudaGraphGetNodes(recorded, nullptr, &nodes), "counting what was recorded");
    log::debug("The graph of {} rows has {} kernels and copies", recording.inputs.input_ids.dim(0),
               nodes);
    graph = std::make_unique<CudaGraph>(recorded);
  });
  return graph;
}

}  // namespace minisgl
