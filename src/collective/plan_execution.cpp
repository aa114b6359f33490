#include <chorale/collective/core.hpp>
#include <chorale/collective/plan_execution.hpp>

#include <cassert>
#include <cstring>
#include <utility>

namespace chorale {

using schedule::plan_step;
using schedule::space;
using schedule::step_index;
using schedule::step_kind;

namespace {

/// A fused step that stores nothing of its own.
bool only_forwards(step_kind kind) noexcept { return kind == step_kind::recv_reduce_send; }

}  // namespace

void plan_execution::prepare(std::shared_ptr<const schedule::plan> plan, host_reduction reduce) noexcept {
  plan_ = std::move(plan);
  reduce_ = reduce;
}

const std::byte* plan_execution::source(const plan_step& s) const noexcept {
  const std::byte* base = what().kind == collective_kind::barrier
                              ? reinterpret_cast<const std::byte*>(barrier_value_)
                              : what().in;
  if (s.src_space == space::out)
    base = what().kind == collective_kind::barrier ? reinterpret_cast<const std::byte*>(barrier_value_ + 1)
                                                   : what().out;
  if (s.src_space == space::scratch) base = scratch_.get();
  return base + s.src_offset;
}

std::byte* plan_execution::target(const plan_step& s) noexcept {
  std::byte* base =
      what().kind == collective_kind::barrier ? reinterpret_cast<std::byte*>(barrier_value_ + 1) : what().out;
  if (s.dst_space == space::scratch) base = scratch_.get();
  // Only in the in-place form does a plan write what it calls input.
  if (s.dst_space == space::in && what().kind != collective_kind::barrier) base = what().out;
  return base + s.dst_offset;
}

std::byte* plan_execution::sink_of(step_index s) noexcept {
  const plan_step& step = plan_->steps[s];
  return only_forwards(step.kind) ? scratch_.get() + spare_begin_ + steps_[s].spare : target(step);
}

void plan_execution::lay_out() {
  const auto& all = plan_->steps;
  element_ = what().kind == collective_kind::barrier ? sizeof(float) : size_of(what().type);
  steps_.assign(all.size(), {});
  sends_used_ = receives_used_ = 0;
  spare_begin_ = padded(plan_->scratch_bytes);
  std::uint64_t spare = 0;
  for (step_index s = 0; s < all.size(); ++s) {
    steps_[s].waits_for = all[s].dependencies;
    if (schedule::sends(all[s].kind)) steps_[s].send = static_cast<std::uint32_t>(sends_used_++);
    if (schedule::receives(all[s].kind)) steps_[s].receive = static_cast<std::uint32_t>(receives_used_++);
    if (only_forwards(all[s].kind)) steps_[s].spare = std::exchange(spare, spare + padded(all[s].length));
  }
  if (sends_used_ > send_capacity_) sends_ = std::make_unique<send_state[]>(send_capacity_ = sends_used_);
  if (receives_used_ > receive_capacity_)
    receives_ = std::make_unique<receive_state[]>(receive_capacity_ = receives_used_);
  if (spare_begin_ + spare > scratch_capacity_) {
    scratch_capacity_ = spare_begin_ + spare;
    scratch_.reset();  // the old content is of no use: free it first
    scratch_ = std::make_unique_for_overwrite<std::byte[]>(scratch_capacity_);
  }
  ready_.clear();
  ready_.reserve(all.size());
}

void plan_execution::begin() {
  taken_back_ = false;
  lay_out();
  left_ = plan_->steps.size();
  for (step_index s = static_cast<step_index>(left_); s-- > 0;)
    if (steps_[s].waits_for == 0) ready_.push_back(s);
  drain();
}

void plan_execution::drain() noexcept {
  if (draining_) return;
  draining_ = true;
  while (!ready_.empty() && !taken_back_) {
    const step_index next = ready_.back();
    ready_.pop_back();
    issue(next);
  }
  draining_ = false;
  if (left_ == 0 && !taken_back_) owner().finish(*this, {});
}

void plan_execution::issue(step_index s) noexcept {
  const plan_step& step = plan_->steps[s];
  switch (step.kind) {
    case step_kind::copy:
      std::memmove(target(step), source(step), step.length);
      return step_done(s);
    case step_kind::reduce: {
      std::byte* to = target(step);
      const std::byte* arriving = source(step);
      const bool local_first = step.order == schedule::operand_order::local_first;
      reduce_(to, local_first ? to : arriving, local_first ? arriving : to, step.length / element_);
      return step_done(s);
    }
    case step_kind::send:
      return start_send(s, source(step));
    default:
      return start_receive(s);
  }
}

void plan_execution::start_send(step_index s, const std::byte* from) noexcept {
  const plan_step& step = plan_->steps[s];
  const auto& edge = plan_->edges[step.send_edge];
  send_state& m = sends_[steps_[s].send];
  m.home = this;
  m.step = s;
  m.peer = edge.peer;
  m.header = {};
  m.header.set_key({lane().key, ticket(), step.send_sequence, edge.channel});
  m.header.call = signed_as();
  m.data = from;
  m.size = step.length;
  m.handed_over = on_sent;
  owner().link_to(edge.peer).send(m);
}

void plan_execution::start_receive(step_index s) noexcept {
  const plan_step& step = plan_->steps[s];
  const auto& edge = plan_->edges[step.recv_edge];
  receive_state& r = receives_[steps_[s].receive];
  r.home = this;
  r.step = s;
  r.peer = edge.peer;
  r.key = {lane().key, ticket(), step.recv_sequence, edge.channel};
  r.call = signed_as();
  r.size = step.length;
  r.target = schedule::reduces(step.kind) ? nullptr : target(step);
  r.consume = schedule::reduces(step.kind) ? on_part : nullptr;
  r.completed = on_received;
  owner().link_to(edge.peer).receive(r);
}

void plan_execution::on_part(posted_receive& base, std::uint64_t offset, const std::byte* payload,
                             std::uint64_t bytes) noexcept {
  auto& r = static_cast<receive_state&>(base);
  plan_execution& self = *r.home;
  const plan_step& step = self.plan_->steps[r.step];
  const std::byte* local = self.source(step) + offset;
  const bool local_first = step.order == schedule::operand_order::local_first;
  self.reduce_(self.sink_of(r.step) + offset, local_first ? local : payload, local_first ? payload : local,
               bytes / self.element_);
}

void plan_execution::on_received(posted_receive& base) noexcept {
  auto& r = static_cast<receive_state&>(base);
  r.home->received(r.step);
}

void plan_execution::received(step_index s) noexcept {
  const step_kind kind = plan_->steps[s].kind;
  if (schedule::sends(kind))
    start_send(s, sink_of(s));
  else
    step_done(s);
  drain();
}

void plan_execution::on_sent(outgoing& base) noexcept {
  auto& m = static_cast<send_state&>(base);
  plan_execution& self = *m.home;
  self.step_done(m.step);
  self.drain();
}

void plan_execution::step_done(step_index s) noexcept {
  --left_;
  steps_[s].done = true;
  for (const step_index next : plan_->successors(s))
    if (--steps_[next].waits_for == 0) ready_.push_back(next);
}

void plan_execution::take_back() noexcept {
  taken_back_ = true;
  for (std::size_t i = 0; i < sends_used_; ++i)
    if (sends_[i].where != outgoing::place::idle) owner().link_to(sends_[i].peer).abandon(sends_[i]);
  for (std::size_t i = 0; i < receives_used_; ++i)
    if (receives_[i].posted) owner().link_to(receives_[i].peer).withdraw(receives_[i]);
}

bool plan_execution::needs(rank_t peer) const noexcept {
  for (step_index s = 0; s < steps_.size(); ++s) {
    if (steps_[s].done) continue;
    const plan_step& step = plan_->steps[s];
    if (steps_[s].send != none && plan_->edges[step.send_edge].peer == peer) return true;
    if (steps_[s].receive != none && plan_->edges[step.recv_edge].peer == peer) return true;
  }
  return false;
}

void plan_execution::recycle() noexcept {
  plan_.reset();
  owner().recycle(*this);
}

}  // namespace chorale
