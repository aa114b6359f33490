// Windows of ranks on one engine: parts that are reached directly, or by frames over any wire.
#pragma once

#include "rig.hpp"
#include <chorale/api/window_call.hpp>
#include <chorale/async/virtual_backend.hpp>
#include <chorale/collective/window_side.hpp>
#include <chorale/kernels/element.hpp>

#include <cstring>
#include <ostream>
#include <string>

namespace chorale::testing {

/// How ranks reach each other's parts.
struct reach {
  medium over = medium::shm;
  bool direct = false;  ///< by loads and stores, where they share memory
  friend std::ostream& operator<<(std::ostream& to, const reach& r) {
    return to << name_of(r.over) << (r.direct ? ", direct" : ", by frames");
  }
};
inline constexpr reach every_reach[] = {{medium::shm, true},
                                        {medium::shm, false},
                                        {medium::tcp, false},
                                        {medium::mixed, true},
                                        {medium::simulated, false}};

/// What the simulated medium needs, and the others can do with.
inline engine engine_for(medium over) {
  if (over == medium::simulated) return engine{std::make_unique<virtual_backend>(), duration{0}};
  return engine{engine_options{backend_kind::automatic, duration{0}}};
}

inline constexpr std::uint64_t window_lane = 77;

class windows {
 public:
  /// Parts of `bytes` each, with 8 counters.
  windows(ranks& all, reach how, std::uint64_t bytes) {
    const std::size_t size = window_part::segment_bytes(bytes, 8);
    for (rank_t r = 0; r < all.size(); ++r) {
      memory_.emplace_back(static_cast<std::byte*>(std::aligned_alloc(64, (size + 63) / 64 * 64)), std::free);
      std::memset(memory_.back().get(), 0, size);
    }
    for (rank_t me = 0; me < all.size(); ++me) {
      std::vector<window_part> parts;
      for (rank_t r = 0; r < all.size(); ++r) {
        const bool direct = r == me || (how.direct && all[me].shares_memory_with(r));
        window_part part = window_part::in(memory_[static_cast<std::size_t>(r)].get(), bytes, 8);
        if (!direct) part.counters = nullptr, part.memory = nullptr;
        parts.push_back(part);
      }
      lane_state& lane = **all[me].open_lane(window_lane);
      sides_.push_back(
          std::make_shared<window_side>(all[me], lane, std::move(parts), std::vector<segment>{}));
    }
  }
  windows(const windows&) = delete;
  windows& operator=(const windows&) = delete;
  ~windows() {
    for (auto& side : sides_)
      if (side) side->close();
  }

  [[nodiscard]] std::shared_ptr<window_side>& operator[](rank_t r) {
    return sides_[static_cast<std::size_t>(r)];
  }
  [[nodiscard]] std::byte* bytes_of(rank_t r) { return sides_[static_cast<std::size_t>(r)]->part(r).memory; }

 private:
  std::vector<std::unique_ptr<std::byte, void (*)(void*)>> memory_;
  std::vector<std::shared_ptr<window_side>> sides_;
};

using window_ptr = std::shared_ptr<window_side>;

template <class T>
window_call<void> put(const window_ptr& on, rank_t to, std::uint64_t offset, std::span<const T> from,
                      time_point expires = never) {
  window_request what;
  what.action = window_action::put;
  what.type = dtype_of<T>;
  what.peer = to;
  what.offset = offset;
  what.from = reinterpret_cast<const std::byte*>(from.data());
  what.bytes = from.size_bytes();
  what.expires = expires;
  return window_call<void>{detail::window_handle{on, what}};
}

template <class T>
window_call<void> accumulate(const window_ptr& on, rank_t to, std::uint64_t offset, std::span<const T> from,
                             reduction op = reduction::sum) {
  window_request what;
  what.action = window_action::accumulate;
  what.type = dtype_of<T>;
  what.op = op;
  what.peer = to;
  what.offset = offset;
  what.from = reinterpret_cast<const std::byte*>(from.data());
  what.bytes = from.size_bytes();
  return window_call<void>{detail::window_handle{on, what}};
}

template <class T>
window_call<void> get(const window_ptr& on, rank_t of, std::uint64_t offset, std::span<T> into,
                      time_point expires = never) {
  window_request what;
  what.action = window_action::get;
  what.peer = of;
  what.offset = offset;
  what.into = reinterpret_cast<std::byte*>(into.data());
  what.bytes = into.size_bytes();
  what.expires = expires;
  return window_call<void>{detail::window_handle{on, what}};
}

inline window_call<void> signal(const window_ptr& on, rank_t to, std::uint32_t slot, std::uint64_t add = 1) {
  window_request what;
  what.action = window_action::signal;
  what.peer = to;
  what.slot = slot;
  what.amount = add;
  return window_call<void>{detail::window_handle{on, what}};
}

inline window_call<std::uint64_t> wait(const window_ptr& on, std::uint32_t slot, std::uint64_t at_least,
                                       time_point expires = never) {
  window_request what;
  what.action = window_action::wait;
  what.slot = slot;
  what.amount = at_least;
  what.expires = expires;
  return window_call<std::uint64_t>{detail::window_handle{on, what}};
}

/// How it ends; for the operations that give no value.
inline task<error> ended(window_call<void> op) {
  auto awaited = as_result(std::move(op));
  auto r = co_await std::move(awaited);
  co_return r ? error{} : r.error();
}
inline task<error> ended(window_started<void> op) {
  auto awaited = as_result(std::move(op));
  auto r = co_await std::move(awaited);
  co_return r ? error{} : r.error();
}
inline task<error> ended(window_call<std::uint64_t> op) {
  auto awaited = as_result(std::move(op));
  auto r = co_await std::move(awaited);
  co_return r ? error{} : r.error();
}

}  // namespace chorale::testing
