#include "engine/graph_checker.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/check.h"
#include "tensor/cuda/device.h"
#include "tensor/stream.h"

namespace minisgl {
namespace {

/// visit(std::byte* run, std::size_t bytes) for every contiguous run of the view, in order.
template <class Visit>
void for_each_run(const TensorView& view, const Visit& visit) {
  if (view.numel() == 0) return;
  if (view.is_contiguous()) {
    visit(view.data, static_cast<std::size_t>(view.bytes()));
    return;
  }
  check(view.rank() == 2 && view.stride(1) == 1,
        "a captured buffer is contiguous, or a matrix whose rows are");
  for (std::int64_t i = 0; i < view.dim(0); ++i)
    visit(view.data + bytes_of(view.dtype, i * view.stride(0)),
          static_cast<std::size_t>(bytes_of(view.dtype, view.dim(1))));
}

bool is_poison(const std::byte* data, std::size_t bytes) {
  return std::all_of(data, data + bytes, [](std::byte b) { return b == GraphChecker::kPoison; });
}

std::vector<std::byte> content_of(const TensorView& view) {
  std::vector<std::byte> content;
  for_each_run(view, [&](const std::byte* data, std::size_t bytes) {
    content.resize(content.size() + bytes);
    std::byte* to = content.data() + content.size() - bytes;
    if constexpr (cuda::kBuilt)
      if (!view.device.is_cpu()) return cuda::copy_now(to, data, bytes);
    std::memcpy(to, data, bytes);
  });
  return content;
}

/// Where the last element ends.
const std::byte* end_of(const TensorView& view) {
  std::int64_t last = 0;
  for (int i = 0; i < view.rank(); ++i) last += (view.dim(i) - 1) * view.stride(i);
  return view.data + bytes_of(view.dtype, last + 1);
}

[[noreturn]] void fail(const CapturedBuffer& buffer, const std::string& what) {
  throw Error("graph input " + buffer.name + " " + what);
}

}  // namespace

GraphChecker::Graph& GraphChecker::graph(std::int32_t num_rows) {
  const auto found = graphs_.find(num_rows);
  check(found != graphs_.end(), "no graph of ", num_rows, " rows is watched");
  return found->second;
}

void GraphChecker::add(std::int32_t num_rows, std::vector<CapturedBuffer> inputs,
                       std::vector<CapturedBuffer> metadata) {
  Graph watched;
  const auto take = [&](std::vector<CapturedBuffer>& buffers, bool whole) {
    for (CapturedBuffer& buffer : buffers) {
      for (const Watched& other : watched)
        if (other.buffer.name == buffer.name) fail(buffer, "is declared twice");
      if (buffer.view.data == nullptr) fail(buffer, "has no memory");
      Watched entry{.buffer = std::move(buffer), .whole = whole, .content = {}};
      if (entry.buffer.content == CapturedContent::kConstant)
        entry.content = content_of(entry.buffer.view);
      watched.push_back(std::move(entry));
    }
  };
  take(inputs, /*whole=*/true);
  take(metadata, /*whole=*/false);
  graphs_[num_rows] = std::move(watched);
  current_ = nullptr;
}

void GraphChecker::poison(std::int32_t num_rows, Stream& stream) {
  current_ = &graph(num_rows);
  for (Watched& entry : *current_) {
    entry.written = false;
    if (entry.buffer.content == CapturedContent::kConstant) continue;
    fill_with_poison(entry.buffer.view, stream);
  }
}

void GraphChecker::fill_with_poison(const TensorView& view, Stream& stream) {
  if (stream.device().is_cpu()) {
    as_cpu(stream).run([view](ThreadPool&) {
      for_each_run(view, [](std::byte* data, std::size_t bytes) {
        std::memset(data, static_cast<int>(kPoison), bytes);
      });
    });
    return;
  }
  for_each_run(view, [&](std::byte* data, std::size_t bytes) {
    const std::vector<std::byte> poison(bytes, kPoison);
    stream.copy(data, poison.data(), bytes);
    stream.synchronize();  // the copy has read `poison`
  });
}

void GraphChecker::written(std::string_view name, const TensorView& dst) {
  if (current_ == nullptr) return;  // not between poison() and verify(): a capture
  for (Watched& entry : *current_) {
    if (entry.buffer.name != name) continue;
    const TensorView& declared = entry.buffer.view;
    if (entry.buffer.content == CapturedContent::kConstant)
      fail(entry.buffer, "is written, but it was declared constant");
    if (dst.numel() > 0 && (dst.data < declared.data || end_of(dst) > end_of(declared)))
      fail(entry.buffer, "is written outside of the memory that was declared for it");
    entry.written = true;
    entry.unused = dst.numel() == 0;
    return;
  }
  throw Error("a replay writes " + std::string(name) + ", which is not a declared graph input");
}

void GraphChecker::verify(std::int32_t num_rows, Stream& stream) {
  Graph& watched = graph(num_rows);
  check(current_ == &watched, "a graph of ", num_rows, " rows is verified, but was not poisoned");
  current_ = nullptr;
  for (const Watched& entry : watched) {
    const bool constant = entry.buffer.content == CapturedContent::kConstant;
    if (!constant && !entry.written) fail(entry.buffer, "was not refreshed for this step");
    if (stream.device().is_cpu()) {
      as_cpu(stream).run([&entry](ThreadPool&) { check_content(entry); });
    } else {
      stream.synchronize();
      check_content(entry);
    }
  }
}

void GraphChecker::check_content(const Watched& entry) {
  const CapturedBuffer& buffer = entry.buffer;
  const std::vector<std::byte> now = content_of(buffer.view);
  if (buffer.content == CapturedContent::kConstant) {
    if (now != entry.content)
      fail(buffer, "was declared constant, but has changed since its capture");
    return;
  }
  if (entry.unused && !entry.whole) return;
  if (is_poison(now.data(), now.size())) fail(buffer, "was not refreshed for this step");
  const auto size = static_cast<std::size_t>(bytes_of(buffer.view.dtype, 1));
  for (std::size_t at = 0; entry.whole && at < now.size(); at += size)
    if (is_poison(now.data() + at, size))
      fail(buffer, "was not refreshed for this step in row " + std::to_string(at / size) + " of " +
                       std::to_string(now.size() / size));
}

void check_padding(const Batch& batch, TokenLoc dummy_loc) {
  const PageTable& table = *batch.page_table;
  const std::span<const TokenLoc> dummy = table.row(table.dummy_row());
  const auto moved =
      std::find_if(dummy.begin(), dummy.end(), [&](TokenLoc loc) { return loc != dummy_loc; });
  check(moved == dummy.end(), "the dummy row of the page table was written: entry ",
        moved - dummy.begin(), " is not ", dummy_loc);
  for (std::size_t i = 0; i < batch.rows.size(); ++i) {
    const BatchRow& row = batch.rows[i];
    if (static_cast<std::int32_t>(i) >= batch.num_rows) {
      check(row.row == table.dummy_row() && row.cached_len == 0 && row.device_len == 1, "row ", i,
            " is padding, but not one token of the dummy row");
      continue;
    }
    check(row.row != table.dummy_row(), "row ", i, " of a request is the dummy row");
    const std::span<const TokenLoc> locs =
        table.row(row.row).first(static_cast<std::size_t>(row.device_len));
    const auto bad = std::find_if(locs.begin(), locs.end(),
                                  [&](TokenLoc loc) { return loc < 0 || loc >= dummy_loc; });
    check(bad == locs.end(), "row ", i, " of a request has token ", bad - locs.begin(),
          " in the dummy page or outside of the pool, whose pages end at ", dummy_loc);
  }
}

}  // namespace minisgl
