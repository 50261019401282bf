#include "models/dummy_weights.h"

#include <cmath>
#include <numbers>
#include <utility>

#include "kernels/cuda/ops.h"
#include "kernels/split_mix.h"
#include "tensor/cuda/build.h"
#include "tensor/half.h"

namespace minisgl::models {
namespace {

constexpr double kDeviation = 0.02;
constexpr int kQuantiles = 1 << 16;

/// The middles of 2^16 equally likely parts of the normal distribution, ascending: a number of it
/// is one look-up with 16 random bits. Newton's method on the distribution function, each from the
/// one before; the upper half mirrors the lower.
std::vector<double> normal_quantiles() {
  std::vector<double> quantiles(kQuantiles);
  double x = -4.5;
  for (int i = 0; i < kQuantiles / 2; ++i) {
    const double target = (i + 0.5) / kQuantiles;
    for (int step = 0; step < 50; ++step) {
      const double below = 0.5 * std::erfc(-x / std::numbers::sqrt2);
      const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
      const double change = (below - target) / density;
      x -= change;
      if (std::abs(change) < 1e-12) break;
    }
    quantiles[i] = x;
    quantiles[kQuantiles - 1 - i] = -x;
  }
  return quantiles;
}

std::uint64_t seed_of(std::string_view name) {  // FNV-1a
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  return hash;
}

template <class T>
T stored(double value) {
  if constexpr (std::is_same_v<T, float>) {
    return static_cast<float>(value);
  } else if constexpr (std::is_same_v<T, Half>) {
    return to_f16(static_cast<float>(value));
  } else {
    return to_bf16(static_cast<float>(value));
  }
}

class DummyWeights final : public WeightSource {
 public:
  DummyWeights(layers::WantedWeights wanted, DType dtype, Device device)
      : wanted_(std::move(wanted)), dtype_(dtype), table_({kQuantiles}, dtype) {
    const std::vector<double> quantiles = normal_quantiles();
    visit_float_dtype(dtype, [&]<class T>() {
      T* out = table_.view().as<T>();
      for (const double quantile : quantiles) *out++ = stored<T>(quantile * kDeviation);
    });
    if (!device.is_cpu() && bytes_of(dtype, 1) == 2) device_table_ = copied_to(table_, device);
  }

  TensorView find(std::string_view name) const override {
    const auto found = wanted_.find(name);
    if (found == wanted_.end()) return {};
    if (const auto made = made_.find(name); made != made_.end()) return made->second;
    return made_.emplace(name, make(name, found->second)).first->second;
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> all;
    for (const auto& [name, shape] : wanted_) all.push_back(name);
    return all;
  }
  void drop(const TensorView& tensor) const override {
    std::erase_if(made_, [&](const auto& made) {
      return made.second.view().data == tensor.data && made.second.view().shape == tensor.shape;
    });
  }
  std::shared_ptr<const void> share(const TensorView& /*tensor*/) const override { return nullptr; }
  std::vector<std::string> file_faults() const override { return {}; }
  std::string describe() const override { return "dummy weights"; }
  bool has_paired_qk_rows() const override { return false; }

 private:
  Tensor make(std::string_view name, const Shape& shape) const {
    if constexpr (cuda::kBuilt) {
      if (!device_table_.view().empty() && shape.rank > 1) {
        Tensor tensor(shape, dtype_, {.device = device_table_.view().device});
        kernels::gpu::fill_random_now(tensor, device_table_, seed_of(name));
        return tensor;
      }
    }
    Tensor tensor(shape, dtype_);
    const bool is_norm = shape.rank == 1 && name.ends_with("norm.weight");
    const std::uint64_t seed = seed_of(name);
    visit_float_dtype(dtype_, [&]<class T>() {
      const T* table = table_.view().as<T>();
      T* out = tensor.view().as<T>();
      const T one = stored<T>(1.0);
      std::uint64_t bits = 0;
      for (std::int64_t i = 0; i < shape.numel(); ++i, bits >>= 16) {
        if (i % 4 == 0) bits = kernels::split_mix(seed, static_cast<std::uint64_t>(i) / 4);
        out[i] = is_norm ? one : table[bits & (kQuantiles - 1)];
      }
    });
    return tensor;
  }

  layers::WantedWeights wanted_;
  DType dtype_;
  Tensor table_;
  Tensor device_table_;  // for matrices that are made there
  mutable std::map<std::string, Tensor, std::less<>> made_;
};

}  // namespace

std::unique_ptr<WeightSource> dummy_weights(layers::WantedWeights wanted, DType dtype,
                                            Device device) {
  return std::make_unique<DummyWeights>(std::move(wanted), dtype, device);
}

}  // namespace minisgl::models
