// The loops over tiles (pack.h), written once for a vector type `Isa` that linear_avx2.cc and
// linear_avx512.cc define. Everything is in an unnamed namespace on purpose, and nothing of the
// standard library is called: an inline function that two such files share would be compiled for
// AVX-512 in one of them, and the linker might keep that copy for machines without it.
//
// The one order of summation (decision 9). For each row n and token t, over groups of k ascending:
//   acc = 0; acc = fma(code(n, k), x(t, k), acc) over the k of the group, ascending
//   total = fma(scale, acc, total), then, with a minimum, total = fma(min, sum of x, total)
// (no scales: total = total + acc), and the bias at the end. Every loop below computes exactly
// this; they differ only in how many (n, t) they carry along and in where the codes come from.

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/linear_kernels.h"

namespace minisgl::kernels::cpu {
namespace {

constexpr int kVecs = 2;                  // vectors of rows that a loop carries along: a "set"
constexpr std::int64_t kAhead = 1024;     // bytes of prefetch; measured: 4 KB loses up to a third
constexpr int kStep = 8;                  // k that are decoded at once
constexpr std::int64_t kChunkCols = 128;  // codes of 32 rows, decoded: 16 KB, half of the L1 cache

template <class Isa>
constexpr int kSetRows = Isa::kLanes * kVecs;
template <class Isa>
constexpr int kSets = kTileRows / kSetRows<Isa>;

template <class Format>
constexpr std::int64_t kStepBytes = kStep * kTileRows * Format::kBits / 8;

[[gnu::always_inline]] inline void prefetch(const std::byte* from, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + i, 0, /*T1*/ 2);
}

/// Scales (or minima) of the rows from `index` on.
template <class Isa>
[[gnu::always_inline]] inline typename Isa::F load_scale(ScaleType type, const std::byte* scales,
                                                         int index) {
  return type == ScaleType::kF16 ? Isa::load_f16(scales + index * 2)
                                 : Isa::load(reinterpret_cast<const float*>(scales) + index);
}

/// Products of the whole group at column k, added to the totals. One group at a time: two side by
/// side would hide the latency of their FMAs, but are two streams, and measured half as fast.
template <class Isa, class Format, int kTokens>
[[gnu::always_inline]] inline void add_group(
    const LinearPart& part, const Format& format, const std::byte* data, std::int64_t k,
    const float* sums, std::int64_t sums_stride,
    typename Isa::F (&totals)[kTokens][kSets<Isa>][kVecs]) {
  using F = typename Isa::F;
  const TileLayout& layout = *part.layout;
  const float* x[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) x[t] = part.x + t * part.x_stride + k;
  prefetch(data + kAhead, layout.scale_bytes);
#pragma GCC unroll 2
  for (int s = 0; s < kSets<Isa>; ++s) {
    F acc[kTokens][kVecs];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) acc[t][0] = acc[t][1] = Isa::zero();
    const std::byte* codes = data + layout.scale_bytes;
    for (int c = 0; c < layout.group; c += kStep, codes += kStepBytes<Format>) {
      if (s == 0) prefetch(codes + kAhead, kStepBytes<Format>);
      const auto step = format.load(codes, s);
#pragma GCC unroll 8
      for (int j = 0; j < kStep; ++j) {
        const F w0 = step.get(j, 0);
        const F w1 = step.get(j, 1);
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) {
          const F broadcast = Isa::broadcast(x[t] + c + j);
          acc[t][0] = Isa::fma(w0, broadcast, acc[t][0]);
          acc[t][1] = Isa::fma(w1, broadcast, acc[t][1]);
        }
      }
    }
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) {
      const int row = (s * kVecs + v) * Isa::kLanes;
      if (!Format::kScaled) {
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) totals[t][s][v] = Isa::add(totals[t][s][v], acc[t][v]);
        continue;
      }
      const F scale = load_scale<Isa>(layout.scale, data, row);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t)
        totals[t][s][v] = Isa::fma(scale, acc[t][v], totals[t][s][v]);
      if (!layout.has_min) continue;
      const F min = load_scale<Isa>(layout.scale, data, kTileRows + row);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t)
        totals[t][s][v] = Isa::fma(min, Isa::broadcast(sums + t * sums_stride), totals[t][s][v]);
    }
  }
}

/// The last group of a row that is not whole: kFloat only.
template <class Isa, class Format, int kTokens>
inline void add_rest(const LinearPart& part, const Format& format, const std::byte* codes,
                     std::int64_t k, typename Isa::F (&totals)[kTokens][kSets<Isa>][kVecs]) {
  for (int s = 0; s < kSets<Isa>; ++s) {
    for (int v = 0; v < kVecs; ++v) {
      for (int t = 0; t < kTokens; ++t) {
        auto acc = Isa::zero();
        for (std::int64_t i = k; i < part.cols; ++i) {
          const auto w =
              format.load(codes + (i - k) * (kTileRows * Format::kBits / 8), s).get(0, v);
          acc = Isa::fma(w, Isa::broadcast(part.x + t * part.x_stride + i), acc);
        }
        totals[t][s][v] = Isa::add(totals[t][s][v], acc);
      }
    }
  }
}

/// totals [32] (+ bias) -> y, as far as there are rows.
template <class Isa>
inline void store_totals(const float* totals, const LinearPart& part, std::int64_t row,
                         std::int64_t token) {
  float* y = part.y + token * part.y_stride + row;
  const float* bias = part.bias == nullptr ? nullptr : part.bias + row;
  if (part.num_rows - row < kTileRows) {
    for (int i = 0; i < part.num_rows - row; ++i)
      y[i] = bias == nullptr ? totals[i] : totals[i] + bias[i];
    return;
  }
#pragma GCC unroll 4
  for (int i = 0; i < kTileRows; i += Isa::kLanes) {
    const auto total = Isa::load(totals + i);
    Isa::store(y + i, bias == nullptr ? total : Isa::add(total, Isa::load(bias + i)));
  }
}

/// kTokens tokens from `token` on against the tile of row `row`, decoded in registers.
template <class Isa, class Format, int kTokens>
void multiply_few(const LinearPart& whole, const Format& format, std::int64_t row,
                  std::int64_t token) {
  const TileLayout& layout = *whole.layout;
  const std::int64_t group = layout.group;
  LinearPart part = whole;
  part.x += token * part.x_stride;
  const std::int64_t sums_stride = part.cols / group;
  const float* sums = part.sums + token * sums_stride;
  const std::byte* data = part.weights + row / kTileRows * part.tile_bytes;
  typename Isa::F totals[kTokens][kSets<Isa>][kVecs];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 2
    for (int s = 0; s < kSets<Isa>; ++s) totals[t][s][0] = totals[t][s][1] = Isa::zero();
  }
  std::int64_t k = 0;
  for (; k + group <= part.cols; k += group, ++sums, data += layout.group_bytes)
    add_group<Isa, Format, kTokens>(part, format, data, k, sums, sums_stride, totals);
  if (k < part.cols) add_rest<Isa, Format, kTokens>(part, format, data, k, totals);
  for (int t = 0; t < kTokens; ++t) {
    alignas(64) float out[kTileRows];
    for (int s = 0; s < kSets<Isa>; ++s) {
      for (int v = 0; v < kVecs; ++v)
        Isa::store(out + (s * kVecs + v) * Isa::kLanes, totals[t][s][v]);
    }
    store_totals<Isa>(out, whole, row, token + t);
  }
}

/// Columns of a tile decoded to f32, and its scales.
struct alignas(64) DecodedTile {
  float codes[kChunkCols][kTileRows];
  float scales[kChunkCols / 16][kTileRows];
  float mins[kChunkCols / 16][kTileRows];
};

/// What a part of many tokens keeps on the stack: about 90 KB.
struct alignas(64) ManyScratch {
  DecodedTile tile;
  float totals[kMaxPartTiles][kMaxPartTokens][kTileRows];
  float sums[kMaxPartTokens][kChunkCols / 16];
};

/// Decodes `width` columns. Returns the data behind them.
template <class Isa, class Format>
const std::byte* decode_columns(const TileLayout& layout, const Format& format,
                                const std::byte* data, std::int64_t width, DecodedTile& tile) {
  constexpr std::int64_t kColumnBytes = kTileRows * Format::kBits / 8;
  constexpr int kLanes = Isa::kLanes;
  const std::int64_t scale_bytes = layout.scale_bytes;
  for (std::int64_t begin = 0, g = 0; begin < width; begin += layout.group, ++g) {
    if (Format::kScaled) {
      prefetch(data + kAhead, scale_bytes);
      for (int row = 0; row < kTileRows; row += kLanes) {
        Isa::store(tile.scales[g] + row, load_scale<Isa>(layout.scale, data, row));
        if (layout.has_min)
          Isa::store(tile.mins[g] + row, load_scale<Isa>(layout.scale, data, kTileRows + row));
      }
      data += scale_bytes;
    }
    const std::int64_t end = begin + layout.group < width ? begin + layout.group : width;
    std::int64_t k = begin;
    for (; k + kStep <= end; k += kStep, data += kStep * kColumnBytes) {
      prefetch(data + kAhead, kStep * kColumnBytes);
#pragma GCC unroll 2
      for (int s = 0; s < kSets<Isa>; ++s) {
        const auto step = format.load(data, s);
#pragma GCC unroll 8
        for (int j = 0; j < kStep; ++j) {
          float* out = tile.codes[k + j] + s * kSetRows<Isa>;
          Isa::store(out, step.get(j, 0));
          Isa::store(out + kLanes, step.get(j, 1));
        }
      }
    }
    for (; k < end; ++k, data += kColumnBytes) {  // kFloat only
      for (int s = 0; s < kSets<Isa>; ++s) {
        const auto step = format.load(data, s);
        for (int v = 0; v < kVecs; ++v)
          Isa::store(tile.codes[k] + (s * kVecs + v) * kLanes, step.get(0, v));
      }
    }
  }
  return data;
}

/// kTokens tokens, from `token` on, against `width` decoded columns from k on.
template <class Isa, int kTokens>
void multiply_decoded(const LinearPart& part, ManyScratch& scratch, std::int64_t tile_index,
                      std::int64_t token, std::int64_t k, std::int64_t width) {
  using F = typename Isa::F;
  const TileLayout& layout = *part.layout;
  const DecodedTile& tile = scratch.tile;
  const float* x[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) x[t] = part.x + (token + t) * part.x_stride + k;
  for (std::int64_t begin = 0, g = 0; begin < width; begin += layout.group, ++g) {
    const std::int64_t end = begin + layout.group < width ? begin + layout.group : width;
#pragma GCC unroll 2
    for (int s = 0; s < kSets<Isa>; ++s) {
      const int row = s * kSetRows<Isa>;
      F acc[kTokens][kVecs];
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) acc[t][0] = acc[t][1] = Isa::zero();
#pragma GCC unroll 4
      for (std::int64_t i = begin; i < end; ++i) {
        const F w0 = Isa::load(tile.codes[i] + row);
        const F w1 = Isa::load(tile.codes[i] + row + Isa::kLanes);
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) {
          const F broadcast = Isa::broadcast(x[t] + i);
          acc[t][0] = Isa::fma(w0, broadcast, acc[t][0]);
          acc[t][1] = Isa::fma(w1, broadcast, acc[t][1]);
        }
      }
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 2
        for (int v = 0; v < kVecs; ++v) {
          const int first = row + v * Isa::kLanes;
          float* total = scratch.totals[tile_index][token + t] + first;
          F sum = Isa::load(total);
          if (layout.scale == ScaleType::kNone) {
            sum = Isa::add(sum, acc[t][v]);
          } else {
            sum = Isa::fma(Isa::load(tile.scales[g] + first), acc[t][v], sum);
            if (layout.has_min)
              sum = Isa::fma(Isa::load(tile.mins[g] + first),
                             Isa::broadcast(scratch.sums[token + t] + g), sum);
          }
          Isa::store(total, sum);
        }
      }
    }
  }
}

/// Calls f.operator()<N>() with N = n, for n in [1, kMax].
template <int kMax, class F>
[[gnu::always_inline]] inline void with_constant(std::int64_t n, F&& f) {
  if constexpr (kMax > 1) {
    if (n < kMax) return with_constant<kMax - 1>(n, f);
  }
  f.template operator()<kMax>();
}

/// Calls f.operator()<N>(begin) for blocks of N <= kMax of `count` tokens, of nearly equal size: 9
/// tokens are 5 + 4, not 8 + 1.
template <int kMax, class F>
[[gnu::always_inline]] inline void for_each_block(std::int64_t count, F&& f) {
  const std::int64_t blocks = (count + kMax - 1) / kMax;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t begin = b * count / blocks;
    with_constant<kMax>((b + 1) * count / blocks - begin,
                        [&]<int kTokens>() { f.template operator()<kTokens>(begin); });
  }
}

/// Any number of tokens: columns of a tile are decoded into the L1 cache, then multiplied with
/// blocks of tokens.
template <class Isa, class Format>
void multiply_many(const LinearPart& part, const Format& format) {
  const TileLayout& layout = *part.layout;
  const std::int64_t tiles = (part.num_rows + kTileRows - 1) / kTileRows;
  ManyScratch scratch;
  const std::byte* data[kMaxPartTiles];
  for (std::int64_t i = 0; i < tiles; ++i) {
    data[i] = part.weights + i * part.tile_bytes;
    for (std::int64_t t = 0; t < part.num_tokens; ++t) {
      for (int r = 0; r < kTileRows; r += Isa::kLanes)
        Isa::store(scratch.totals[i][t] + r, Isa::zero());
    }
  }
  for (std::int64_t k = 0; k < part.cols; k += kChunkCols) {
    const std::int64_t width = part.cols - k < kChunkCols ? part.cols - k : kChunkCols;
    if (layout.has_min) {
      for (std::int64_t t = 0; t < part.num_tokens; ++t)
        Isa::sum_groups(part.x + t * part.x_stride + k, width, layout.group, scratch.sums[t]);
    }
    for (std::int64_t i = 0; i < tiles; ++i) {
      data[i] = decode_columns<Isa, Format>(layout, format, data[i], width, scratch.tile);
      for_each_block<Isa::kBlockTokens>(part.num_tokens, [&]<int kTokens>(std::int64_t token) {
        multiply_decoded<Isa, kTokens>(part, scratch, i, token, k, width);
      });
    }
  }
  for (std::int64_t i = 0; i < tiles; ++i) {
    for (std::int64_t t = 0; t < part.num_tokens; ++t)
      store_totals<Isa>(scratch.totals[i][t], part, i * kTileRows, t);
  }
}

template <class Isa, class Format>
void multiply_format(const LinearPart& part) {
  const Format format(*part.layout);
  if (!part.few) return multiply_many<Isa, Format>(part, format);
  for (std::int64_t row = 0; row < part.num_rows; row += kTileRows) {
    for_each_block<Isa::kRegisterTokens>(part.num_tokens, [&]<int kTokens>(std::int64_t token) {
      multiply_few<Isa, Format, kTokens>(part, format, row, token);
    });
  }
}

template <class Isa>
void multiply_tiles(const LinearPart& part) {
  const TileLayout& layout = *part.layout;
  switch (layout.packing) {
    case Packing::kInt4: return multiply_format<Isa, typename Isa::Int4>(part);
    case Packing::kInt8: return multiply_format<Isa, typename Isa::Int8>(part);
    case Packing::kFloat: break;
    case Packing::kRows:
    case Packing::kGpuRows: return;  // linear() does not send them here
  }
  switch (layout.dtype) {
    case DType::kF32: return multiply_format<Isa, typename Isa::F32>(part);
    case DType::kF16: return multiply_format<Isa, typename Isa::F16>(part);
    default: return multiply_format<Isa, typename Isa::BF16>(part);
  }
}

}  // namespace
}  // namespace minisgl::kernels::cpu
