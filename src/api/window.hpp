// window: memory of every rank that the others read, write and signal without its help.
//
//   auto w = co_await comm.create_window(bytes);       // on every rank; sizes may differ
//   co_await w.put(right, 0, row);                     // their memory
//   co_await w.signal(right, 0);                       // … and tell them
//   co_await w.wait(0, step);                          // until a counter of mine reaches `step`
//   auto mine = w.local<float>();                      // my memory
//   co_await w.close();                                // on every rank
//
// When it has ended. An await of put, accumulate or signal ends when the effect is in the target's memory and
// the buffer may be used again; of get, when the bytes are here. Nothing else has to be flushed.
// What orders it. Operations from one rank to one other take effect in the order in which they begin, so a
// signal follows every put, accumulate and get that this rank began there before. Who waited for the counter
// sees what was put. Puts and gets of overlapping bytes that no signal or collective orders race, as threads
// do: bytes are never torn apart beyond that, but which come first is open. Accumulates are atomic per
// element with regard to each other, in an open order; signals add.
// Who does it. Ranks that share memory do it themselves, at once, whatever the owner does meanwhile. For
// others, and for registered memory, the owner's engine does it: an owner that computes without turning its
// engine delays it, and one long put delays what follows it to the same rank.
// How it fails. Arguments are checked before anything happens. A lost rank ends what is under way with the
// cause and later calls with errc::revoked; after a reset create new windows. A deadline or a stop ends the
// one operation: of a put, a part may have arrived. A rank that leaves with the window open ends waits and
// what is under way to it with errc::peer_left; one that destroys its window unclosed ends everybody's with
// errc::dropped. Where ranks share memory a put to a rank that just died succeeds until this rank has learnt
// of the death. After a failure the bytes of a window are unspecified, and may change until reset() returns.
//
// Move-only, for the thread of its communicator's engine; it goes before the communicator does.
#pragma once

#include <chorale/api/description.hpp>
#include <chorale/api/lane.hpp>
#include <chorale/api/window_call.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace chorale {

struct epoch;

struct window_options {
  /// Counters of this rank, 0 to begin with: 64 bytes each, at most 65,536.
  std::uint32_t signals = 64;
};

class window {
 public:
  window(window&& other) noexcept;
  window& operator=(window&& other) noexcept;
  ~window();

  [[nodiscard]] rank_t rank() const noexcept;
  [[nodiscard]] rank_t size() const noexcept;
  /// Bytes of that rank's part; 0 after `close`.
  [[nodiscard]] std::uint64_t bytes_of(rank_t member) const noexcept;
  /// Whether this rank reaches that part itself, without its owner's engine.
  [[nodiscard]] bool direct(rank_t member) const noexcept;
  /// This rank's own part, aligned to 64 unless it is registered memory.
  [[nodiscard]] std::span<std::byte> bytes() const noexcept;
  template <element T>
  [[nodiscard]] std::span<T> local() const noexcept {
    const std::span<std::byte> all = bytes();
    return {reinterpret_cast<T*>(all.data()), all.size() / sizeof(T)};
  }

  /// `offset` counts bytes from the start of the target's part. The target may be this rank.
  template <buffer From>
  window_call<void> put(rank_t to, std::uint64_t offset, From&& from, deadline limit = {}) {
    window_request what = reading(window_action::put, to, offset, from);
    return made<void>(what, limit);
  }
  template <writable_buffer Into>
  window_call<void> get(rank_t of, std::uint64_t offset, Into&& into, deadline limit = {}) {
    window_request what;
    what.action = window_action::get;
    what.peer = of;
    what.offset = offset;
    what.into = reinterpret_cast<std::byte*>(std::ranges::data(into));
    what.bytes = std::ranges::size(into) * sizeof(std::ranges::range_value_t<Into>);
    return made<void>(what, limit);
  }
  /// target[i] = target[i] ⊕ from[i]; sum, prod, min, max, and for integers bit_and, bit_or, bit_xor. The
  /// offset is a multiple of the element's size. Results of floats depend on the order in the last bits.
  template <buffer From>
  window_call<void> accumulate(rank_t to, std::uint64_t offset, From&& from, reduction op = sum,
                               deadline limit = {}) {
    window_request what = reading(window_action::accumulate, to, offset, from);
    what.op = op;
    return made<void>(what, limit);
  }
  /// Adds to a counter of that rank.
  window_call<void> signal(rank_t to, std::uint32_t slot, std::uint64_t add = 1, deadline limit = {});
  /// Until a counter of this rank is at least so much; gives its value then. Counters only ever grow.
  window_call<std::uint64_t> wait(std::uint32_t slot, std::uint64_t at_least, deadline limit = {});
  /// What a counter of this rank is at now. Precondition: it exists.
  [[nodiscard]] std::uint64_t counter(std::uint32_t slot) const noexcept;

  /// Gives the window back; every rank calls it. Waits of this rank end with errc::cancelled, its other
  /// operations come to their end first. When it returns every rank has called it and nobody touches this
  /// rank's part any more. The task has the window from the call on: destroying it early drops the window.
  [[nodiscard]] task<void> close(deadline limit = {});

 private:
  friend class window_maker;
  window(std::shared_ptr<epoch> current, std::shared_ptr<window_side> side, lane own) noexcept;

  template <class From>
  static window_request reading(window_action action, rank_t to, std::uint64_t offset, From& from) noexcept {
    using value = std::remove_cv_t<std::ranges::range_value_t<From>>;
    window_request what;
    what.action = action;
    what.type = dtype_of<value>;
    what.peer = to;
    what.offset = offset;
    what.from = reinterpret_cast<const std::byte*>(std::ranges::data(from));
    what.bytes = std::ranges::size(from) * sizeof(value);
    return what;
  }
  template <class T>
  window_call<T> made(window_request& what, deadline limit) {
    what.expires = expiry(limit);
    return window_call<T>{detail::window_handle{side_, what}};
  }
  [[nodiscard]] time_point expiry(deadline limit) const noexcept;
  static task<void> finish_close(window leaving, time_point until);

  std::shared_ptr<epoch> current_;
  std::shared_ptr<window_side> side_;  // null once closed
  lane lane_;
};

}  // namespace chorale
