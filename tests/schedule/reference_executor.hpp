// Runs the plans of all ranks in one thread, over plain memory: the oracle for generators and lowering.
//
// Each edge holds at most `capacity` undelivered messages; among the steps that may fire, a seeded generator
// picks the next, so that a missing dependency shows as a wrong result under some seed. `run` returns an
// empty string or what went wrong.
#pragma once

#include <chorale/schedule/plan.hpp>

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
  std::vector<T> scratch;
};

template <class T, class Op>
class executor {
 public:
  executor(std::vector<cs::plan> plans, std::vector<rank_memory<T>> memory, Op op, std::uint64_t seed,
           std::size_t capacity = 2)
      : plans_{std::move(plans)}, memory_{std::move(memory)}, op_{op}, random_{seed}, capacity_{capacity} {
    for (std::size_t r = 0; r < plans_.size(); ++r) {
      memory_[r].scratch.assign(plans_[r].scratch_bytes / sizeof(T), T{});
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

  T* address(std::size_t rank, cs::space where, std::uint64_t offset) {
    rank_memory<T>& m = memory_[rank];
    T* base = where == cs::space::in ? m.in : where == cs::space::out ? m.out : m.scratch.data();
    return base + offset / sizeof(T);
  }

  std::string fire(std::size_t rank, cs::step_index index) {
    const cs::plan_step& s = plans_[rank].steps[index];
    const std::size_t count = s.length / sizeof(T);
    std::vector<T> arriving;
    if (s.recv_edge != cs::no_edge) {
      edge& e = edge_of(rank, s.recv_edge);
      arriving = std::move(e.messages.front());
      e.messages.pop_front();
      ++e.received;
      if (arriving.size() != count) return "message length differs at " + std::to_string(rank);
    } else {
      const T* src = address(rank, s.src_space, s.src_offset);
      arriving.assign(src, src + count);
    }
    if (cs::reduces(s.kind)) {
      const T* local = s.kind == cs::step_kind::reduce ? address(rank, s.dst_space, s.dst_offset)
                                                       : address(rank, s.src_space, s.src_offset);
      for (std::size_t i = 0; i < count; ++i)
        arriving[i] = s.order == cs::operand_order::local_first ? op_(local[i], arriving[i])
                                                                : op_(arriving[i], local[i]);
    }
    if (cs::writes_dst(s.kind))
      std::copy(arriving.begin(), arriving.end(), address(rank, s.dst_space, s.dst_offset));
    if (s.send_edge != cs::no_edge) {
      edge& e = edge_of(rank, s.send_edge);
      e.messages.push_back(std::move(arriving));
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
