// Runs the plans of all ranks in one thread, over plain memory: the oracle for generators and lowering.
//
// Each edge holds at most `capacity` undelivered messages; among the steps that may fire, a seeded generator
// picks the next, so that a missing dependency shows as a wrong result under some seed. `run` returns an
// empty string or what went wrong. Elements are T, accumulators Wide; what is not wide is computed in T.
#pragma once

#include <chorale/schedule/plan.hpp>

#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace reference {

namespace cs = chorale::schedule;

template <class T>
struct rank_memory {
  T* in = nullptr;
  T* out = nullptr;
  std::vector<std::byte> scratch;
};

template <class T, class Op, class Wide = T>
class executor {
 public:
  executor(std::vector<cs::plan> plans, std::vector<rank_memory<T>> memory, Op op, std::uint64_t seed,
           std::size_t capacity = 2)
      : plans_{std::move(plans)}, memory_{std::move(memory)}, op_{op}, random_{seed}, capacity_{capacity} {
    for (std::size_t r = 0; r < plans_.size(); ++r) {
      memory_[r].scratch.assign(plans_[r].scratch_bytes, std::byte{0x5a});
      waiting_.emplace_back();
      for (cs::step_index i = 0; i < plans_[r].steps.size(); ++i) {
        waiting_[r].push_back(plans_[r].steps[i].dependencies);
        if (waiting_[r].back() == 0) ready_.push_back({r, i});
      }
    }
  }

  std::string run() {
    while (!ready_.empty()) {
      std::vector<std::size_t> can_fire;
      for (std::size_t c = 0; c < ready_.size(); ++c)
        if (may_fire(ready_[c].first, ready_[c].second)) can_fire.push_back(c);
      if (can_fire.empty()) return "deadlock with " + std::to_string(ready_.size()) + " steps waiting";
      const std::size_t pick = can_fire[random_() % can_fire.size()];
      const auto [rank, index] = ready_[pick];
      ready_[pick] = ready_.back();
      ready_.pop_back();
      if (auto wrong = fire(rank, index); !wrong.empty()) return wrong;
      ++fired_;
      for (const cs::step_index next : plans_[rank].successors(index))
        if (--waiting_[rank][next] == 0) ready_.push_back({rank, next});
    }
    std::size_t all = 0;
    for (const auto& p : plans_) all += p.steps.size();
    if (fired_ != all) return std::to_string(all - fired_) + " steps never became ready";
    for (const auto& [key, e] : edges_)
      if (!e.messages.empty()) return "messages left on an edge";
    return {};
  }

 private:
  struct edge {
    std::deque<std::vector<T>> messages;
    std::uint32_t sent = 0;
    std::uint32_t received = 0;
  };

  edge& edge_of(std::size_t rank, std::uint32_t index) {
    const cs::plan_edge& e = plans_[rank].edges[index];
    const auto me = static_cast<chorale::rank_t>(rank);
    return e.way == cs::direction::sending ? edges_[{me, e.peer, e.channel}]
                                           : edges_[{e.peer, me, e.channel}];
  }

  bool may_fire(std::size_t rank, cs::step_index index) {
    const cs::plan_step& s = plans_[rank].steps[index];
    if (s.recv_edge != cs::no_edge) {
      const edge& e = edge_of(rank, s.recv_edge);
      if (e.received != s.recv_sequence || e.messages.empty()) return false;
    }
    if (s.send_edge != cs::no_edge) {
      const edge& e = edge_of(rank, s.send_edge);
      if (e.sent != s.send_sequence || e.messages.size() >= capacity_) return false;
    }
    return true;
  }

  std::byte* address(std::size_t rank, cs::space where, std::uint64_t offset) {
    rank_memory<T>& m = memory_[rank];
    if (where == cs::space::scratch) return m.scratch.data() + offset;
    return reinterpret_cast<std::byte*>(where == cs::space::in ? m.in : m.out) + offset;
  }

  template <class Stored>
  static std::vector<Wide> load_as(const std::byte* from, std::size_t count) {
    std::vector<Stored> stored(count);
    if (count > 0) std::memcpy(stored.data(), from, count * sizeof(Stored));
    return {stored.begin(), stored.end()};
  }
  template <class Stored>
  static void store_as(std::byte* to, const std::vector<Wide>& values) {
    std::vector<Stored> stored;
    for (const Wide& v : values) stored.push_back(static_cast<Stored>(v));
    std::memcpy(to, stored.data(), stored.size() * sizeof(Stored));
  }
  std::vector<Wide> load(std::size_t rank, cs::space where, std::uint64_t offset, bool wide,
                         std::size_t count) {
    const std::byte* from = address(rank, where, offset);
    return wide ? load_as<Wide>(from, count) : load_as<T>(from, count);
  }

  std::string fire(std::size_t rank, cs::step_index index) {
    const cs::plan_step& s = plans_[rank].steps[index];
    const std::size_t count = s.length / sizeof(T);
    std::vector<Wide> arriving;
    if (s.recv_edge != cs::no_edge) {
      edge& e = edge_of(rank, s.recv_edge);
      arriving.assign(e.messages.front().begin(), e.messages.front().end());
      e.messages.pop_front();
      ++e.received;
      if (arriving.size() != count) return "message length differs at " + std::to_string(rank);
    } else {
      arriving = load(rank, s.src_space, s.src_offset, s.src_wide, count);
    }
    if (cs::reduces(s.kind)) {
      const bool onto_dst = s.kind == cs::step_kind::reduce;
      const bool wide = onto_dst ? s.dst_wide : s.src_wide;
      const auto local = onto_dst ? load(rank, s.dst_space, s.dst_offset, wide, count)
                                  : load(rank, s.src_space, s.src_offset, wide, count);
      for (std::size_t i = 0; i < count; ++i) {
        if (wide)
          arriving[i] = op_(local[i], arriving[i]);
        else if (s.order == cs::operand_order::local_first)
          arriving[i] = op_(static_cast<T>(local[i]), static_cast<T>(arriving[i]));
        else
          arriving[i] = op_(static_cast<T>(arriving[i]), static_cast<T>(local[i]));
      }
    }
    if (cs::writes_dst(s.kind)) {
      std::byte* to = address(rank, s.dst_space, s.dst_offset);
      if (s.dst_wide)
        store_as<Wide>(to, arriving);
      else
        store_as<T>(to, arriving);
    }
    if (s.send_edge != cs::no_edge) {
      edge& e = edge_of(rank, s.send_edge);
      auto& message = e.messages.emplace_back();
      for (const Wide& v : arriving) message.push_back(static_cast<T>(v));
      ++e.sent;
    }
    return {};
  }

  std::vector<cs::plan> plans_;
  std::vector<rank_memory<T>> memory_;
  Op op_;
  std::mt19937_64 random_;
  std::size_t capacity_;
  std::vector<std::vector<std::uint32_t>> waiting_;
  std::vector<std::pair<std::size_t, cs::step_index>> ready_;
  std::size_t fired_ = 0;
  std::map<std::tuple<chorale::rank_t, chorale::rank_t, cs::channel_t>, edge> edges_;
};

}  // namespace reference
