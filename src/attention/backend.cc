#include "attention/backend.h"

#include <algorithm>
#include <array>
#include <string>

#include "attention/cuda/fi_gpu_backend.h"
#include "attention/fa_backend.h"
#include "attention/fi_backend.h"
#include "attention/hybrid_backend.h"
#include "attention/ref_backend.h"
#include "attention/trtllm_backend.h"
#include "base/check.h"
#include "base/log.h"
#include "tensor/cuda/build.h"

namespace minisgl {
namespace {

template <class Backend>
std::unique_ptr<AttentionBackend> make(const AttentionShape& shape) {
  return std::make_unique<Backend>(shape);
}

struct Entry {
  std::string_view name;
  std::unique_ptr<AttentionBackend> (*make)(const AttentionShape&);
};

std::unique_ptr<AttentionBackend> make_fi(const AttentionShape& shape) {
  if constexpr (cuda::kBuilt)
    if (!shape.device.is_cpu()) return std::make_unique<FiGpuBackend>(shape);
  return std::make_unique<FiBackend>(shape);
}

constexpr Entry kBackends[] = {
    {"ref", make<RefBackend>},
    {"fa", make<FaBackend>},
    {"fi", make_fi},
    {"trtllm", make<TrtllmBackend>},
};

/// What "auto" is on a device.
std::string_view best_for(Device /*device*/) { return "fa"; }

std::unique_ptr<AttentionBackend> make_single(std::string_view name, const AttentionShape& shape) {
  const std::string_view wanted = name == "auto" ? best_for(shape.device) : name;
  for (const Entry& entry : kBackends) {
    if (entry.name != wanted) continue;
    return entry.make(shape);
  }
  throw Error("unknown attention backend \"" + std::string(name) + "\"; known are auto, " +
              attention_backend_names() + ", or two of them as \"prefill,decode\"");
}

constexpr std::array<std::int32_t, 3> kTrtllmPageSizes = {16, 32, 64};

}  // namespace

std::int32_t AttentionShape::window_of(std::int64_t layer) const {
  if (layer_windows.empty()) return sliding_window;
  check(layer >= 0 && layer < static_cast<std::int64_t>(layer_windows.size()), "layer ", layer,
        " has no window; there are ", layer_windows.size());
  return layer_windows[static_cast<std::size_t>(layer)];
}

std::int32_t AttentionShape::widest_window() const {
  if (layer_windows.empty()) return sliding_window;
  const auto [least, most] = std::minmax_element(layer_windows.begin(), layer_windows.end());
  return *least == 0 ? 0 : *most;
}

void AttentionBackend::forward_with_rope(const kernels::RopeStoreArgs& rope, std::int64_t layer,
                                         TensorView out, ForwardContext& ctx) {
  kernels::qk_norm_rope_store(rope, ctx.stream);
  forward(rope.q, layer, out, ctx);
}

void AttentionBackend::init_capture_graph(std::span<const std::int32_t> /*batch_sizes*/,
                                          std::int64_t /*max_seq_len_tokens*/) {
  check(false, "the attention backend ", name(), " cannot be captured in a graph");
}

const AttentionMetadata& AttentionBackend::prepare_for_capture(std::int32_t /*batch_size*/,
                                                               Stream& /*stream*/) {
  throw Error("the attention backend " + std::string(name()) + " cannot be captured in a graph");
}

std::vector<CapturedBuffer> AttentionBackend::captured_buffers(std::int32_t /*batch_size*/) const {
  return {};
}

void AttentionBackend::prepare_for_replay(std::int32_t /*batch_size*/,
                                          const AttentionMetadata& /*live*/,
                                          CaptureWriter& /*writer*/, Stream& /*stream*/) {
  check(false, "the attention backend ", name(), " cannot be captured in a graph");
}

std::unique_ptr<AttentionBackend> make_attention_backend(std::string_view name,
                                                         const AttentionShape& shape) {
  check(shape.num_heads > 0 && shape.num_kv_heads > 0 && shape.head_dim > 0 &&
            shape.page_size > 0 && shape.max_seq_len_tokens > 0 && shape.max_rows > 0,
        "an attention backend needs numbers of heads, head_dim, page_size, max_seq_len_tokens and "
        "max_rows");
  const std::size_t comma = name.find(',');
  if (comma == std::string_view::npos) return make_single(name, shape);
  if (name.find(',', comma + 1) != std::string_view::npos)
    throw Error("Only one comma is allowed in hybrid backend: \"" + std::string(name) + "\"");
  const std::string_view prefill = name.substr(0, comma);
  const std::string_view decode = name.substr(comma + 1);
  if (prefill == decode) {
    log::warning("the attention backends for prefill and decode are both {0}: using {0} alone",
                 prefill);
    return make_single(prefill, shape);
  }
  auto hybrid =
      std::make_unique<HybridBackend>(make_single(prefill, shape), make_single(decode, shape));
  log::info("Using hybrid attention backend: prefill={}, decode={}", prefill, decode);
  return hybrid;
}

std::string attention_backend_names() {
  std::string names;
  for (const Entry& entry : kBackends) {
    if (!names.empty()) names += ", ";
    names += entry.name;
  }
  return names;
}

std::int32_t supported_page_size(std::string_view backend, std::int32_t page_size) {
  const std::size_t comma = std::min(backend.find(','), backend.size());
  const bool trtllm = backend.substr(0, comma) == "trtllm" ||
                      (comma < backend.size() && backend.substr(comma + 1) == "trtllm");
  const bool fits = std::find(kTrtllmPageSizes.begin(), kTrtllmPageSizes.end(), page_size) !=
                    kTrtllmPageSizes.end();
  if (!trtllm || fits) return page_size;
  log::warning("the attention backend trtllm needs pages of 16, 32 or 64 tokens: using 64, not {}",
               page_size);
  return 64;
}

}  // namespace minisgl
