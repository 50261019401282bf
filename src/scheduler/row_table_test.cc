#include "scheduler/row_table.h"

#include <gtest/gtest.h>

#include <string>

#include "minisgl/error.h"

namespace minisgl {
namespace {

TEST(RowTableTest, HandsOutAscendingRowsAndTheLastFreedFirst) {
  RowTable rows(3);
  EXPECT_EQ(rows.allocate(), RowId{0});
  EXPECT_EQ(rows.allocate(), RowId{1});
  rows.free(RowId{0});
  EXPECT_EQ(rows.allocate(), RowId{0});
  EXPECT_EQ(rows.allocate(), RowId{2});
  EXPECT_EQ(rows.num_free(), 0);
}

TEST(RowTableTest, EmptyTablesAndWrongFreesAreErrors) {
  RowTable rows(1);
  const RowId row = rows.allocate();
  try {
    rows.allocate();
    FAIL() << "expected Error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("all 1 rows are in use"), std::string::npos);
  }
  EXPECT_THROW(rows.free(RowId{1}), Error) << "the dummy row";
  rows.free(row);
  try {
    rows.free(row);
    FAIL() << "expected Error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("row 0 is freed twice"), std::string::npos);
  }
  EXPECT_THROW(RowTable(0), Error);
}

}  // namespace
}  // namespace minisgl
