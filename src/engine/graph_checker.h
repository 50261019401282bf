// Finds inputs of a graph that nobody refreshes.

#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "core/batch.h"
#include "core/capture.h"

namespace minisgl {

/// Watches the buffers that a graph declares. A step is poison(), the copies, verify(), the replay:
///
///  1. poison() fills every refreshed buffer, stale parts included, with bytes that are no valid
///     length, location, page or token.
///  2. written() is called for each copy. One to a name that is not declared, or outside of the
///     memory that is declared for it, is an Error. A copy of no elements says that the step has
///     none: a plan without merges, say.
///  3. verify() throws Error naming the first buffer that was not written, or that holds only
///     poison (a copy that was announced and never made), or, for one of the model's own inputs,
///     that holds poison in some row; and one that was declared constant and is not what it was at
///     its capture.
///
/// Poison that is left beyond what a step uses (the columns of a page table behind a row's pages)
/// must not matter, and is not looked for: a kernel that reads it leaves the pool or the table,
/// which a sanitizer sees. Works for any backend, since it knows only what is declared. Not
/// thread-safe. On a CPU all happens on the stream, in its order; on a GPU verify() waits for it.
class GraphChecker {
 public:
  /// `inputs` are the model's own, of which every element is refreshed; `metadata` is the
  /// backend's. Keeps the content of the constant ones: call it when they are written. Throws Error
  /// if two have one name or one has no memory.
  void add(std::int32_t num_rows, std::vector<CapturedBuffer> inputs,
           std::vector<CapturedBuffer> metadata);

  void poison(std::int32_t num_rows, Stream& stream);
  /// `dst` is what the copy to `name` will write.
  void written(std::string_view name, const TensorView& dst);
  void verify(std::int32_t num_rows, Stream& stream);

  /// What poison() fills buffers with: -1515870811 as an int32.
  static constexpr std::byte kPoison{0xA5};

 private:
  struct Watched {
    CapturedBuffer buffer;
    bool whole = false;              // every element is refreshed
    std::vector<std::byte> content;  // of a constant one, at its capture
    bool written = false;
    bool unused = false;  // written, with nothing: the step has no such values
  };
  using Graph = std::vector<Watched>;

  static void check_content(const Watched& entry);

  Graph& graph(std::int32_t num_rows);
  void fill_with_poison(const TensorView& view, Stream& stream);

  std::map<std::int32_t, Graph> graphs_;  // by number of rows
  Graph* current_ = nullptr;
};

/// Throws Error if padding and requests touch each other: a row of a request that is the dummy row,
/// or that has a location of the dummy page among its own; a padding row that is not one token of
/// the dummy row; a dummy row that does not lie at `dummy_loc` throughout. O(tokens of all rows).
void check_padding(const Batch& batch, TokenLoc dummy_loc);

}  // namespace minisgl
