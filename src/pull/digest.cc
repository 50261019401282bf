#include "pull/digest.h"

#include <openssl/evp.h>

#include <array>

#include "base/check.h"

namespace minisgl::pull {

struct Digest::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Digest::Digest(Hash hash, std::int64_t size) {
  if (hash == Hash::kNone) return;
  state_ = std::make_unique<State>();
  const EVP_MD* kind = hash == Hash::kSha256 ? EVP_sha256() : EVP_sha1();
  check(EVP_DigestInit_ex(state_->context, kind, nullptr) == 1, "no digest");
  if (hash != Hash::kGitBlob) return;
  const std::string head = "blob " + std::to_string(size);
  update({reinterpret_cast<const std::byte*>(head.c_str()), head.size() + 1});
}

Digest::~Digest() = default;

void Digest::update(std::span<const std::byte> bytes) {
  if (state_ == nullptr) return;
  check(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1, "no digest");
}

std::string Digest::hex() {
  if (state_ == nullptr) return {};
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  check(EVP_DigestFinal_ex(state_->context, digest.data(), &size) == 1, "no digest");
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text += kDigits[digest[i] >> 4];
    text += kDigits[digest[i] & 15];
  }
  return text;
}

}  // namespace minisgl::pull
