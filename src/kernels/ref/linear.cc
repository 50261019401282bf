#include "kernels/ref/linear.h"

#include <vector>

#include "kernels/ref/dequantize.h"

namespace minisgl::kernels {

void linear_reference(TensorView x, TensorView weight, TensorView bias, TensorView y) {
  const std::int64_t rows = weight.dim(0);
  const std::int64_t cols = weight.dim(1);
  check_tensor(x, {-1, cols}, DType::kF32, "x of linear_reference");
  check_tensor(y, {x.dim(0), rows}, DType::kF32, "y of linear_reference");
  if (!bias.empty()) check_tensor(bias, {rows}, DType::kF32, "bias of linear_reference");
  std::vector<float> w(static_cast<std::size_t>(cols));
  for (std::int64_t n = 0; n < rows; ++n) {
    dequantize_row(weight.dtype, weight.data + n * bytes_of(weight.dtype, cols), cols, w.data());
    for (std::int64_t m = 0; m < x.dim(0); ++m) {
      const float* x_row = x.as<float>() + m * x.stride(0);
      double total = bias.empty() ? 0.0 : double{bias.as<float>()[n]};
      for (std::int64_t k = 0; k < cols; ++k) total += double{x_row[k]} * double{w[k]};
      y.as<float>()[m * y.stride(0) + n] = static_cast<float>(total);
    }
  }
}

}  // namespace minisgl::kernels
