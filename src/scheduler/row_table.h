#pragma once

#include <cstdint>
#include <vector>

#include "base/types.h"

namespace minisgl {

/// Which rows of the page table are free. Rows 0 .. num_rows - 1; the row freed last is handed out
/// first. Not thread-safe. Source: mini-sglang scheduler/table.py.
class RowTable {
 public:
  /// Throws Error if num_rows < 1.
  explicit RowTable(std::int32_t num_rows);

  std::int32_t num_rows() const { return static_cast<std::int32_t>(in_use_.size()); }
  std::int32_t num_free() const { return static_cast<std::int32_t>(stack_.size()); }

  /// Throws Error when none is free.
  RowId allocate();
  /// Throws Error naming the row if it is free already, or no row.
  void free(RowId row);

 private:
  std::vector<RowId> stack_;
  std::vector<std::uint8_t> in_use_;
};

}  // namespace minisgl
