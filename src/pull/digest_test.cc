#include "pull/digest.h"

#include <gtest/gtest.h>

namespace minisgl::pull {
namespace {

std::string digest_of(Hash hash, const std::string& text) {
  Digest digest(hash, static_cast<std::int64_t>(text.size()));
  for (const char& c : text) digest.update({reinterpret_cast<const std::byte*>(&c), 1});
  return digest.hex();
}

// FIPS 180-4's example, and what `git hash-object` says.
TEST(DigestTest, GivesTheHashesThatHubsTell) {
  EXPECT_EQ(digest_of(Hash::kSha256, "abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest_of(Hash::kSha256, ""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest_of(Hash::kGitBlob, ""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
  EXPECT_EQ(digest_of(Hash::kGitBlob, "hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");
  EXPECT_EQ(digest_of(Hash::kNone, "abc"), "");
}

}  // namespace
}  // namespace minisgl::pull
