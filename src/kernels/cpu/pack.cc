#include "kernels/cpu/pack.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/math.h"
#include "kernels/cpu/pack_float.h"
#include "kernels/cpu/unpack.h"
#include "kernels/ref/dequantize.h"
#include "tensor/half.h"

namespace minisgl::kernels {
namespace cpu {
namespace {

/// Up to kUnpackCols columns of the rows of a tile, taken apart.
struct TileCodes {
  std::int8_t codes[kTileRows][kUnpackCols];
  float scales[kTileRows][kUnpackCols / 16];
  float mins[kTileRows][kUnpackCols / 16];
};

/// values[row][g] of all rows -> [32 rows], as f16 or f32. Returns the byte behind them.
std::byte* write_scales(ScaleType type, const float (*values)[kUnpackCols / 16], int g,
                        std::byte* out) {
  for (int r = 0; r < kTileRows; ++r) {
    if (type == ScaleType::kF16) {
      const Half half = to_f16(values[r][g]);  // exact: it was an f16 in the file
      std::memcpy(out + r * 2, &half, 2);
    } else {
      std::memcpy(out + r * 4, &values[r][g], 4);
    }
  }
  return out + kTileRows * (type == ScaleType::kF16 ? 2 : 4);
}

void write_group(const TileLayout& layout, const TileCodes& tile, int g, std::byte* out) {
  out = write_scales(layout.scale, tile.scales, g, out);
  if (layout.has_min) out = write_scales(layout.scale, tile.mins, g, out);
  const int begin = g * layout.group;
  if (layout.packing == Packing::kInt8) {
    for (int k = begin; k < begin + layout.group; ++k) {
      for (int r = 0; r < kTileRows; ++r) *out++ = static_cast<std::byte>(tile.codes[r][k]);
    }
    return;
  }
  for (int k = begin; k < begin + layout.group; k += 8) {
    for (int r = 0; r < kTileRows; ++r) {
      std::uint32_t word = 0;
      for (int j = 0; j < 8; ++j)
        word |= static_cast<std::uint32_t>(tile.codes[r][k + j] & 15) << (4 * j);
      std::memcpy(out, &word, 4);
      out += 4;
    }
  }
}

/// rows[r] of the source -> one tile. A null row is padding: the buffer is zero already.
void pack_block_tile(const TileLayout& layout, const std::byte* const* rows, std::int64_t cols,
                     std::byte* out) {
  TileCodes tile{};
  for (std::int64_t k = 0; k < cols; k += kUnpackCols) {
    const std::int64_t width = std::min(cols - k, kUnpackCols);
    for (int r = 0; r < kTileRows; ++r) {
      if (rows[r] == nullptr) continue;
      unpack_columns(layout.dtype, rows[r] + bytes_of(layout.dtype, k), width, tile.codes[r],
                     tile.scales[r], tile.mins[r]);
    }
    for (int g = 0; g < width / layout.group; ++g) {
      write_group(layout, tile, g, out);
      out += layout.group_bytes;
    }
  }
}

float read_scale(const TileLayout& layout, const std::byte* scales, std::int64_t index) {
  if (layout.scale == ScaleType::kF16) {
    Half half;
    std::memcpy(&half, scales + index * 2, 2);
    return to_f32(half);
  }
  float value;
  std::memcpy(&value, scales + index * 4, 4);
  return value;
}

float read_code(const TileLayout& layout, const std::byte* codes, int k, int r) {
  if (layout.packing == Packing::kInt8)
    return static_cast<float>(static_cast<std::int8_t>(codes[k * kTileRows + r]));
  std::uint32_t word;
  std::memcpy(&word, codes + (k / 8 * kTileRows + r) * 4, 4);
  return static_cast<float>(layout.numbers[word >> (k % 8 * 4) & 15U]);
}

void read_block_row(const TileLayout& layout, const std::byte* tile, int r, std::int64_t cols,
                    float* out) {
  for (std::int64_t begin = 0; begin < cols; begin += layout.group) {
    const float scale = read_scale(layout, tile, r);
    const float min = layout.has_min ? read_scale(layout, tile, kTileRows + r) : 0;
    const std::byte* codes = tile + layout.scale_bytes;
    for (int k = 0; k < layout.group; ++k) {
      const float product = scale * read_code(layout, codes, k, r);
      *out++ = layout.has_min ? product + min : product;
    }
    tile += layout.group_bytes;
  }
}

void read_float_row(const TileLayout& layout, const std::byte* tile, int r, std::int64_t cols,
                    float* out) {
  visit_float_dtype(layout.dtype, [&]<class T>() {
    for (std::int64_t k = 0; k < cols; ++k) {
      T value;
      std::memcpy(&value, tile + (k * kTileRows + r) * sizeof(T), sizeof(T));
      out[k] = to_f32(value);
    }
  });
}

}  // namespace

TileLayout tile_layout(DType type) {
  TileLayout layout;
  layout.dtype = type;
  if (is_block_type(type)) {
    const BlockForm form = block_form(type);
    layout.packing = form.code_bits == 4 ? Packing::kInt4 : Packing::kInt8;
    layout.group = form.group;
    layout.code_bits = form.code_bits;
    layout.scale = form.f16 ? ScaleType::kF16 : ScaleType::kF32;
    layout.has_min = form.has_min;
    layout.numbers = form.numbers;
    layout.scale_bytes = kTileRows * (form.f16 ? 2 : 4) * (form.has_min ? 2 : 1);
  } else {
    check(type == DType::kF32 || type == DType::kF16 || type == DType::kBF16,
          "expected weights of type f32, f16, bf16 or a block type, not ", name(type));
    layout.code_bits = info(type).block_bytes * 8;
  }
  layout.column_bytes = kTileRows * layout.code_bits / 8;
  layout.group_bytes = layout.scale_bytes + layout.group * layout.column_bytes;
  return layout;
}

std::int64_t tile_bytes(const TileLayout& layout, std::int64_t cols) {
  return cols / layout.group * layout.group_bytes + cols % layout.group * layout.column_bytes;
}

Packing packing_for(DType type, Simd simd) {
  const TileLayout layout = tile_layout(type);
  return simd == Simd::kPlain ? Packing::kRows : layout.packing;
}

void read_row(const PackedMatrix& matrix, std::int64_t row, float* out) {
  const std::int64_t cols = matrix.cols();
  if (matrix.packing() == Packing::kRows) {
    dequantize_row(matrix.dtype(), matrix.data() + row * bytes_of(matrix.dtype(), cols), cols, out);
    return;
  }
  const TileLayout layout = tile_layout(matrix.dtype());
  const std::byte* tile = matrix.data() + row / kTileRows * tile_bytes(layout, cols);
  const int r = static_cast<int>(row % kTileRows);
  if (layout.packing == Packing::kFloat) {
    read_float_row(layout, tile, r, cols, out);
  } else {
    read_block_row(layout, tile, r, cols, out);
  }
}

}  // namespace cpu

namespace {

/// Bytes of the source between two calls of PackOptions::on_packed.
constexpr std::int64_t kChunkBytes = 32 << 20;

void check_weight(const TensorView& weight, const PackOptions& options) {
  check(weight.rank() == 2, "a weight matrix has 2 dimensions, not ", weight.rank());
  check(weight.device.is_cpu(), "expected a weight in host memory, not on ",
        to_string(weight.device));
  check(weight.dim(0) > 0 && weight.dim(1) > 0, "a weight matrix of shape ",
        to_string(weight.shape), " is empty");
  cpu::tile_layout(weight.dtype);  // throws if no weight can have this type
  const std::int64_t block = info(weight.dtype).block_elems;
  check(weight.dim(1) % block == 0, "rows of ", weight.dim(1), " elements are not whole blocks of ",
        name(weight.dtype), ", which have ", block);
  check(weight.stride(1) == 1 && weight.stride(0) % block == 0,
        "expected a weight with contiguous rows");
  for (const std::int32_t row : options.row_order)
    check(row >= 0 && row < weight.dim(0), "row_order names row ", row, " of ", weight.dim(0));
  check(!options.dtype || (!is_block_type(weight.dtype) && !is_block_type(*options.dtype)),
        "only plain types are converted, not ", name(weight.dtype));
}

bool is_usable_as_it_lies(const TensorView& weight, const PackOptions& options) {
  return cpu::packing_for(weight.dtype, active_simd()) == Packing::kRows &&
         options.row_order.empty() && options.dtype.value_or(weight.dtype) == weight.dtype &&
         weight.stride(0) == weight.dim(1);
}

/// One matrix on its way into tiles. Tiles may be packed by several threads.
class Packer {
 public:
  Packer(const TensorView& weight, const PackOptions& options)
      : weight_(weight),
        order_(options.row_order),
        dtype_(options.dtype.value_or(weight.dtype)),
        layout_(cpu::tile_layout(dtype_)),
        packing_(cpu::packing_for(dtype_, active_simd())),
        rows_(order_.empty() ? weight.dim(0) : static_cast<std::int64_t>(order_.size())),
        row_bytes_(bytes_of(dtype_, weight.dim(1))),
        tile_bytes_(packing_ == Packing::kRows ? cpu::kTileRows * row_bytes_
                                               : cpu::tile_bytes(layout_, weight.dim(1))),
        data_(static_cast<std::size_t>(packing_ == Packing::kRows ? rows_ * row_bytes_
                                                                  : num_tiles() * tile_bytes_)) {}

  std::int64_t num_tiles() const { return ceil_div(rows_, std::int64_t{cpu::kTileRows}); }
  /// Whether a number was beyond the range of the type.
  bool overflowed() const { return overflowed_.load(); }

  void pack_tile(std::int64_t tile) {
    const std::byte* sources[cpu::kTileRows] = {};
    const std::int64_t first = tile * cpu::kTileRows;
    const std::int64_t count = std::min<std::int64_t>(rows_ - first, cpu::kTileRows);
    for (std::int64_t r = 0; r < count; ++r) sources[r] = source(first + r);
    const std::int64_t cols = weight_.dim(1);
    std::vector<std::byte> converted;
    if (dtype_ != weight_.dtype) {
      converted.resize(static_cast<std::size_t>(count * row_bytes_));
      for (std::int64_t r = 0; r < count; ++r) {
        std::byte* row = converted.data() + r * row_bytes_;
        if (!cpu::convert_row(weight_.dtype, sources[r], cols, dtype_, row)) overflowed_ = true;
        sources[r] = row;
      }
    }
    std::byte* out = data_.data() + tile * tile_bytes_;
    if (packing_ == Packing::kRows) {
      for (std::int64_t r = 0; r < count; ++r)
        std::memcpy(out + r * row_bytes_, sources[r], static_cast<std::size_t>(row_bytes_));
    } else if (packing_ == Packing::kFloat) {
      cpu::pack_float_tile(sources, cols, layout_.code_bits / 8, out);
    } else {
      cpu::pack_block_tile(layout_, sources, cols, out);
    }
  }

  PackedMatrix finish() && {
    return PackedMatrix(rows_, weight_.dim(1), dtype_, packing_, std::move(data_));
  }

 private:
  const std::byte* source(std::int64_t i) const {
    return weight_.data +
           (order_.empty() ? i : order_[i]) * bytes_of(weight_.dtype, weight_.stride(0));
  }

  TensorView weight_;
  std::span<const std::int32_t> order_;
  DType dtype_;
  cpu::TileLayout layout_;
  Packing packing_;
  std::int64_t rows_;
  std::int64_t row_bytes_;
  std::int64_t tile_bytes_;
  Buffer data_;
  std::atomic<bool> overflowed_{false};
};

}  // namespace

PackedMatrix pack_matrix(TensorView weight, ThreadPool& pool, const PackOptions& options) {
  check_weight(weight, options);
  if (weight.dim(0) == 1) weight.strides[0] = weight.dim(1);  // whatever it was
  if (options.share && is_usable_as_it_lies(weight, options)) {
    if (std::shared_ptr<const void> owner = options.share())
      return PackedMatrix(weight.dim(0), weight.dim(1), weight.dtype,
                          {weight.data, static_cast<std::size_t>(weight.bytes())}, owner);
  }
  Packer packer(weight, options);
  const bool in_order = options.row_order.empty();
  // With the columns that lie between the rows of a part: they may be on the same pages.
  const std::int64_t source_tile_bytes = cpu::kTileRows * bytes_of(weight.dtype, weight.stride(0));
  const std::int64_t chunk = std::max<std::int64_t>(1, kChunkBytes / source_tile_bytes);
  for (std::int64_t begin = 0; begin < packer.num_tiles(); begin += chunk) {
    const std::int64_t end = std::min(begin + chunk, packer.num_tiles());
    pool.parallel_for(end - begin, [&](std::int64_t i) { packer.pack_tile(begin + i); });
    if (in_order && options.on_packed)
      options.on_packed(
          weight.slice(begin * cpu::kTileRows, std::min(end * cpu::kTileRows, weight.dim(0))));
  }
  if (packer.overflowed())
    throw Error(std::string(options.what) + " has values beyond the range of " +
                std::string(name(*options.dtype)) + "; choose another --dtype");
  return std::move(packer).finish();
}

PackedMatrix pack_matrix(TensorView weight, std::span<const std::int32_t> row_order,
                         ThreadPool& pool) {
  return pack_matrix(weight, pool, {.row_order = row_order});
}

}  // namespace minisgl::kernels
