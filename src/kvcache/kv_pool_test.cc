#include "kvcache/kv_pool.h"

#include <gtest/gtest.h>

#include <string>

#include "minisgl/error.h"

namespace minisgl {
namespace {

constexpr KvPoolConfig kSmall{
    .num_layers = 3, .num_kv_heads = 2, .head_dim = 8, .num_pages = 5, .page_size = 4};

TEST(KvPoolTest, EveryElementHasItsOwnPlaceAndAllOfThemFillTheBlock) {
  const KvPool pool(kSmall);
  const KvCacheView view = pool.view();
  ASSERT_EQ(view.first.num_slots, (5 + 1) * 4) << "the dummy page comes on top";
  float next = 1;
  for (int layer = 0; layer < 3; ++layer) {
    const KvView kv = view.layer(layer);
    for (std::byte* side : {kv.k, kv.v}) {
      auto* data = reinterpret_cast<float*>(side);
      for (std::int64_t slot = 0; slot < kv.num_slots; ++slot)
        for (int head = 0; head < kv.num_heads; ++head)
          for (int d = 0; d < kv.head_dim; ++d) {
            float& element = data[slot * kv.slot_stride + head * kv.head_stride + d];
            ASSERT_EQ(element, 0.0F) << "written before, or not zeroed";
            element = next++;
          }
    }
  }
  EXPECT_EQ(static_cast<std::int64_t>(next) - 1, pool.bytes() / 4);
}

TEST(KvPoolTest, BytesPerPageCountKeysAndValuesOfAllLayers) {
  KvPoolConfig config = kSmall;
  EXPECT_EQ(KvPool::bytes_per_page(config), 2 * 3 * 4 * 2 * 8 * 4);
  config.dtype = DType::kBF16;
  EXPECT_EQ(KvPool::bytes_per_page(config), 2 * 3 * 4 * 2 * 8 * 2);
  EXPECT_EQ(KvPool(config).bytes(), 6 * KvPool::bytes_per_page(config));
}

TEST(KvPoolTest, APoolLargerThanMemoryCostsNothingUntilItIsWritten) {
  KvPoolConfig config{
      .num_layers = 16, .num_kv_heads = 8, .head_dim = 128, .num_pages = 1 << 20, .page_size = 1};
  const KvPool pool(config);  // 128 GiB of addresses
  auto* last = pool.view().layer(15).v + (std::int64_t{1} << 20) * 8 * 128 * 4;
  *last = std::byte{7};
  EXPECT_EQ(*last, std::byte{7});
}

TEST(KvPoolTest, RefusesSizesThatMakeNoSenseAndNamesThem) {
  const auto message = [](KvPoolConfig config) -> std::string {
    try {
      const KvPool pool(config);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  KvPoolConfig config = kSmall;
  config.num_pages = 0;
  EXPECT_NE(message(config).find("num_pages is 0; it must be at least 1"), std::string::npos);
  config = kSmall;
  config.dtype = DType::kI8;
  EXPECT_NE(message(config).find("dtype is i8; it must be f32, f16, bf16 or fp8_e4m3"),
            std::string::npos);
  config = kSmall;
  config.num_pages = 1 << 30;
  EXPECT_NE(message(config).find("more than 2^31 - 1 locations"), std::string::npos);
}

}  // namespace
}  // namespace minisgl
