#include "kvcache/page_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include "minisgl/error.h"
#include "testing/random.h"

namespace minisgl {
namespace {

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(PageAllocatorTest, HandsOutAscendingPagesAndTheLastFreedFirst) {
  PageAllocator allocator(4);
  std::vector<PageId> pages;
  allocator.allocate(3, pages);
  EXPECT_EQ(pages, (std::vector<PageId>{{0}, {1}, {2}}));
  allocator.free(std::vector<PageId>{{1}});
  pages.clear();
  allocator.allocate(2, pages);
  EXPECT_EQ(pages, (std::vector<PageId>{{1}, {3}}));
}

TEST(PageAllocatorTest, TheDummyPageIsHandedOutToNoOneAndCannotBeFreed) {
  PageAllocator allocator(3);
  EXPECT_EQ(allocator.dummy_page(), PageId{3});
  std::vector<PageId> pages;
  allocator.allocate(3, pages);
  EXPECT_EQ(std::count(pages.begin(), pages.end(), allocator.dummy_page()), 0);
  EXPECT_FALSE(allocator.is_free(allocator.dummy_page()));
  EXPECT_NE(error_of([&] {
              allocator.free(std::vector<PageId>{{3}});
            }).find("3 is not a page that can be freed; pages are 0 to 2"),
            std::string::npos);
}

TEST(PageAllocatorTest, AskingForMoreThanIsFreeIsAnErrorThatTakesNothing) {
  PageAllocator allocator(3);
  std::vector<PageId> pages;
  EXPECT_NE(error_of([&] { allocator.allocate(4, pages); }).find("4 pages wanted, 3 of 3 free"),
            std::string::npos);
  EXPECT_TRUE(pages.empty());
  EXPECT_EQ(allocator.num_free(), 3);
}

TEST(PageAllocatorTest, ADoubleFreeIsAnErrorThatNamesThePage) {
  PageAllocator allocator(3);
  std::vector<PageId> pages;
  allocator.allocate(2, pages);
  allocator.free(std::vector<PageId>{{1}});
  EXPECT_NE(
      error_of([&] { allocator.free(std::vector<PageId>{{1}}); }).find("page 1 is freed twice"),
      std::string::npos);
}

TEST(PageAllocatorTest, RandomCallsKeepEveryPageWithOneOwner) {
  constexpr std::int32_t kPages = 40;
  testing_util::Random random(1);
  PageAllocator allocator(kPages);
  std::vector<PageId> held;
  for (int i = 0; i < 5000; ++i) {
    if (random.below(2) == 0) {
      const auto count = random.between(0, allocator.num_free());
      std::vector<PageId> pages;
      allocator.allocate(count, pages);
      ASSERT_EQ(static_cast<std::int64_t>(pages.size()), count);
      held.insert(held.end(), pages.begin(), pages.end());
    } else {
      const auto count = random.between(0, static_cast<std::int64_t>(held.size()));
      for (std::int64_t k = 0; k < count; ++k) {
        std::swap(held[random.below(static_cast<std::int64_t>(held.size()))], held.back());
        allocator.free(std::vector<PageId>{held.back()});
        held.pop_back();
      }
    }
    allocator.check_integrity();
    const std::set<PageId> distinct(held.begin(), held.end());
    ASSERT_EQ(distinct.size(), held.size());
    ASSERT_EQ(static_cast<std::int32_t>(held.size()) + allocator.num_free(), kPages);
    for (const PageId page : held) ASSERT_FALSE(allocator.is_free(page));
  }
}

}  // namespace
}  // namespace minisgl
