#include <cmath>

#include "kernels/ref/reference.h"
#include "tensor/half.h"

namespace minisgl::kernels::ref {
namespace {

std::vector<double> norm(const float* x, const TensorView& weight, double eps, std::int64_t n) {
  std::vector<double> y(x, x + n);
  if (weight.empty()) return y;
  double squares = 0;
  for (const double value : y) squares += value * value;
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(n) + eps);
  for (std::int64_t i = 0; i < n; ++i) y[i] *= scale * weight.as<float>()[i];
  return y;
}

void assign(float& to, float value) { to = value; }
void assign(BFloat16& to, float value) { to = to_bf16(value); }
void assign(Half& to, float value) { to = to_f16(value); }

template <class T>
void rotate(const std::vector<double>& x, const float* cos_sin, std::size_t rotated, T* y) {
  const std::size_t half = rotated / 2;
  for (std::size_t i = rotated; i < x.size(); ++i) assign(y[i], static_cast<float>(x[i]));
  for (std::size_t i = 0; i < half; ++i) {
    const double cos = cos_sin[i];
    const double sin = cos_sin[half + i];
    assign(y[i], static_cast<float>(x[i] * cos - x[half + i] * sin));
    assign(y[half + i], static_cast<float>(x[half + i] * cos + x[i] * sin));
  }
}

}  // namespace

void qk_norm_rope_store(const RopeStoreArgs& args) {
  const std::int64_t head_dim = args.q.dim(2);
  for (std::int64_t token = 0; token < args.q.dim(0); ++token) {
    const float* from = args.qkv.as<float>() + token * args.qkv.stride(0);
    const std::int32_t position = args.positions.as<std::int32_t>()[token];
    const std::int64_t slot = args.out_locs.as<std::int32_t>()[token];
    const std::size_t rotated = args.rope_table.empty() ? 0 : args.rope_table.dim(1);
    const float* cos_sin =
        rotated == 0 ? nullptr : args.rope_table.as<float>() + position * args.rope_table.stride(0);
    float* q = args.q.as<float>() + token * args.q.stride(0);
    for (std::int64_t head = 0; head < args.q.dim(1); ++head, from += head_dim)
      rotate(norm(from, args.q_norm, args.norm_eps, head_dim), cos_sin, rotated,
             q + head * args.q.stride(1));
    visit_float_dtype(args.kv.dtype, [&]<class T>() {
      T* k = reinterpret_cast<T*>(args.kv.k) + slot * args.kv.slot_stride;
      T* v = reinterpret_cast<T*>(args.kv.v) + slot * args.kv.slot_stride;
      for (std::int64_t head = 0; head < args.kv.num_heads; ++head, from += head_dim)
        rotate(norm(from, args.k_norm, args.norm_eps, head_dim), cos_sin, rotated,
               k + head * args.kv.head_stride);
      for (std::int64_t head = 0; head < args.kv.num_heads; ++head)
        for (std::int64_t d = 0; d < head_dim; ++d)
          assign(v[head * args.kv.head_stride + d], *from++);
    });
  }
}

}  // namespace minisgl::kernels::ref
