#include "models/dummy_weights.h"

#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

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

/// SplitMix64 (Steele, Lea, Flood 2014).
std::uint64_t next(std::uint64_t& state) {
  std::uint64_t z = state += 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
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
  DummyWeights(layers::WantedWeights wanted, DType dtype)
      : wanted_(std::move(wanted)), dtype_(dtype) {
    const std::vector<double> quantiles = normal_quantiles();
    table_.resize(static_cast<std::size_t>(bytes_of(dtype, kQuantiles)));
    visit_float_dtype(dtype, [&]<class T>() {
      auto* out = reinterpret_cast<T*>(table_.data());
      for (const double quantile : quantiles) *out++ = stored<T>(quantile * kDeviation);
    });
  }

  TensorView find(std::string_view name) const override {
    const auto found = wanted_.find(name);
    if (found == wanted_.end()) return {};
    if (const auto made = made_.find(name); made != made_.end()) return made->second;
    Tensor& tensor = made_.emplace(name, Tensor(found->second, dtype_)).first->second;
    fill(name, tensor);
    return tensor;
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
  void fill(std::string_view name, const TensorView& tensor) const {
    const bool is_norm = tensor.rank() == 1 && name.ends_with("norm.weight");
    visit_float_dtype(dtype_, [&]<class T>() {
      const auto* table = reinterpret_cast<const T*>(table_.data());
      T* out = tensor.as<T>();
      const T one = stored<T>(1.0);
      std::uint64_t state = seed_of(name);
      std::uint64_t bits = 0;
      for (std::int64_t i = 0; i < tensor.numel(); ++i, bits >>= 16) {
        if (i % 4 == 0) bits = next(state);
        out[i] = is_norm ? one : table[bits & (kQuantiles - 1)];
      }
    });
  }

  layers::WantedWeights wanted_;
  DType dtype_;
  std::vector<std::byte> table_;
  mutable std::map<std::string, Tensor, std::less<>> made_;
};

}  // namespace

std::unique_ptr<WeightSource> dummy_weights(layers::WantedWeights wanted, DType dtype) {
  return std::make_unique<DummyWeights>(std::move(wanted), dtype);
}

}  // namespace minisgl::models
