#include "attention/backend.h"

#include <string>

#include "attention/fa_backend.h"
#include "attention/ref_backend.h"
#include "base/check.h"

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

constexpr Entry kBackends[] = {
    {"fa", make<FaBackend>},
    {"ref", make<RefBackend>},
};

/// What "auto" is on a device.
std::string_view best_for(Device device) {
  check(device.is_cpu(), "no attention backend for device ", to_string(device));
  return "fa";
}

}  // namespace

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
  const std::string_view wanted = name == "auto" ? best_for(shape.device) : name;
  std::string known = "auto";
  for (const Entry& entry : kBackends) {
    if (entry.name == wanted) return entry.make(shape);
    known += ", " + std::string(entry.name);
  }
  throw Error("unknown attention backend \"" + std::string(name) + "\"; known are " + known);
}

}  // namespace minisgl
