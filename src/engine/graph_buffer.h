// The fixed addresses that the model's own inputs have in a graph.

#pragma once

#include <cstdint>
#include <vector>

#include "core/batch.h"
#include "core/capture.h"

namespace minisgl {

/// One set for all graphs: a graph of n rows reads the first n entries of each.
/// Source: mini-sglang engine/graph.py GraphCaptureBuffer.
struct GraphCaptureBuffer {
  /// Holds max_rows rows of padding: token 0 at position 0, kept at `dummy_loc`. `logits`,
  /// [max_rows, vocab] f32, is memory of the caller: the eager steps' own, as no two steps run at
  /// once. Returns when all is written.
  GraphCaptureBuffer(std::int32_t max_rows, TokenLoc dummy_loc, TensorView logits, Stream& stream);

  Tensor input_ids;   ///< [max_rows] i32
  Tensor positions;   ///< [max_rows] i32
  Tensor out_locs;    ///< [max_rows] i32
  Tensor logit_rows;  ///< [max_rows] i32, constant: 0, 1, 2, ...
  TensorView logits;  ///< [max_rows, vocab] f32

  /// What a batch of `num_rows` decode rows is pointed at when its graph is captured.
  ForwardInputs set_batch(std::int32_t num_rows) const;

  /// The same as declared buffers: input_ids, positions, out_locs; constant: logit_rows.
  std::vector<CapturedBuffer> buffers(std::int32_t num_rows) const;

  /// Enqueues the copy of a step's inputs, one token for each of `num_rows` rows, padding included.
  void copy_from(const ForwardInputs& live, std::int32_t num_rows, CaptureWriter& writer,
                 Stream& stream) const;
};

}  // namespace minisgl
