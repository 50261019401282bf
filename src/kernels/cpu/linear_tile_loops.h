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

constexpr int kVecs = 2;               // vectors of rows that a loop carries along: a "set"
constexpr std::int64_t kAhead = 1024;  // bytes of prefetch; measured: 4 KB loses up to a third
constexpr int kStep = 8;               // k that are decoded at once
constexpr std::int64_t kChunkCols = 128;  // codes of 32 rows, decoded: 16 KB, half of the L1 cache

template <class Isa>
constexpr int kSetRows = Isa::kLanes* kVecs;
template <class Isa>
constexpr int kSets = kTileRows / kSetRows<Isa>;

// Adding up the products of one group needs FMAs with a latency of 4: with one token the chains of
// two groups run side by side.
constexpr int groups_at_once(int tokens) { return tokens == 1 ? 2 : 1; }

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

/// The sum of x over one group, from the sums over 16 columns.
[[gnu::always_inline]] inline float group_sum(const float* sums, int group) {
  return group == 16 ? sums[0] : sums[0] + sums[1];
}

/// Products of kGroups consecutive whole groups at column k, added to the totals.
template <class Isa, class Format, int kTokens, int kGroups>
[[gnu::always_inline]] inline void add_groups(
    const LinearPart& part, const Format& format, const std::byte* data, std::int64_t k,
    typename Isa::F (&totals)[kTokens][kSets<Isa>][kVecs]) {
  using F = typename Isa::F;
  const TileLayout& layout = *part.layout;
  const std::int64_t group_bytes = layout.group_bytes;
  const std::int64_t scale_bytes = layout.scale_bytes;
  const float* x[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) x[t] = part.x + t * part.x_stride + k;
#pragma GCC unroll 2
  for (int s = 0; s < kSets<Isa>; ++s) {
    F acc[kGroups][kTokens][kVecs];
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) {
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) acc[g][t][0] = acc[g][t][1] = Isa::zero();
      if (s == 0) prefetch(data + g * group_bytes + kAhead, scale_bytes);
    }
    for (int c = 0; c < layout.group; c += kStep) {
#pragma GCC unroll 2
      for (int g = 0; g < kGroups; ++g) {
        const std::byte* codes =
            data + g * group_bytes + scale_bytes + c * (kTileRows * Format::kBits / 8);
        if (s == 0) prefetch(codes + kAhead, kStep * kTileRows * Format::kBits / 8);
        const auto step = format.load(codes, s);
        const std::int64_t offset = g * layout.group + c;
#pragma GCC unroll 8
        for (int j = 0; j < kStep; ++j) {
          const F w0 = step.get(j, 0);
          const F w1 = step.get(j, 1);
#pragma GCC unroll 8
          for (int t = 0; t < kTokens; ++t) {
            const F broadcast = Isa::broadcast(x[t] + offset + j);
            acc[g][t][0] = Isa::fma(w0, broadcast, acc[g][t][0]);
            acc[g][t][1] = Isa::fma(w1, broadcast, acc[g][t][1]);
          }
        }
      }
    }
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) {
      const std::byte* scales = data + g * group_bytes;
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) {
        const int row = (s * kVecs + v) * Isa::kLanes;
        if (!Format::kScaled) {
#pragma GCC unroll 8
          for (int t = 0; t < kTokens; ++t) totals[t][s][v] = Isa::add(totals[t][s][v], acc[g][t][v]);
          continue;
        }
        const F scale = load_scale<Isa>(layout.scale, scales, row);
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t)
          totals[t][s][v] = Isa::fma(scale, acc[g][t][v], totals[t][s][v]);
        if (!layout.has_min) continue;
        const F min = load_scale<Isa>(layout.scale, scales, kTileRows + row);
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) {
          const float* sums = part.sums + (t * part.cols + k) / kSumCols + g * layout.group / 16;
          totals[t][s][v] =
              Isa::fma(min, Isa::set(group_sum(sums, layout.group)), totals[t][s][v]);
        }
      }
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
          const auto w = format.load(codes + (i - k) * (kTileRows * Format::kBits / 8), s).get(0, v);
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
    for (int i = 0; i < part.num_rows - row; ++i) y[i] = bias == nullptr ? totals[i] : totals[i] + bias[i];
    return;
  }
#pragma GCC unroll 4
  for (int i = 0; i < kTileRows; i += Isa::kLanes) {
    const auto total = Isa::load(totals + i);
    Isa::store(y + i, bias == nullptr ? total : Isa::add(total, Isa::load(bias + i)));
  }
}

/// kTokens tokens against all tiles, decoded in registers: each weight is read once.
template <class Isa, class Format, int kTokens>
void multiply_few(const LinearPart& part, const Format& format) {
  const TileLayout& layout = *part.layout;
  const std::int64_t group_bytes = layout.group_bytes;
  constexpr int kGroups = groups_at_once(kTokens);
  const std::byte* data = part.weights;
  for (std::int64_t row = 0; row < part.num_rows; row += kTileRows) {
    typename Isa::F totals[kTokens][kSets<Isa>][kVecs];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 2
      for (int s = 0; s < kSets<Isa>; ++s) totals[t][s][0] = totals[t][s][1] = Isa::zero();
    }
    std::int64_t k = 0;
    for (; k + kGroups * layout.group <= part.cols; k += kGroups * layout.group) {
      add_groups<Isa, Format, kTokens, kGroups>(part, format, data, k, totals);
      data += kGroups * group_bytes;
    }
    if (kGroups > 1) {
      for (; k + layout.group <= part.cols; k += layout.group) {
        add_groups<Isa, Format, kTokens, 1>(part, format, data, k, totals);
        data += group_bytes;
      }
    }
    if (k < part.cols) {
      add_rest<Isa, Format, kTokens>(part, format, data, k, totals);
      data += (part.cols - k) * (kTileRows * Format::kBits / 8);
    }
    for (int t = 0; t < kTokens; ++t) {
      alignas(64) float out[kTileRows];
      for (int s = 0; s < kSets<Isa>; ++s) {
        for (int v = 0; v < kVecs; ++v)
          Isa::store(out + (s * kVecs + v) * Isa::kLanes, totals[t][s][v]);
      }
      store_totals<Isa>(out, part, row, t);
    }
  }
}

/// Columns of a tile decoded to f32, and its scales.
struct alignas(64) DecodedTile {
  float codes[kChunkCols][kTileRows];
  float scales[kChunkCols / 16][kTileRows];
  float mins[kChunkCols / 16][kTileRows];
};

/// What a part of many tokens keeps on the stack: about 40 KB.
struct alignas(64) ManyScratch {
  DecodedTile tile;
  float totals[kMaxPartTokens][kTileRows];
  float sums[kMaxPartTokens][kChunkCols / kSumCols];
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
void multiply_decoded(const LinearPart& part, ManyScratch& scratch, std::int64_t token,
                      std::int64_t k, std::int64_t width) {
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
          float* total = scratch.totals[token + t] + first;
          F sum = Isa::load(total);
          if (layout.scale == ScaleType::kNone) {
            sum = Isa::add(sum, acc[t][v]);
          } else {
            sum = Isa::fma(Isa::load(tile.scales[g] + first), acc[t][v], sum);
            if (layout.has_min) {
              const float* sums = scratch.sums[token + t] + begin / kSumCols;
              sum = Isa::fma(Isa::load(tile.mins[g] + first),
                             Isa::set(group_sum(sums, layout.group)), sum);
            }
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

/// Any number of tokens: columns of a tile are decoded into the L1 cache, then multiplied with
/// blocks of tokens.
template <class Isa, class Format>
void multiply_many(const LinearPart& part, const Format& format) {
  const TileLayout& layout = *part.layout;
  const std::int64_t blocks = (part.num_tokens + Isa::kBlockTokens - 1) / Isa::kBlockTokens;
  ManyScratch scratch;
  const std::byte* data = part.weights;
  for (std::int64_t row = 0; row < part.num_rows; row += kTileRows) {
    for (std::int64_t t = 0; t < part.num_tokens; ++t) {
      for (int i = 0; i < kTileRows; i += Isa::kLanes) Isa::store(scratch.totals[t] + i, Isa::zero());
    }
    for (std::int64_t k = 0; k < part.cols; k += kChunkCols) {
      const std::int64_t width = part.cols - k < kChunkCols ? part.cols - k : kChunkCols;
      data = decode_columns<Isa, Format>(layout, format, data, width, scratch.tile);
      if (layout.has_min) {
        for (std::int64_t t = 0; t < part.num_tokens; ++t)
          Isa::sum_columns(part.x + t * part.x_stride + k, width, scratch.sums[t]);
      }
      // Blocks of nearly equal size: 9 tokens are 5 + 4, not 8 + 1.
      for (std::int64_t b = 0; b < blocks; ++b) {
        const std::int64_t begin = b * part.num_tokens / blocks;
        const std::int64_t end = (b + 1) * part.num_tokens / blocks;
        with_constant<Isa::kBlockTokens>(end - begin, [&]<int kTokens>() {
          multiply_decoded<Isa, kTokens>(part, scratch, begin, k, width);
        });
      }
    }
    for (std::int64_t t = 0; t < part.num_tokens; ++t)
      store_totals<Isa>(scratch.totals[t], part, row, t);
  }
}

template <class Isa, class Format>
void multiply_format(const LinearPart& part) {
  const Format format(*part.layout);
  if (part.num_tokens <= Isa::kFewTokens && part.sums != nullptr) {
    with_constant<Isa::kFewTokens>(part.num_tokens, [&]<int kTokens>() {
      multiply_few<Isa, Format, kTokens>(part, format);
    });
  } else {
    multiply_many<Isa, Format>(part, format);
  }
}

template <class Isa>
void multiply_tiles(const LinearPart& part) {
  const TileLayout& layout = *part.layout;
  switch (layout.packing) {
    case Packing::kInt4: return multiply_format<Isa, typename Isa::Int4>(part);
    case Packing::kInt8: return multiply_format<Isa, typename Isa::Int8>(part);
    case Packing::kFloat: break;
    case Packing::kRows: return;  // linear() does not send them here
  }
  switch (layout.dtype) {
    case DType::kF32: return multiply_format<Isa, typename Isa::F32>(part);
    case DType::kF16: return multiply_format<Isa, typename Isa::F16>(part);
    default: return multiply_format<Isa, typename Isa::BF16>(part);
  }
}

}  // namespace
}  // namespace minisgl::kernels::cpu
