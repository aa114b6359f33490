// A reduction that the application brings along, for host memory.
//
// `combine` computes out[i] = left[i] ∘ right[i] for `count` elements; `out` may be `left` or `right`. It is
// called on the engine's thread while messages are taken in, must not block, and must be associative up to
// what the application accepts; every rank evaluates one and the same expression if the function is the same.
// Its name stands for it: ranks whose names or whose word on commutativity differ end with errc::mismatch.
// What `context` points to stays until the operation has ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chorale {

enum class commutativity : std::uint8_t {
  unknown,      ///< operands keep the order of ranks: fewer algorithms serve such a call
  commutative,  ///< operands may change sides
};

struct user_reduction {
  using function = void (*)(void* context, std::byte* out, const std::byte* left, const std::byte* right,
                            std::size_t count) noexcept;

  function combine = nullptr;
  void* context = nullptr;
  std::uint64_t hash = 0;  ///< of the name and of `order`
  commutativity order = commutativity::unknown;

  friend bool operator==(const user_reduction&, const user_reduction&) = default;

  constexpr user_reduction() noexcept = default;
  constexpr user_reduction(std::string_view name, function how, void* with = nullptr,
                           commutativity sides = commutativity::unknown) noexcept
      : combine{how}, context{with}, hash{hash_of(name) ^ static_cast<std::uint64_t>(sides)}, order{sides} {}

 private:
  static constexpr std::uint64_t hash_of(std::string_view name) noexcept {
    std::uint64_t h = 0xcbf29ce484222325u;  // FNV-1a
    for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return h | 2;  // never 0, which means "none", whatever `order` adds
  }
};

}  // namespace chorale
