// Attention of some rows (query token, query head) of one KV head to a range of keys.
//
// A tile of keys is transposed once, so that a vector holds one dimension of kW keys; then scores
// are sums over the dimensions in ascending order, each key in a lane of its own. Values are summed
// over the keys in ascending order, each dimension in a lane of its own. So no sum depends on how
// many rows are computed together, and a key that a row may not see is never added. Narrow keys and
// values are widened when they are read.

#include "kernels/attention_tiles.h"
#include "kernels/cpu/per_isa/functions.h"
#include "kernels/cpu/per_isa/transpose.h"
#include "kernels/cpu/per_isa/vec.h"

namespace minisgl::kernels::MINISGL_ISA {
namespace {

constexpr int kTile = kAttentionTile;
constexpr int kGroup = 6;                // rows computed together
constexpr int kOnceRows = 4;             // up to so many rows read keys without a transposed copy
constexpr int kVecs = kW == 16 ? 4 : 2;  // kGroup * kVecs sums stay in registers
constexpr int kMaxSum = 16;              // lanes of a row's running sum, at most

/// The running softmax of the rows of an item: over one split, or over all so far.
struct State {
  float* acc;  // [rows][padded]: sum of exp(score - max) * value
  float* max;  // [rows]
  float* sum;  // [rows] or, within a split, [rows][kMaxSum]
};

struct Scratch {
  float* keys;    // [head_dim][kTile]: a tile of keys, transposed
  float* values;  // [kTile][padded]: a copy of a tile of values, if they are narrow or head_dim is
                  // not whole vectors
  float* q;       // [rows][head_dim], scaled
  float* scores;  // [kGroup][kTile]
  State split;
  State total;
};

template <class T>
struct Tile {
  const T* k[kTile];  // rows of the keys; behind the last key the last one again
  const T* v[kTile];
  int count;
};

/// Which keys of a tile each row of a group sees: begin[r] <= key < end[r]. Both ascend with r.
struct Seen {
  int begin[kGroup];
  int end[kGroup];
};

template <class T>
constexpr bool kIsFloat = false;
template <>
constexpr bool kIsFloat<float> = true;

MINISGL_INLINE int at_most(int a, int b) { return a < b ? a : b; }
MINISGL_INLINE int at_least(int a, int b) { return a > b ? a : b; }

Scratch lay_out(float* memory, int padded) {
  Scratch s{};
  const auto take = [&](std::int64_t floats) {
    float* p = memory;
    memory += floats;
    return p;
  };
  s.keys = take(std::int64_t{kTile} * padded);
  s.values = take(std::int64_t{kTile} * padded);
  s.q = take(std::int64_t{kAttentionRows} * padded);
  s.split = {take(std::int64_t{kAttentionRows} * padded), take(kAttentionRows),
             take(std::int64_t{kAttentionRows} * kMaxSum)};
  s.total = {take(std::int64_t{kAttentionRows} * padded), take(kAttentionRows),
             take(kAttentionRows)};
  s.scores = take(std::int64_t{kGroup} * kTile);
  return s;
}

template <class T>
Tile<T> find_rows(const AttentionItem& item, int first_key, int count) {
  Tile<T> tile;
  tile.count = count;
  int page = first_key / item.page_size;
  int offset = first_key % item.page_size;
  for (int i = 0; i < kTile; ++i) {
    if (i < count) {
      const std::int64_t slot = std::int64_t{item.pages[page]} * item.page_size + offset;
      tile.k[i] = static_cast<const T*>(item.k) + slot * item.slot_stride;
      tile.v[i] = static_cast<const T*>(item.v) + slot * item.slot_stride;
      if (++offset == item.page_size) {
        offset = 0;
        ++page;
      }
    } else {
      tile.k[i] = tile.k[count - 1];
      tile.v[i] = tile.v[count - 1];
    }
  }
  return tile;
}

/// Rows of the tile after the one at work, to be asked for meanwhile; null if there is none. They
/// are asked for where the same part of this tile is read: all at once, they would keep the loads
/// that the computation waits for from being sent. Into the second-level cache, because the first
/// has no room for two tiles.
template <class T>
struct Ahead {
  const T* const* k = nullptr;
  const T* const* v = nullptr;
};

MINISGL_INLINE void ask_for(const void* p) { __builtin_prefetch(p, /*rw=*/0, /*locality=*/2); }

/// keys[d][i] = rows[i][d] for the first `count` keys (rounded up to whole vectors).
template <class T>
void transpose_tile(const T* const* rows, int count, int head_dim, float* keys,
                    const Ahead<T>& ahead) {
  for (int first = 0; first < count; first += kW) {
    int d = 0;
    for (; d + kW <= head_dim; d += kW) {
      if (ahead.k != nullptr)
        for (int i = 0; i < kW; ++i) ask_for(ahead.k[first + i] + d);
      Vec m[kW];
      for (int i = 0; i < kW; ++i) m[i] = load(rows[first + i] + d);
      transpose(m);
      for (int i = 0; i < kW; ++i) store(keys + (d + i) * kTile + first, m[i]);
    }
    for (; d < head_dim; ++d)
      for (int i = 0; i < kW; ++i) keys[d * kTile + first + i] = widen(rows[first + i][d]);
  }
}

/// The same sums as score() in the same order, of keys that are transposed on the way: for so few
/// rows that a transposed copy would cost more than it saves.
template <int kRows, class T>
void score_once(const float* q, const T* const* rows, int head_dim, int count, float* scores,
                const Ahead<T>& ahead) {
  for (int first = 0; first < count; first += kW) {
    Vec acc[kRows] = {};
    int d = 0;
    for (; d + kW <= head_dim; d += kW) {
      if (ahead.k != nullptr)
        for (int i = 0; i < kW; ++i) ask_for(ahead.k[first + i] + d);
      Vec m[kW];
      for (int i = 0; i < kW; ++i) m[i] = load(rows[first + i] + d);
      transpose(m);
      for (int i = 0; i < kW; ++i)
        for (int r = 0; r < kRows; ++r) acc[r] = fma(set1(q[r * head_dim + d + i]), m[i], acc[r]);
    }
    for (; d < head_dim; ++d) {
      Vec k;
      for (int i = 0; i < kW; ++i) k[i] = widen(rows[first + i][d]);
      for (int r = 0; r < kRows; ++r) acc[r] = fma(set1(q[r * head_dim + d]), k, acc[r]);
    }
    for (int r = 0; r < kRows; ++r) store(scores + r * kTile + first, acc[r]);
  }
}

/// scores[r][i] = sum_d q[r][d] keys[d][i] for the first `count` keys.
template <int kRows>
void score(const float* q, const float* keys, int head_dim, int count, float* scores) {
  for (int first = 0; first < count; first += kVecs * kW) {
    Vec acc[kRows][kVecs] = {};
    for (int d = 0; d < head_dim; ++d) {
      Vec k[kVecs];
      for (int j = 0; j < kVecs; ++j) k[j] = load(keys + d * kTile + first + j * kW);
      for (int r = 0; r < kRows; ++r) {
        const Vec x = set1(q[r * head_dim + d]);
        for (int j = 0; j < kVecs; ++j) acc[r][j] = fma(x, k[j], acc[r][j]);
      }
    }
    for (int r = 0; r < kRows; ++r)
      for (int j = 0; j < kVecs; ++j) store(scores + r * kTile + first + j * kW, acc[r][j]);
  }
}

MINISGL_INLINE Vec cap_score(Vec score, float cap) { return set1(cap) * tanh(score / set1(cap)); }

/// Scores of the keys [begin, end) of a tile, which are not none, become exp(score - max), and the
/// row's maximum and sum go on. Returns what the earlier sums must be multiplied by.
MINISGL_INLINE float soften(float* scores, int begin, int end, float& running_max,
                            float* running_sum) {
  const auto keep = [&](Vec v, int i, float other) {
    v = keep_first(v, end - i, other);
    return begin > i ? drop_first(v, begin - i, other) : v;
  };
  const int first = begin / kW * kW;
  Vec best = set1(-__builtin_inff());
  for (int i = first; i < end; i += kW)
    best = max(best, keep(load(scores + i), i, -__builtin_inff()));
  const float old_max = running_max;
  const float tile_max = max_lane(best);
  const float new_max = tile_max > old_max ? tile_max : old_max;
  const Vec factor = exp(set1(old_max) - set1(new_max));
  Vec sums = load(running_sum) * factor;
  for (int i = first; i < end; i += kW) {
    const Vec p = keep(exp(load(scores + i) - set1(new_max)), i, 0.0F);
    store(scores + i, p);
    sums += p;
  }
  store(running_sum, sums);
  running_max = new_max;
  return factor[0];
}

/// acc[r] = acc[r] * factor[r] + sum of scores[r][i] values[i] over keys [begin, end), for kNum
/// vectors of dimensions.
template <int kRows, int kNum>
void add_values(const float* scores, const float* factors, const float* const* values, int begin,
                int end, int first_dim, int padded, float* acc, const float* const* ahead) {
  Vec sums[kRows][kNum];
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < kNum; ++j)
      sums[r][j] = load(acc + r * padded + first_dim + j * kW) * set1(factors[r]);
  for (int i = begin; i < end; ++i) {
    if (ahead != nullptr)
      for (int j = 0; j < kNum; ++j) ask_for(ahead[i] + first_dim + j * kW);
    Vec v[kNum];
    for (int j = 0; j < kNum; ++j) v[j] = load(values[i] + first_dim + j * kW);
    for (int r = 0; r < kRows; ++r) {
      const Vec p = set1(scores[r * kTile + i]);
      for (int j = 0; j < kNum; ++j) sums[r][j] = fma(p, v[j], sums[r][j]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < kNum; ++j) store(acc + r * padded + first_dim + j * kW, sums[r][j]);
}

template <int kN>
struct Int {
  static constexpr int value = kN;
};

/// The same for all dimensions.
template <int kRows>
void add_all_values(const float* scores, const float* factors, const float* const* values,
                    int begin, int end, int num_vecs, int padded, float* acc,
                    const float* const* ahead) {
  int j = 0;
  const auto run = [&](auto num) {
    add_values<kRows, num.value>(scores, factors, values, begin, end, j * kW, padded, acc, ahead);
    j += num.value;
  };
  while (num_vecs - j >= kVecs) run(Int<kVecs>{});
  if (num_vecs - j == 3) run(Int<3>{});
  if (num_vecs - j == 2) run(Int<2>{});
  if (num_vecs - j == 1) run(Int<1>{});
}

/// One tile for kRows rows. The keys are in s.keys, unless `keys` says where else.
template <int kRows, class T>
void tile_for_rows(const AttentionItem& item, const Scratch& s, const T* const* keys,
                   const float* const* values, int row, const Seen& seen, const Ahead<T>& ahead) {
  const int padded = (item.head_dim + 15) / 16 * 16;
  const int num_vecs = (item.head_dim + kW - 1) / kW;
  const int count = seen.end[kRows - 1];
  const float* q = s.q + row * item.head_dim;
  if (keys != nullptr) {
    score_once<kRows>(q, keys, item.head_dim, count, s.scores, ahead);
  } else {
    score<kRows>(q, s.keys, item.head_dim, count, s.scores);
  }
  if (item.softcap != 0) {
    for (int r = 0; r < kRows; ++r)
      for (int i = 0; i < count; i += kW)
        store(s.scores + r * kTile + i, cap_score(load(s.scores + r * kTile + i), item.softcap));
  }
  float factors[kRows];
  for (int r = 0; r < kRows; ++r) {
    factors[r] = 1;
    if (seen.begin[r] < seen.end[r])
      factors[r] = soften(s.scores + r * kTile, seen.begin[r], seen.end[r], s.split.max[row + r],
                          s.split.sum + (row + r) * kMaxSum);
  }
  // Keys that all rows see are added together; those before and after them for each row alone.
  float* acc = s.split.acc + row * padded;
  const auto add_alone = [&](int r, int begin, int end) {
    if (begin >= end) return;
    add_all_values<1>(s.scores + r * kTile, &factors[r], values, begin, end, num_vecs, padded,
                      acc + r * padded, nullptr);
    factors[r] = 1;
  };
  const int begin = seen.begin[kRows - 1];
  const int end = seen.end[0];
  if (begin >= end) {
    for (int r = 0; r < kRows; ++r) add_alone(r, seen.begin[r], seen.end[r]);
    return;
  }
  for (int r = 0; r < kRows - 1; ++r) add_alone(r, seen.begin[r], begin);
  const float* const* ask = nullptr;
  if constexpr (kIsFloat<T>) ask = ahead.v;
  add_all_values<kRows>(s.scores, factors, values, begin, end, num_vecs, padded, acc, ask);
  for (int r = 1; r < kRows; ++r) {
    factors[r] = 1;
    add_alone(r, end, seen.end[r]);
  }
}

template <class T>
void tile_for_rows(int rows, const AttentionItem& item, const Scratch& s, const T* const* keys,
                   const float* const* values, int row, const Seen& seen, const Ahead<T>& ahead) {
  switch (rows) {
    case 1: return tile_for_rows<1>(item, s, keys, values, row, seen, ahead);
    case 2: return tile_for_rows<2>(item, s, keys, values, row, seen, ahead);
    case 3: return tile_for_rows<3>(item, s, keys, values, row, seen, ahead);
    case 4: return tile_for_rows<4>(item, s, keys, values, row, seen, ahead);
    case 5: return tile_for_rows<5>(item, s, keys, values, row, seen, ahead);
    default: return tile_for_rows<kGroup>(item, s, keys, values, row, seen, ahead);
  }
}

/// One past the last key that row `row` of the item sees, and the first.
MINISGL_INLINE int end_of(const AttentionItem& item, int row) {
  return item.first_visible + (item.first_row + row) / item.group;
}
MINISGL_INLINE int begin_of(const AttentionItem& item, int row) {
  return item.window == 0 ? 0 : at_least(0, end_of(item, row) - item.window);
}

/// Values that are narrow, or whose rows are not whole vectors, are copied, zeros behind them.
template <class T>
const float* const* whole_vectors(const AttentionItem& item, const Tile<T>& tile, const Scratch& s,
                                  const float** copies, const Ahead<T>& ahead) {
  if constexpr (kIsFloat<T>) {
    if (item.head_dim % kW == 0) return tile.v;
  }
  const int padded = (item.head_dim + 15) / 16 * 16;
  for (int i = 0; i < tile.count; ++i) {
    float* copy = s.values + i * padded;
    int d = 0;
    for (; d + kW <= item.head_dim; d += kW) {
      if (ahead.v != nullptr && !kIsFloat<T>) ask_for(ahead.v[i] + d);
      store(copy + d, load(tile.v[i] + d));
    }
    if (d < item.head_dim) store(copy + d, load_part(tile.v[i] + d, item.head_dim - d));
    copies[i] = copy;
  }
  return copies;
}

/// All rows against one tile, whose first key is `first_key`.
template <class T>
void walk_tile(const AttentionItem& item, const Scratch& s, int first_key, const Tile<T>& tile,
               const Tile<T>* next) {
  Ahead<T> ahead;
  if (next != nullptr) ahead = {next->k, next->v};
  const float* copies[kTile];
  const float* const* values = whole_vectors(item, tile, s, copies, ahead);
  const T* const* keys = tile.k;
  if (item.num_rows > kOnceRows) {
    transpose_tile(tile.k, tile.count, item.head_dim, s.keys, ahead);
    keys = nullptr;
  }
  for (int row = 0; row < item.num_rows; row += kGroup) {
    const int rows = at_most(kGroup, item.num_rows - row);
    Seen seen;
    bool any = false;
    for (int r = 0; r < rows; ++r) {
      seen.begin[r] = at_least(0, begin_of(item, row + r) - first_key);
      seen.end[r] = at_least(0, at_most(end_of(item, row + r) - first_key, kTile));
      any |= seen.begin[r] < seen.end[r];
    }
    if (any) tile_for_rows(rows, item, s, keys, values, row, seen, ahead);
    ahead = {};
  }
}

void start_split(const AttentionItem& item, const Scratch& s, int padded) {
  __builtin_memset(s.split.acc, 0, sizeof(float) * item.num_rows * padded);
  __builtin_memset(s.split.sum, 0, sizeof(float) * item.num_rows * kMaxSum);
  for (int row = 0; row < item.num_rows; ++row) s.split.max[row] = -__builtin_inff();
}

/// Adds the state of a row's next split to that of the splits before it.
void merge(const float* acc, float max, float sum, int n, float* total_acc, float& total_max,
           float& total_sum) {
  const float new_max = max > total_max ? max : total_max;
  const float old_factor = exp(set1(total_max) - set1(new_max))[0];
  const float new_factor = exp(set1(max) - set1(new_max))[0];
  total_max = new_max;
  total_sum = total_sum * old_factor + sum * new_factor;
  for (int d = 0; d < n; ++d) total_acc[d] = total_acc[d] * old_factor + acc[d] * new_factor;
}

void finish(const float* acc, float sum, int n, float* out) {
  const float inverse = 1.0F / sum;
  for (int d = 0; d < n; ++d) out[d] = acc[d] * inverse;
}

/// Hands the state of a split to whoever merges: the item itself, or attention_merge().
void end_split(const AttentionItem& item, const Scratch& s, int split, int padded) {
  const int first_key = split * kAttentionSplit;
  for (int row = 0; row < item.num_rows; ++row) {
    const int begin = begin_of(item, row);
    if (end_of(item, row) <= first_key || begin >= first_key + kAttentionSplit) continue;
    const float* acc = s.split.acc + row * padded;
    const float max = s.split.max[row];
    const float sum_of_row = sum(load(s.split.sum + row * kMaxSum));
    float* total = s.total.acc + row * padded;
    if (item.partial != nullptr) {
      const int number = item.first_row + row;
      total = item.partial + number / item.group * item.partial_token_stride +
              number % item.group * item.partial_head_stride +
              (split - item.split_begin) * item.partial_split_stride;
      total[padded] = max;
      total[padded + 1] = sum_of_row;
    } else if (begin < first_key) {
      merge(acc, max, sum_of_row, item.head_dim, total, s.total.max[row], s.total.sum[row]);
      continue;
    } else {
      s.total.max[row] = max;
      s.total.sum[row] = sum_of_row;
    }
    __builtin_memcpy(total, acc, sizeof(float) * item.head_dim);
  }
}

template <class T>
void run_item(const AttentionItem& item, float* scratch) {
  const int padded = (item.head_dim + 15) / 16 * 16;
  const Scratch s = lay_out(scratch, padded);
  for (int row = 0; row < item.num_rows; ++row) {
    const int token = (item.first_row + row) / item.group;
    const int head = (item.first_row + row) % item.group;
    const float* q = item.q + token * item.q_token_stride + head * item.q_head_stride;
    for (int d = 0; d < item.head_dim; ++d) s.q[row * item.head_dim + d] = q[d] * item.scale;
  }

  // Tiles that no row sees are passed over, in steps of whole tiles from position 0.
  const int all_keys = at_most(end_of(item, item.num_rows - 1), item.split_end * kAttentionSplit);
  int key = at_least(item.split_begin * kAttentionSplit, begin_of(item, 0) / kTile * kTile);
  Tile<T> tiles[2];  // the current one and the next in turn
  if (key < all_keys)
    tiles[key / kTile % 2] = find_rows<T>(item, key, at_most(all_keys - key, kTile));
  while (key < all_keys) {
    const int split = key / kAttentionSplit;
    const int end = at_most(all_keys, (split + 1) * kAttentionSplit);
    start_split(item, s, padded);
    for (; key < end; key += kTile) {
      const int after = key + kTile;
      const bool more = after < all_keys;
      if (more)
        tiles[after / kTile % 2] = find_rows<T>(item, after, at_most(all_keys - after, kTile));
      walk_tile<T>(item, s, key, tiles[key / kTile % 2],
                   more ? &tiles[after / kTile % 2] : nullptr);
    }
    end_split(item, s, split, padded);
  }
  if (item.partial != nullptr) return;

  for (int row = 0; row < item.num_rows; ++row) {
    const int token = (item.first_row + row) / item.group;
    const int head = (item.first_row + row) % item.group;
    finish(s.total.acc + row * padded, s.total.sum[row], item.head_dim,
           item.out + token * item.out_token_stride + head * item.out_head_stride);
  }
}

}  // namespace

void attention_item(const AttentionItem& item, float* scratch) {
  switch (item.kv_type) {
    case KvType::kF32: return run_item<float>(item, scratch);
    case KvType::kBF16: return run_item<Bf16>(item, scratch);
    case KvType::kF16: return run_item<F16>(item, scratch);
  }
}

void softcap_scores(float* scores, std::int64_t n, float cap) {
  for (std::int64_t i = 0; i < n; i += kW) {
    const std::int64_t count = n - i < kW ? n - i : kW;
    store_part(scores + i, cap_score(load_part(scores + i, count), cap), count);
  }
}

void attention_merge(const AttentionMerge& job) {
  const int padded = (job.head_dim + 15) / 16 * 16;
  float acc[256];
  __builtin_memcpy(acc, job.partial, sizeof(float) * job.head_dim);
  float max = job.partial[padded];
  float sum = job.partial[padded + 1];
  for (int split = 1; split < job.num_splits; ++split) {
    const float* next = job.partial + split * job.split_stride;
    merge(next, next[padded], next[padded + 1], job.head_dim, acc, max, sum);
  }
  finish(acc, sum, job.head_dim, job.out);
}

}  // namespace minisgl::kernels::MINISGL_ISA
