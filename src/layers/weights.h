// A named scope of a checkpoint, from which a layer takes its weights.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/linear.h"
#include "layers/weight_source.h"

namespace minisgl::layers {

/// This rank's place among the ranks that share the weights.
struct Shard {
  std::int32_t rank = 0;
  std::int32_t world = 1;
};

/// The place of a rank where there are only `parts` parts to divide (the heads of keys and values):
/// if those are fewer than the ranks, several ranks hold the same one.
inline Shard shard_of_parts(Shard shard, std::int64_t parts) {
  if (parts >= shard.world) return shard;
  const auto few = static_cast<std::int32_t>(parts);
  return {shard.rank * few / shard.world, few};
}

/// Rows [begin, end) of a table with a row for each token of the vocabulary.
struct VocabRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
};

/// Those of one rank: equal parts of a multiple of 8 rows, but the last, which may be shorter.
/// Throws Error if a rank would have none.
VocabRange vocab_range(Shard shard, std::int64_t vocab);

/// How a matrix [out, in] is divided over the ranks.
enum class Split : std::uint8_t {
  kNone,  ///< every rank has all of it
  kOut,   ///< by rows: each rank computes a part of the outputs ("column parallel")
  kIn,  ///< by columns: each rank has a part of the inputs, the results are summed ("row parallel")
};

/// What a model wants of its checkpoint and cannot have.
struct WeightFaults {
  std::vector<std::string> missing = {};     ///< "model.norm.weight [64]"
  std::vector<std::string> misshapen = {};   ///< "lm_head.weight is [3, 4], expected [4, 4]"
  std::vector<std::string> unreadable = {};  ///< whole lines: a type that is not supported, ...
  std::vector<std::string> undivided = {};   ///< whole lines: sizes that the ranks cannot share
};

/// The tensors that a model takes, with their shapes.
using WantedWeights = std::map<std::string, Shape, std::less<>>;

/// What all scopes of one load share.
struct WeightLoad {
  const WeightSource& source;
  ThreadPool& pool;
  Shard shard = {};
  Device device = kCpu;            ///< where the weights are to lie
  DType gpu_dtype = DType::kBF16;  ///< what matrices become on a GPU: bf16 or f16
  /// Weights that are f32, f16 or bf16 are rounded to this type; block types stay.
  std::optional<DType> dtype = std::nullopt;
  /// Not null: nothing is copied, what cannot be had is noted here. The weights are zeros, or
  /// matrices without memory: a model of them only shows what it would take.
  WeightFaults* faults = nullptr;
  std::function<void(std::int64_t bytes)> on_progress = {};  ///< bytes of the files taken so far
  WantedWeights wanted = {};
  std::int64_t bytes = 0;
};

/// "model.layers.3.self_attn" and below. Taking a weight copies it (repacked or widened) and lets
/// its file pages go as it is copied. Throws Error naming the tensor that is missing or misshapen,
/// what it should be and what was found (or notes it: WeightLoad::faults). Cheap to copy; not
/// thread-safe.
class Weights {
 public:
  explicit Weights(WeightLoad& load, std::string prefix = "")
      : load_(&load), shard_(load.shard), prefix_(std::move(prefix)) {}

  Weights scope(std::string_view name) const;
  /// Also true of a tensor that is there but cannot be read.
  bool has(std::string_view name) const;
  const Shard& shard() const { return shard_; }
  /// The same scope, as a rank in another place takes from it.
  Weights with_shard(Shard shard) const {
    Weights other = *this;
    other.shard_ = shard;
    return other;
  }
  const WeightSource& source() const { return load_->source; }
  /// `tensor`, which is in host memory as vectors are, where weights are to lie.
  Tensor to_device(Tensor tensor) const;

  /// `name` [size] as f32, whole on every rank.
  Tensor vector(std::string_view name, std::int64_t size) const;
  /// This rank's part of `name` [size] as f32: its share of equal parts.
  Tensor vector_shard(std::string_view name, std::int64_t size) const;

  /// This rank's part of `name` [out, in]. Row i of the whole is row row_order[i] of the file
  /// (empty: the same order). Sizes that do not divide by the ranks are an Error.
  kernels::PackedMatrix matrix(std::string_view name, std::int64_t out, std::int64_t in,
                               Split split, std::span<const std::int32_t> row_order = {}) const;

  /// This rank's rows, vocab_range(), of `name` [vocab, in].
  kernels::PackedMatrix vocab_rows(std::string_view name, std::int64_t vocab,
                                   std::int64_t in) const;

 private:
  std::string full_name(std::string_view name) const;
  /// An empty view when there is no such tensor of this shape, and faults are only noted.
  TensorView take(std::string_view name, const Shape& expected) const;
  TensorView note_fault(const std::string& name, const TensorView& tensor,
                        const Shape& expected) const;
  /// The tensor was copied: its pages may leave memory. Counts it.
  void release(const TensorView& tensor) const;
  /// The tensor is loaded: reports progress.
  void count(const TensorView& tensor) const;
  kernels::PackedMatrix pack(TensorView tensor, std::span<const std::int32_t> row_order,
                             std::string_view name) const;
  /// As pack(), of a part of `whole`: progress and memory are those of the whole tensor.
  kernels::PackedMatrix pack_part(TensorView part, const TensorView& whole,
                                  std::span<const std::int32_t> row_order,
                                  std::string_view name) const;
  std::vector<float> widened(const TensorView& tensor, std::string_view name) const;
  /// Throws `why`, or notes it.
  void note_undivided(const std::string& why) const;

  WeightLoad* load_;
  Shard shard_;
  std::string prefix_;
};

}  // namespace minisgl::layers
