// Checkpoints made of the small ones of the test data: the same model as a GGUF file of a given
// type, or as a folder with exactly the values that such a file holds. Linked by tests of layers
// from models/ on.

#pragma once

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "formats/safetensors.h"
#include "kernels/ref/dequantize.h"
#include "tensor/half.h"
#include "testing/tiny_gguf.h"
#include "testing/tiny_model.h"

namespace minisgl::testing_util {

/// The models of tests/data/tiny that write_gguf() can write without changing what they compute, by
/// folder. (No GGUF says which layers of a qwen3moe are dense, or what scales Gemma's queries.)
inline const std::vector<std::string>& models_for_gguf() {
  static const std::vector<std::string> names{
      "llama",      "llama-f32", "llama-sharded", "llama-tied", "mistral", "qwen2", "qwen3",
      "qwen3-yarn", "qwen3_moe", "smollm3",       "phi3",       "granite", "olmo2"};
  return names;
}

template <class T>
void append_bytes(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// One block of 32. Source: ggml-quants.c, quantize_row_q8_0_ref (scale max|x| / 127, codes rounded
/// half away from zero).
inline void append_q8_0_block(std::string& out, const float* x) {
  constexpr int kBlock = 32;
  float largest = 0;
  for (int i = 0; i < kBlock; ++i) largest = std::max(largest, std::abs(x[i]));
  const float scale = largest / 127.0F;
  append_bytes(out, to_f16(scale));
  for (int i = 0; i < kBlock; ++i)
    append_bytes(out,
                 static_cast<std::int8_t>(scale == 0 ? 0.0F : std::round(x[i] * (1.0F / scale))));
}

/// `values` as `type` stores them: f32, f16, bf16, or Q8_0, for which they must be whole blocks.
inline std::string stored_bytes(const std::vector<float>& values, DType type) {
  std::string out;
  if (type == DType::kQ8_0) {
    check(values.size() % 32 == 0, values.size(), " values are not whole blocks of Q8_0");
    for (std::size_t i = 0; i < values.size(); i += 32) append_q8_0_block(out, &values[i]);
    return out;
  }
  for (const float value : values) {
    switch (type) {
      case DType::kF32: append_bytes(out, value); break;
      case DType::kF16: append_bytes(out, to_f16(value)); break;
      case DType::kBF16: append_bytes(out, to_bf16(value)); break;
      default: check(false, "stored_bytes() writes no ", name(type));
    }
  }
  return out;
}

/// A tensor of a file as f32.
inline std::vector<float> values_of(const TensorView& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
  kernels::dequantize_row(tensor.dtype, tensor.data, tensor.numel(), values.data());
  return values;
}

/// What a matrix is stored as when `type` is wanted: f16 where rows are not whole blocks of it, as
/// llama.cpp's quantizer does.
inline DType storable_as(DType type, const TensorView& matrix) {
  return matrix.dim(1) % info(type).block_elems == 0 ? type : DType::kF16;
}

/// Writes the safetensors checkpoint in `folder` to `path` as llama.cpp's converter would: matrices
/// as `type` (see stored_bytes), vectors as f32. The architecture is config.json's model_type in
/// llama.cpp's words (a mistral is a llama).
inline void write_gguf(const std::filesystem::path& folder, const std::filesystem::path& path,
                       DType type) {
  std::string architecture = read_tiny_config(folder).at("model_type");
  if (architecture == "mistral") architecture = "llama";
  if (architecture == "qwen3_moe") architecture = "qwen3moe";
  write_tiny_gguf(folder, architecture, path, [type](const TensorView& matrix) {
    const DType stored = storable_as(type, matrix);
    return StoredMatrix{stored, stored_bytes(values_of(matrix), stored)};
  });
}

/// Writes model.safetensors to `folder`: tensors by name, of a type, a shape and bytes.
class SafetensorsWriter {
 public:
  SafetensorsWriter& tensor(const std::string& name, const std::string& dtype,
                            const std::vector<std::int64_t>& shape, const std::string& bytes) {
    header_[name] = {{"dtype", dtype},
                     {"shape", shape},
                     {"data_offsets", {data_.size(), data_.size() + bytes.size()}}};
    data_ += bytes;
    return *this;
  }
  void write(const std::filesystem::path& path) const {
    const std::string text = header_.dump();
    std::string length;
    append_bytes(length, static_cast<std::uint64_t>(text.size()));
    std::ofstream(path, std::ios::binary) << length << text << data_;
  }

 private:
  nlohmann::json header_ = nlohmann::json::object();
  std::string data_;
};

/// Empties `copy` and copies all of the checkpoint in `folder` to it but its weights.
inline void copy_without_weights(const std::filesystem::path& folder,
                                 const std::filesystem::path& copy) {
  std::filesystem::remove_all(copy);
  std::filesystem::create_directories(copy);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    if (entry.path().extension() == ".json" && file != "model.safetensors.index.json")
      std::filesystem::copy(entry.path(), copy / file);
  }
}

inline std::vector<std::int64_t> shape_of(const TensorView& tensor) {
  return {tensor.shape.dims.begin(), tensor.shape.dims.begin() + tensor.rank()};
}

/// Writes a copy of the checkpoint in `folder` to the folder `copy` (emptied first) whose matrices
/// have the values that `type` can hold, as f32: what a GGUF of write_gguf() is to give.
inline void write_dequantised(const std::filesystem::path& folder,
                              const std::filesystem::path& copy, DType type) {
  copy_without_weights(folder, copy);
  SafetensorsWriter out;
  const SafetensorsFolder weights(folder);
  for (const auto& [name, tensor] : weights.tensors()) {
    std::vector<float> values = values_of(tensor);
    if (tensor.rank() == 2) {
      const DType stored_type = storable_as(type, tensor);
      const std::string stored = stored_bytes(values, stored_type);
      kernels::dequantize_row(stored_type, reinterpret_cast<const std::byte*>(stored.data()),
                              tensor.numel(), values.data());
    }
    out.tensor(name, "F32", shape_of(tensor), stored_bytes(values, DType::kF32));
  }
  out.write(copy / "model.safetensors");
}

/// Writes a copy of the checkpoint in `folder` to the folder `copy` (emptied first) with all
/// tensors stored as `type`: f32, f16 or bf16.
inline void write_rounded(const std::filesystem::path& folder, const std::filesystem::path& copy,
                          DType type) {
  copy_without_weights(folder, copy);
  SafetensorsWriter out;
  const SafetensorsFolder weights(folder);
  const char* type_name = type == DType::kF32 ? "F32" : type == DType::kF16 ? "F16" : "BF16";
  for (const auto& [name, tensor] : weights.tensors())
    out.tensor(name, type_name, shape_of(tensor), stored_bytes(values_of(tensor), type));
  out.write(copy / "model.safetensors");
}

}  // namespace minisgl::testing_util
