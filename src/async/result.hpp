// A value or an `error`: what fallible functions and every `as_result` await return.
//
// `value()` throws `failure` on an error; `operator*` and `->` assume success and assert it.
#pragma once

#include <chorale/async/error.hpp>

#include <cassert>
#include <type_traits>
#include <utility>
#include <variant>

namespace chorale {

template <class T = void>
class [[nodiscard]] result {
 public:
  // Not "value": where T is a pointer to a function, g++ 12 takes the name for a declaration that hides
  // value().
  result(T given)
      : state_{std::in_place_index<0>, std::move(given)} {}  // NOLINT(google-explicit-constructor)
  result(chorale::error why)
      : state_{std::in_place_index<1>, std::move(why)} {}  // NOLINT(google-explicit-constructor)
  result(errc code)
    requires(!std::is_same_v<T, errc>)
      : state_{std::in_place_index<1>, chorale::error{code}} {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  [[nodiscard]] T& value() & { return require(), std::get<0>(state_); }
  [[nodiscard]] const T& value() const& { return require(), std::get<0>(state_); }
  [[nodiscard]] T&& value() && { return require(), std::get<0>(std::move(state_)); }
  [[nodiscard]] T& operator*() & noexcept { return *std::get_if<0>(&state_); }
  [[nodiscard]] const T& operator*() const& noexcept { return *std::get_if<0>(&state_); }
  [[nodiscard]] T&& operator*() && noexcept { return std::move(*std::get_if<0>(&state_)); }
  [[nodiscard]] T* operator->() noexcept { return std::get_if<0>(&state_); }
  [[nodiscard]] const T* operator->() const noexcept { return std::get_if<0>(&state_); }

  /// Precondition: no value.
  [[nodiscard]] const chorale::error& error() const& noexcept { return *std::get_if<1>(&state_); }
  [[nodiscard]] chorale::error&& error() && noexcept { return std::move(*std::get_if<1>(&state_)); }

 private:
  void require() const {
    if (!has_value()) throw failure{std::get<1>(state_)};
  }
  std::variant<T, chorale::error> state_;
};

template <>
class [[nodiscard]] result<void> {
 public:
  result() = default;
  result(chorale::error why) : why_{std::move(why)} {}  // NOLINT(google-explicit-constructor)
  result(errc code) : why_{code} {}                     // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool has_value() const noexcept { return !why_; }
  explicit operator bool() const noexcept { return has_value(); }
  void value() const {
    if (why_) throw failure{why_};
  }
  /// Precondition: no value.
  [[nodiscard]] const chorale::error& error() const& noexcept { return why_; }
  [[nodiscard]] chorale::error&& error() && noexcept { return std::move(why_); }

 private:
  chorale::error why_;
};

}  // namespace chorale
