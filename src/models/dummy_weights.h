// Random weights, for benchmarks of models whose weights are not there.

#pragma once

#include <memory>

#include "layers/weight_source.h"
#include "layers/weights.h"

namespace minisgl::models {

/// The tensors `wanted` with numbers of type `dtype` (f32, f16 or bf16): vectors named *norm.weight
/// are ones, all others normal with mean 0 and deviation 0.02, a function of the tensor's name and
/// the place in it alone. A tensor is made when it is asked for, and kept until it is dropped;
/// matrices of f16 or bf16 in the memory of `device`, which takes no time on a GPU.
std::unique_ptr<WeightSource> dummy_weights(layers::WantedWeights wanted, DType dtype,
                                            Device device = kCpu);

}  // namespace minisgl::models
