#include "engine/graph_buffer.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace minisgl {

GraphCaptureBuffer::GraphCaptureBuffer(std::int32_t max_rows, TokenLoc dummy_loc,
                                       TensorView logits_of_caller, Stream& stream)
    : input_ids({max_rows}, DType::kI32, {.device = stream.device()}),
      positions({max_rows}, DType::kI32, {.device = stream.device()}),
      out_locs({max_rows}, DType::kI32, {.device = stream.device()}),
      logit_rows({max_rows}, DType::kI32, {.device = stream.device()}),
      logits(logits_of_caller) {
  check(logits.rank() == 2 && logits.dim(0) >= max_rows, "graphs of ", max_rows,
        " rows need as many rows of logits, not ", logits.dim(0));
  const Tensor staging({2, max_rows}, DType::kI32);
  auto* values = staging.view().as<std::int32_t>();
  std::fill_n(values, max_rows, dummy_loc);
  std::iota(values + max_rows, values + 2 * max_rows, 0);
  const auto bytes = static_cast<std::size_t>(out_locs.view().bytes());
  stream.copy(out_locs.view().data, values, bytes);
  stream.copy(logit_rows.view().data, values + max_rows, bytes);
  stream.synchronize();
}

ForwardInputs GraphCaptureBuffer::set_batch(std::int32_t num_rows) const {
  return {input_ids.view().slice(0, num_rows), positions.view().slice(0, num_rows),
          out_locs.view().slice(0, num_rows), logit_rows.view().slice(0, num_rows)};
}

std::vector<CapturedBuffer> GraphCaptureBuffer::buffers(std::int32_t num_rows) const {
  const ForwardInputs inputs = set_batch(num_rows);
  return {{"input_ids", inputs.input_ids},
          {"positions", inputs.positions},
          {"out_locs", inputs.out_locs},
          {"logit_rows", inputs.logit_rows, CapturedContent::kConstant}};
}

void GraphCaptureBuffer::copy_from(const ForwardInputs& live, std::int32_t num_rows,
                                   CaptureWriter& writer, Stream& stream) const {
  check(live.input_ids.dim(0) == num_rows, "a step of ", live.input_ids.dim(0),
        " tokens does not fit a graph of ", num_rows, " rows");
  writer.copy("input_ids", input_ids, live.input_ids, stream);
  writer.copy("positions", positions, live.positions, stream);
  writer.copy("out_locs", out_locs, live.out_locs, stream);
}

}  // namespace minisgl
