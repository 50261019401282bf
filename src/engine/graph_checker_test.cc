#include "engine/graph_checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "minisgl/error.h"
#include "tensor/stream.h"

namespace minisgl {
namespace {

using testing::HasSubstr;

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

/// A graph of two rows: an input, and a table of three columns and a constant of a made-up backend.
class GraphCheckerTest : public testing::Test {
 protected:
  GraphCheckerTest() {
    std::fill_n(scale_.view().as<std::int32_t>(), 2, 9);
    checker_.add(2, {{"positions", positions_.view().slice(0, 2)}},
                 {{"made_up.table", table_.view().slice(0, 2)},
                  {"made_up.scale", scale_, CapturedContent::kConstant}});
  }

  void write(const TensorView& view, std::int32_t value) {
    for (std::int64_t i = 0; i < view.dim(0); ++i)
      for (std::int64_t j = 0; j < (view.rank() == 2 ? view.dim(1) : 1); ++j)
        view.as<std::int32_t>()[i * view.stride(0) + j] = value;
  }

  /// A step, on the stream as a replay is; returns its error.
  std::string step(const std::function<void()>& copies) {
    std::string error;
    stream_.submit([&] {
      error = error_of([&] {
        checker_.poison(2, stream_);
        copies();
        checker_.verify(2, stream_);
      });
    });
    stream_.synchronize();
    return error;
  }
  void copy_positions(std::int64_t rows = 2) {
    checker_.written("positions", positions_.view().slice(0, rows));
    write(positions_.view().slice(0, rows), 4);
  }
  void copy_table(std::int64_t columns = 1) {
    const TensorView part = table_.view().slice(0, 2).columns(0, columns);
    checker_.written("made_up.table", part);
    write(part, 4);
  }

  CpuStream stream_{1};
  Tensor positions_{{4}, DType::kI32}, table_{{4, 3}, DType::kI32}, scale_{{2}, DType::kI32};
  GraphChecker checker_;
};

TEST_F(GraphCheckerTest, AStepThatRefreshesAllPasses) {
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(step([&] {
                copy_positions();
                copy_table();
              }),
              "no error");
}

TEST_F(GraphCheckerTest, AnInputThatIsNotCopiedIsNamed) {
  EXPECT_EQ(step([&] { copy_table(); }), "graph input positions was not refreshed for this step");
  EXPECT_EQ(step([&] { copy_positions(); }),
            "graph input made_up.table was not refreshed for this step");
  EXPECT_EQ(step([&] {
              copy_positions();
              copy_table();
            }),
            "no error")
      << "and a later step is judged by itself";
}

TEST_F(GraphCheckerTest, AnInputIsRefreshedInEveryRow) {
  EXPECT_EQ(step([&] {
              copy_positions(1);
              copy_table();
            }),
            "graph input positions was not refreshed for this step in row 1 of 2");
}

TEST_F(GraphCheckerTest, ACopyThatWritesNothingIsNone) {
  EXPECT_EQ(step([&] {
              copy_positions();
              checker_.written("made_up.table", table_.view().slice(0, 2));
            }),
            "graph input made_up.table was not refreshed for this step");
}

TEST_F(GraphCheckerTest, AStepMayHaveNoValuesForAnArrayOfTheBackend) {
  EXPECT_EQ(step([&] {
              copy_positions();
              copy_table(0);
            }),
            "no error");
  EXPECT_EQ(step([&] {
              copy_positions(0);
              copy_table();
            }),
            "graph input positions was not refreshed for this step")
      << "but an input of the model has one for each row";
}

TEST_F(GraphCheckerTest, StaleColumnsArePoisonedAndMayStaySo) {
  EXPECT_EQ(step([&] {
              copy_positions();
              copy_table(2);
            }),
            "no error");
  const auto* table = table_.view().as<std::int32_t>();
  const auto poison = static_cast<std::int32_t>(0xA5A5A5A5U);
  EXPECT_EQ((std::vector<std::int32_t>(table, table + 6)),
            (std::vector<std::int32_t>{4, 4, poison, 4, 4, poison}));
  EXPECT_EQ(table[6], 0) << "rows of larger graphs are not this one's";
}

TEST_F(GraphCheckerTest, AConstantThatChangesIsNamed) {
  EXPECT_EQ(step([&] {
              copy_positions();
              copy_table();
              scale_.view().as<std::int32_t>()[1] = 8;
            }),
            "graph input made_up.scale was declared constant, but has changed since its capture");
}

TEST_F(GraphCheckerTest, AConstantIsNotWritten) {
  EXPECT_THAT(step([&] { checker_.written("made_up.scale", scale_); }),
              HasSubstr("was declared constant"));
}

TEST_F(GraphCheckerTest, WritesGoToDeclaredMemoryOnly) {
  EXPECT_EQ(step([&] { checker_.written("made_up.lengths", table_); }),
            "a replay writes made_up.lengths, which is not a declared graph input");
  EXPECT_EQ(step([&] { checker_.written("positions", positions_.view().slice(0, 3)); }),
            "graph input positions is written outside of the memory that was declared for it");
  EXPECT_EQ(step([&] { checker_.written("positions", table_.view().slice(0, 2)); }),
            "graph input positions is written outside of the memory that was declared for it");
}

TEST_F(GraphCheckerTest, ADeclarationIsUniqueAndHasMemory) {
  EXPECT_EQ(error_of([&] { checker_.add(1, {{"x", scale_}}, {{"x", table_}}); }),
            "graph input x is declared twice");
  EXPECT_EQ(error_of([&] { checker_.add(1, {{"x", TensorView(nullptr, {1}, DType::kI32)}}, {}); }),
            "graph input x has no memory");
}

class CheckPaddingTest : public testing::Test {
 protected:
  CheckPaddingTest() {
    std::fill(table_.row(RowId{0}).begin(), table_.row(RowId{0}).end(), 7);
    batch_.page_table = &table_;
    batch_.rows = {{RowId{0}, 4, 5}, {table_.dummy_row(), 0, 1}};
    batch_.num_rows = 1;
  }
  std::string error() {
    return error_of([&] { check_padding(batch_, 100); });
  }
  PageTable table_{2, 32, 100};
  Batch batch_;
};

TEST_F(CheckPaddingTest, PaddingThatKeepsToTheDummyPagePasses) { EXPECT_EQ(error(), "no error"); }

TEST_F(CheckPaddingTest, ARequestInTheDummyPageIsFound) {
  table_.row(RowId{0})[4] = 100;
  EXPECT_THAT(error(), HasSubstr("row 0 of a request has token 4 in the dummy page"));
  table_.row(RowId{0})[4] = -1;
  EXPECT_THAT(error(), HasSubstr("token 4 in the dummy page or outside of the pool"));
  table_.row(RowId{0})[4] = 99;
  table_.row(RowId{0})[5] = 100;
  EXPECT_EQ(error(), "no error") << "entries behind a row's length are not its own";
}

TEST_F(CheckPaddingTest, ARequestInTheDummyRowIsFound) {
  batch_.rows[0].row = table_.dummy_row();
  EXPECT_THAT(error(), HasSubstr("row 0 of a request is the dummy row"));
}

TEST_F(CheckPaddingTest, ADummyRowThatWasWrittenIsFound) {
  table_.row(table_.dummy_row())[3] = 12;
  EXPECT_THAT(error(),
              HasSubstr("the dummy row of the page table was written: entry 3 is not 100"));
}

TEST_F(CheckPaddingTest, PaddingIsOneTokenOfTheDummyRow) {
  batch_.rows[1].device_len = 2;
  EXPECT_THAT(error(), HasSubstr("row 1 is padding, but not one token of the dummy row"));
  batch_.rows[1] = {RowId{0}, 0, 1};
  EXPECT_THAT(error(), HasSubstr("row 1 is padding"));
}

}  // namespace
}  // namespace minisgl
