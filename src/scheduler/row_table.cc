#include "scheduler/row_table.h"

#include "base/check.h"

namespace minisgl {

RowTable::RowTable(std::int32_t num_rows) {
  check(num_rows > 0, "row table: num_rows is ", num_rows, "; it must be at least 1");
  in_use_.assign(static_cast<std::size_t>(num_rows), 0);
  stack_.reserve(static_cast<std::size_t>(num_rows));
  for (std::int32_t row = num_rows - 1; row >= 0; --row) stack_.push_back({row});
}

RowId RowTable::allocate() {
  check(!stack_.empty(), "row table: all ", num_rows(), " rows are in use");
  const RowId row = stack_.back();
  stack_.pop_back();
  in_use_[row.value] = 1;
  return row;
}

void RowTable::free(RowId row) {
  check(row.value >= 0 && row.value < num_rows(), "row table: ", row.value,
        " is not a row; rows are 0 to ", num_rows() - 1);
  check(in_use_[row.value] != 0, "row table: row ", row.value, " is freed twice");
  in_use_[row.value] = 0;
  stack_.push_back(row);
}

}  // namespace minisgl
