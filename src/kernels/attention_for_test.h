// For tests of attention: sequences in a paged pool, and every way to attend to them.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "base/math.h"
#include "kernels/attention.h"
#include "kernels/attention_ragged.h"
#include "kernels/ref/reference.h"
#include "tensor/half.h"
#include "testing/random.h"

namespace minisgl::kernels {

/// Which code computes, and from which arguments.
enum class How {
  kPaged,    ///< paged_attention()
  kRagged,   ///< ragged_attention(), planned for as many workers as the stream has threads
  kOracle,   ///< ref::paged_attention(): double
  kInOrder,  ///< ref::paged_attention_in_order()
};

struct Heads {
  std::int32_t q = 9, kv = 3, dim = 64;
};

/// Sequences whose queries, keys and values are a function of (sequence, position) alone, in a pool
/// of shuffled pages.
class Sequences {
 public:
  struct Options {
    bool heads_apart = false;
    DType dtype = DType::kF32;
    float amplitude = 3;  // of queries and keys; values are in [-1, 1)
  };
  Sequences(Heads heads, std::vector<std::int32_t> lengths, std::int32_t page_size)
      : Sequences(heads, std::move(lengths), page_size, Options()) {}
  Sequences(Heads heads, std::vector<std::int32_t> lengths, std::int32_t page_size,
            const Options& options)
      : heads_(heads),
        lengths_(std::move(lengths)),
        page_size_(page_size),
        amplitude_(options.amplitude) {
    for (const std::int32_t length : lengths_)
      max_pages_ = std::max(max_pages_, ceil_div(length, page_size));
    const std::int64_t pages = max_pages_ * static_cast<std::int64_t>(lengths_.size()) + 1;
    table_ = Tensor({static_cast<std::int64_t>(lengths_.size()), max_pages_}, DType::kI32);
    auto* table = table_.view().as<std::int32_t>();
    std::iota(table, table + table_.view().numel(), 1);
    testing_util::Random random(99);
    for (std::int64_t i = table_.view().numel() - 1; i > 0; --i)
      std::swap(table[i], table[random.below(i + 1)]);

    const std::int64_t slots = pages * page_size;
    pool_ = Tensor({2, slots, heads.kv, heads.dim}, options.dtype);
    // What no sequence owns must not matter: all ones is a NaN in every type.
    std::memset(pool_.view().data, 0xFF, static_cast<std::size_t>(pool_.view().bytes()));
    kv_ = {.k = pool_.view().data,
           .v = pool_.view().slice(1, 2).data,
           .dtype = options.dtype,
           .num_heads = heads.kv,
           .head_dim = heads.dim,
           .slot_stride = std::int64_t{heads.kv} * heads.dim,
           .head_stride = heads.dim,
           .num_slots = slots,
           .page_size = page_size};
    if (options.heads_apart) {
      kv_.slot_stride = heads.dim;
      kv_.head_stride = slots * heads.dim;
    }
    for (std::size_t seq = 0; seq < lengths_.size(); ++seq)
      for (std::int32_t key = 0; key < lengths_[seq]; ++key)
        store(static_cast<std::int64_t>(seq), key);
  }

  std::int32_t window_tokens = 0;
  float softcap = 0;

  /// Overwrites keys [begin, end) with NaN.
  void poison(std::int64_t seq, std::int32_t begin, std::int32_t end) {
    for (std::int32_t key = begin; key < end; ++key)
      for (std::int32_t head = 0; head < heads_.kv; ++head)
        for (std::byte* side : {kv_.k, kv_.v})
          std::memset(side + bytes_of(kv_.dtype, offset_of(seq, key, head)), 0xFF,
                      static_cast<std::size_t>(bytes_of(kv_.dtype, heads_.dim)));
  }

  /// Rows of a step: tokens [begin, end) of a sequence.
  struct Row {
    std::int64_t seq;
    std::int32_t begin, end;
  };

  /// Output [tokens][q_heads][dim] of a step.
  std::vector<float> attend(const std::vector<Row>& rows, CpuStream& stream,
                            How how = How::kPaged) const {
    std::int64_t tokens = 0;
    Tensor cu({static_cast<std::int64_t>(rows.size()) + 1}, DType::kI32);
    Tensor seqlens({static_cast<std::int64_t>(rows.size())}, DType::kI32);
    Tensor table({static_cast<std::int64_t>(rows.size()), max_pages_}, DType::kI32);
    PagedAttentionArgs args;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      tokens += rows[i].end - rows[i].begin;
      cu.view().as<std::int32_t>()[i + 1] = static_cast<std::int32_t>(tokens);
      seqlens.view().as<std::int32_t>()[i] = rows[i].end;
      std::memcpy(table.view().as<std::int32_t>() + i * max_pages_,
                  table_.view().as<std::int32_t>() + rows[i].seq * max_pages_,
                  sizeof(std::int32_t) * max_pages_);
      args.max_seqlen_q = std::max(args.max_seqlen_q, rows[i].end - rows[i].begin);
      args.max_seqlen_k = std::max(args.max_seqlen_k, rows[i].end);
    }
    Tensor q({tokens, heads_.q, heads_.dim}, DType::kF32);
    Tensor out({tokens, heads_.q, heads_.dim}, DType::kF32);
    float* to = q.view().as<float>();
    for (const Row& row : rows) {
      for (std::int32_t position = row.begin; position < row.end; ++position) {
        testing_util::Random random(row.seq * 1000003 + position * 3 + 2);
        for (std::int64_t i = 0; i < heads_.q * heads_.dim; ++i)
          *to++ = random.uniform() * amplitude_;
      }
    }
    args.q = q;
    args.kv = kv_;
    args.cu_seqlens_q = cu;
    args.cache_seqlens = seqlens;
    args.page_table = table;
    args.scale = 1.0F / std::sqrt(static_cast<float>(heads_.dim));
    args.window_tokens = window_tokens;
    args.softcap = softcap;
    args.out = out;
    switch (how) {
      case How::kOracle: ref::paged_attention(args); break;
      case How::kInOrder: {
        const Tensor workspace({2, heads_.dim}, DType::kF32);
        ref::paged_attention_in_order(args, workspace);
        break;
      }
      case How::kRagged: run_ragged(args, stream); break;
      case How::kPaged: {
        const Tensor workspace(
            {paged_attention_workspace_bytes(tokens, heads_.q, heads_.dim, args.max_seqlen_k,
                                             stream.num_threads())},
            DType::kU8);
        paged_attention(args, workspace, stream);
        stream.synchronize();
      }
    }
    const float* from = out.view().as<float>();
    return {from, from + out.view().numel()};
  }

  std::int64_t token_floats() const { return std::int64_t{heads_.q} * heads_.dim; }

 private:
  static Tensor ints(const std::vector<std::int32_t>& values, const Shape& shape) {
    Tensor tensor(shape, DType::kI32);
    std::copy(values.begin(), values.end(), tensor.view().as<std::int32_t>());
    return tensor;
  }

  /// The same step in the other arguments.
  void run_ragged(const PagedAttentionArgs& args, CpuStream& stream) const {
    const auto num_rows = args.cache_seqlens.dim(0);
    std::vector<std::int32_t> kv_indptr = {0}, kv_indices, last_page_len;
    std::vector<AttentionPlanRow> rows;
    for (std::int64_t i = 0; i < num_rows; ++i) {
      const std::int32_t keys = args.cache_seqlens.as<std::int32_t>()[i];
      const auto* cu = args.cu_seqlens_q.as<std::int32_t>();
      rows.push_back({cu[i + 1] - cu[i], keys});
      const auto* pages = args.page_table.as<std::int32_t>() + i * args.page_table.stride(0);
      kv_indices.insert(kv_indices.end(), pages, pages + ceil_div(keys, page_size_));
      kv_indptr.push_back(static_cast<std::int32_t>(kv_indices.size()));
      last_page_len.push_back((keys - 1) % page_size_ + 1);
    }
    const std::int32_t workers = stream.num_threads();
    AttentionPlanner planner({.num_heads = heads_.q,
                              .num_kv_heads = heads_.kv,
                              .head_dim = heads_.dim,
                              .window_tokens = window_tokens,
                              .num_workers = workers});
    planner.plan(rows);
    std::vector<std::int32_t> indptr(workers + 1);
    std::vector<std::int32_t> items(planner.num_items() * WorkItem::kNumFields);
    std::vector<std::int32_t> merges(planner.num_merges() * WorkItem::kNumFields);
    planner.write(indptr, items, merges);
    const Tensor kv_indptr_t = ints(kv_indptr, {num_rows + 1});
    const Tensor kv_indices_t = ints(kv_indices, {static_cast<std::int64_t>(kv_indices.size())});
    const Tensor last_page_len_t = ints(last_page_len, {num_rows});
    const Tensor indptr_t = ints(indptr, {workers + 1});
    const Tensor items_t = ints(items, {planner.num_items(), WorkItem::kNumFields});
    const Tensor merges_t = ints(merges, {planner.num_merges(), WorkItem::kNumFields});
    const Tensor num_merges_t = ints({static_cast<std::int32_t>(planner.num_merges())}, {1});
    const Tensor workspace({ragged_attention_workspace_bytes(heads_.dim, workers)}, DType::kU8);
    ragged_attention({.q = args.q,
                      .kv = args.kv,
                      .qo_indptr = args.cu_seqlens_q,
                      .kv_indptr = kv_indptr_t,
                      .kv_indices = kv_indices_t,
                      .kv_last_page_len = last_page_len_t,
                      .plan = {indptr_t, items_t, merges_t, num_merges_t},
                      .scale = args.scale,
                      .window_tokens = args.window_tokens,
                      .softcap = args.softcap,
                      .out = args.out},
                     workspace, stream);
    stream.synchronize();
  }

  /// Of the element (key, head, 0), in elements.
  std::int64_t offset_of(std::int64_t seq, std::int32_t key, std::int32_t head) const {
    const std::int64_t page = table_.view().as<std::int32_t>()[seq * max_pages_ + key / page_size_];
    const std::int64_t slot = page * page_size_ + key % page_size_;
    return slot * kv_.slot_stride + head * kv_.head_stride;
  }

  void put(std::byte* side, std::int64_t at, float value) {
    switch (kv_.dtype) {
      case DType::kBF16: reinterpret_cast<BFloat16*>(side)[at] = to_bf16(value); break;
      case DType::kF16: reinterpret_cast<Half*>(side)[at] = to_f16(value); break;
      default: reinterpret_cast<float*>(side)[at] = value;
    }
  }

  void store(std::int64_t seq, std::int32_t key) {
    testing_util::Random random(seq * 1000003 + key * 3 + 1);
    for (std::int32_t head = 0; head < heads_.kv; ++head) {
      const std::int64_t at = offset_of(seq, key, head);
      for (std::int32_t d = 0; d < heads_.dim; ++d) {
        put(kv_.k, at + d, random.uniform() * amplitude_);
        put(kv_.v, at + d, random.uniform());
      }
    }
  }

  Heads heads_;
  std::vector<std::int32_t> lengths_;
  std::int32_t page_size_;
  float amplitude_;
  std::int32_t max_pages_ = 1;
  Tensor table_, pool_;
  KvView kv_;
};

}  // namespace minisgl::kernels
