// A model: a graph of layers with its weights.

#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "core/forward.h"
#include "core/model_config.h"
#include "layers/weights.h"

namespace minisgl {

/// Immutable once loaded. forward() may be called by one thread at a time.
class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelConfig& config() const = 0;

  /// Enqueues a forward pass: *ctx.inputs -> logits [num_samples, vocab] f32, for the tokens that
  /// inputs.logit_rows names, and those of ctx.scored, if there are any, to its receiver. Writes
  /// the new tokens' keys and values.
  virtual void forward(ForwardContext& ctx, TensorView logits) const = 0;
};

struct LoadOptions {
  int num_threads = 1;           ///< that repack the weights
  std::int64_t max_seq_len = 0;  ///< positions in the rope table; 0: as the model was trained
  layers::Shard shard = {};
  Device device = kCpu;  ///< where the weights are to lie
  /// Weights that are f32, f16 or bf16 are rounded to this type; without it they stay as they are.
  std::optional<DType> dtype = std::nullopt;
  /// No weights are read: they are random (models/dummy_weights.h). For benchmarks.
  bool dummy_weights = false;
  /// Called with bytes taken so far and in all.
  std::function<void(std::int64_t done, std::int64_t total)> on_progress = {};
};

/// Loads a GGUF file or a Hugging Face folder. Throws Error naming file and fault: architecture,
/// tensor type or quantisation that is not supported; sizes that the ranks of options.shard cannot
/// share; tensors missing, misshapen, unexpected or cut off, all together and before any weight is
/// read.
std::unique_ptr<Model> load_model(const std::filesystem::path& path, const LoadOptions& options);

/// Its configuration alone; reads no weights.
ModelConfig read_model_config(const std::filesystem::path& path);

}  // namespace minisgl
