// What a step asks of the machine, estimated from the model's shape: the yardstick for how much of
// the machine's bandwidth and arithmetic is put to use.

#pragma once

#include <cstdint>
#include <vector>

#include "core/batch.h"
#include "core/model_config.h"

namespace minisgl {

struct StepWork {
  double flops = 0;        ///< a multiplication and an addition are two
  double read_bytes = 0;   ///< weights once, and the keys and values that are seen once
  double write_bytes = 0;  ///< new keys and values
};

/// Counts products with weights and attention; norms, rope, activations and sampling, which are a
/// few per cent, are left out. Rows that pad a graph are no work. Caches are taken to hold nothing
/// from step to step. All sizes are of the whole model.
class StepWorkModel {
 public:
  /// `weight_type`: of the matrices; `kv_type`: of keys and values.
  StepWorkModel(const ModelConfig& config, DType weight_type, DType kv_type);

  /// O(rows). `batch` needs rows, num_rows and samples.
  StepWork estimate(const Batch& batch) const;

 private:
  struct Layers {
    std::int64_t window = 0;  ///< tokens; 0: all
    double count = 0;
  };

  double dense_elements_ = 0;  // of matrices that every token meets
  double head_elements_ = 0;
  double sparse_layers_ = 0;
  double expert_elements_ = 0;  // of one expert of one layer
  double num_experts_ = 0;
  double experts_per_token_ = 0;
  double bytes_per_element_ = 0;
  double key_flops_ = 0;  // of one token with one key, in one layer
  double kv_bytes_ = 0;   // of one token's key and value, in one layer
  double num_layers_ = 0;
  std::vector<Layers> windows_;  // layers by what they see
};

}  // namespace minisgl
