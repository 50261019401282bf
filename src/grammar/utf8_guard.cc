#include "grammar/utf8_guard.h"

namespace minisgl {
namespace {

/// After `first`, a byte in [low, high] makes no character.
struct Pair {
  unsigned char first, low, high;
  bool hit(char next) const {
    const auto byte = static_cast<unsigned char>(next);
    return byte >= low && byte <= high;
  }
};

constexpr Pair kPairs[] = {
    {0xE0, 0x80, 0x9F}, {0xED, 0xA0, 0xBF}, {0xF0, 0x80, 0x8F}, {0xF4, 0x90, 0xBF}};

const Pair* pair_of(unsigned char first) {
  for (const Pair& pair : kPairs)
    if (pair.first == first) return &pair;
  return nullptr;
}

}  // namespace

bool Utf8Guard::is_ill_formed(std::string_view bytes) {
  for (std::size_t i = 0; i + 1 < bytes.size(); ++i) {
    const Pair* pair = pair_of(static_cast<unsigned char>(bytes[i]));
    if (pair != nullptr && pair->hit(bytes[i + 1])) return true;
  }
  return false;
}

void Utf8Guard::add(TokenId id, std::string_view bytes) {
  if (bytes.empty()) return;
  for (std::size_t i = 0; i < std::size(kPairs); ++i)
    if (kPairs[i].hit(bytes[0])) banned_[i].push_back(id);
}

bool Utf8Guard::applies(unsigned char last) { return pair_of(last) != nullptr; }

void Utf8Guard::apply(unsigned char last, std::span<std::int32_t> mask) const {
  const Pair* pair = pair_of(last);
  if (pair == nullptr) return;
  for (const TokenId id : banned_[static_cast<std::size_t>(pair - kPairs)]) {
    const auto at = static_cast<std::size_t>(id);
    mask[at / 32] &= static_cast<std::int32_t>(~(std::uint32_t{1} << (at % 32)));
  }
}

}  // namespace minisgl
