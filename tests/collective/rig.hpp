// Many ranks in one process and on one engine: their cores, joined by real shm or tcp wires, or by simulated
// ones.
#pragma once

#include <chorale/api/ticket.hpp>
#include <chorale/async/scope.hpp>
#include <chorale/async/when.hpp>
#include <chorale/collective/core.hpp>
#include <chorale/collective/simulated_network.hpp>
#include <chorale/transport/shm_wire.hpp>
#include <chorale/transport/tcp_wire.hpp>

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

namespace chorale::testing {

enum class medium { shm, tcp, mixed, simulated };

inline const char* name_of(medium m) {
  constexpr const char* names[] = {"shm", "tcp", "mixed", "simulated"};
  return names[static_cast<int>(m)];
}

class ranks {
 public:
  /// medium::simulated wants an engine with a virtual clock.
  ranks(engine& loop, rank_t n, medium over, selection_settings settings = {}, std::uint64_t seed = 1,
        const std::vector<std::uint32_t>& hosts = {})
      : loop_{loop} {
    const auto slots = static_cast<std::uint32_t>(n);
    std::vector<shm_segment> views;
    if (over == medium::simulated) network_.emplace(loop, n, simulated_conditions::drawn(seed));
    for (rank_t r = 0; r < n && !network_; ++r) {
      const std::size_t bytes = shm_segment::bytes(slots);
      memory_.emplace_back(static_cast<std::byte*>(std::aligned_alloc(64, bytes)), std::free);
      std::fill_n(memory_.back().get(), bytes, std::byte{});
      views.push_back(shm_segment::initialise(memory_.back().get(), slots));
      if (r % 2 == 0) views.back().fence_for_mates();  // both kinds side by side
    }
    std::vector<core_setup> setups(static_cast<std::size_t>(n));
    for (rank_t r = 0; r < n; ++r) {
      core_setup& s = setups[static_cast<std::size_t>(r)];
      s.loop = &loop;
      s.rank = r;
      s.size = n;
      s.epoch = 1;
      s.selection = settings;
      s.selection.all_lines = over == medium::shm;
      s.hosts = hosts;
      s.wires.resize(slots);
      s.lines.resize(slots);
    }
    for (rank_t a = 0; a < n; ++a)
      for (rank_t b = a + 1; b < n; ++b) {
        const bool shared = over == medium::shm || (over == medium::mixed && (a + b) % 2 == 0);
        join(setups, views, a, b, shared);
      }
    for (core_setup& s : setups) cores_.push_back(std::make_unique<core>(std::move(s)));
  }

  /// The kernel keeps as little as it can of what goes from the last but one rank to the last, over tcp.
  void narrow_last_socket() {
    const int least = 1;
    if (::setsockopt(last_socket_, SOL_SOCKET, SO_SNDBUF, &least, sizeof least) != 0)
      throw std::runtime_error{"SO_SNDBUF"};
  }

  [[nodiscard]] rank_t size() const { return static_cast<rank_t>(cores_.size()); }
  [[nodiscard]] core& operator[](rank_t r) { return *cores_[static_cast<std::size_t>(r)]; }

  /// Runs `body(core, rank)` on every rank at once and waits for all.
  template <class Body>
  void run(Body body) {
    loop_.run(everybody(*this, body));
  }

 private:
  template <class Body>
  static task<void> everybody(ranks& self, Body& body) {
    const environment& here = co_await this_environment{};
    scope all{here};
    for (rank_t r = 0; r < self.size(); ++r) all.spawn(body(self[r], r));
    co_await all.join();
  }
  void join(std::vector<core_setup>& setups, std::vector<shm_segment>& views, rank_t a, rank_t b,
            bool shared) {
    const auto ia = static_cast<std::size_t>(a);
    const auto ib = static_cast<std::size_t>(b);
    if (network_) {
      setups[ia].wires[ib] = network_->connect(a, b);
      setups[ib].wires[ia] = network_->connect(b, a);
      return;
    }
    if (shared) {
      // One engine polls all ranks, so nobody sleeps while another has work: doorbells are never rung for
      // real.
      const int bell = loop_.io().doorbell();
      auto wa = std::make_unique<shm_wire>(shm_wire_setup{views[ia], views[ib], static_cast<std::uint32_t>(a),
                                                          static_cast<std::uint32_t>(b), bell});
      auto wb = std::make_unique<shm_wire>(shm_wire_setup{views[ib], views[ia], static_cast<std::uint32_t>(b),
                                                          static_cast<std::uint32_t>(a), bell});
      setups[ia].lines[ib] = wa.get();
      setups[ib].lines[ia] = wb.get();
      setups[ia].wires[ib] = std::move(wa);
      setups[ib].wires[ia] = std::move(wb);
      return;
    }
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
      throw std::runtime_error{"socketpair"};
    last_socket_ = ends[0];
    setups[ia].wires[ib] = std::make_unique<tcp_wire>(loop_, unique_fd{ends[0]});
    setups[ib].wires[ia] = std::make_unique<tcp_wire>(loop_, unique_fd{ends[1]});
  }

  engine& loop_;
  int last_socket_ = -1;  // the lower rank's end
  std::optional<simulated_network> network_;
  std::vector<std::unique_ptr<std::byte, void (*)(void*)>> memory_;
  std::vector<std::unique_ptr<core>> cores_;
};

/// A call on a lane of one rank's group, as the api makes it.
inline ticket place(core& on, group& among, call what, std::uint64_t key = default_lane,
                    deadline limit = {}) {
  detail::call_place place;
  auto opened = on.open_lane(among, key);
  if (!opened) {
    place.refused = std::move(opened).error();
    return ticket{std::move(place)};
  }
  what.expires = limit.from(on.loop().now());
  place.lane = *opened;
  place.number = on.take_ticket(**opened, what);
  on.close_handle(**opened);
  place.inside = &on;
  place.what = what;
  return ticket{std::move(place)};
}

inline ticket place(core& on, call what, std::uint64_t key = default_lane, deadline limit = {}) {
  return place(on, on.everybody(), std::move(what), key, limit);
}

/// As the api does: what can be refused is refused before the call takes its place.
inline ticket place_checked(core& on, group& among, const call& what, std::uint64_t key = default_lane,
                            deadline limit = {}) {
  auto valid = validate(what, among.rank(), among.size());
  if (valid) return place(on, among, what, key, limit);
  detail::call_place refused;
  refused.refused = std::move(valid).error();
  return ticket{std::move(refused)};
}

inline ticket place_checked(core& on, const call& what, std::uint64_t key = default_lane,
                            deadline limit = {}) {
  return place_checked(on, on.everybody(), what, key, limit);
}

inline call all_reduce_of(std::span<const float> in, std::span<float> out) {
  call c;
  c.kind = collective_kind::all_reduce;
  c.type = dtype::f32;
  c.op = reduction::sum;
  c.in = reinterpret_cast<const std::byte*>(in.data());
  c.out = reinterpret_cast<std::byte*>(out.data());
  c.count = in.size();
  return c;
}

inline call message_of(std::span<float> data, rank_t peer, bool sending) {
  call c;
  c.kind = collective_kind::message;
  c.type = dtype::f32;
  auto* bytes = reinterpret_cast<std::byte*>(data.data());
  if (sending)
    c.in = bytes;
  else
    c.out = bytes;
  (sending ? c.count : c.room) = data.size();
  (sending ? c.peer : c.source) = peer;
  (sending ? c.sending : c.receiving) = true;
  return c;
}

inline call barrier_call() {
  call c;
  c.kind = collective_kind::barrier;
  return c;
}

}  // namespace chorale::testing
