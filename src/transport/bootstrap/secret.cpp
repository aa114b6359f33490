#include <chorale/async/error.hpp>
#include <chorale/transport/bootstrap/secret.hpp>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace chorale {

proof hmac_sha256(std::string_view key, std::span<const std::byte> message) {
  proof out{};
  unsigned length = 0;
  // OpenSSL reads a null key as "the key of the call before": an empty one needs an address.
  const void* const key_bytes = key.empty() ? "" : key.data();
  if (!::HMAC(::EVP_sha256(), key_bytes, static_cast<int>(key.size()),
              reinterpret_cast<const unsigned char*>(message.data()), message.size(),
              reinterpret_cast<unsigned char*>(out.data()), &length) ||
      length != out.size())
    throw failure{
        error{errc::unsupported, "OpenSSL refused HMAC-SHA256; a chorale job needs it to know its members"}};
  return out;
}

bool same_proof(const proof& a, const proof& b) noexcept {
  return ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw failure{error::from_os(errno, "getrandom")};
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

challenge random_challenge() {
  challenge c{};
  fill_random(c);
  return c;
}

std::uint64_t random_word() {
  std::uint64_t word = 0;
  fill_random(std::as_writable_bytes(std::span{&word, 1}));
  return word;
}

std::string to_hex(std::span<const std::byte> bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const std::byte b : bytes) {
    text += digits[std::to_integer<std::size_t>(b >> 4)];
    text += digits[std::to_integer<std::size_t>(b & std::byte{15})];
  }
  return text;
}

std::string random_hex(std::size_t bytes) {
  std::vector<std::byte> raw(bytes);
  fill_random(raw);
  return to_hex(raw);
}

}  // namespace chorale
