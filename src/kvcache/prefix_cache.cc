#include "kvcache/prefix_cache.h"

#include <array>
#include <string>

#include "base/check.h"
#include "kvcache/naive_cache.h"
#include "kvcache/radix_cache.h"

namespace minisgl {
namespace {

template <class Cache>
std::unique_ptr<PrefixCache> make(std::int32_t page_size) {
  return std::make_unique<Cache>(page_size);
}

struct Entry {
  std::string_view name;
  std::unique_ptr<PrefixCache> (*make)(std::int32_t page_size);
};

constexpr std::array<Entry, 2> kCaches = {{
    {"naive", make<NaiveCache>},
    {"radix", make<RadixCache>},
}};

constexpr auto kNames = [] {
  std::array<std::string_view, kCaches.size()> names;
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kCaches[i].name;
  return names;
}();

}  // namespace

std::span<const std::string_view> prefix_cache_names() { return kNames; }

std::unique_ptr<PrefixCache> make_prefix_cache(std::string_view name, std::int32_t page_size) {
  std::string known;
  for (const Entry& entry : kCaches) {
    if (entry.name == name) return entry.make(page_size);
    known += known.empty() ? "" : ", ";
    known += entry.name;
  }
  check(false, "unknown prefix cache \"", name, "\"; known are: ", known);
  return nullptr;
}

}  // namespace minisgl
