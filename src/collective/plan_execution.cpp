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

void plan_execution::prepare(std::shared_ptr<const schedule::plan> plan, const combining& how,
                             bool wide) noexcept {
  plan_ = std::move(plan);
  how_ = how;
  wide_ = wide;
}

bool plan_execution::runs_in_place(const call& what, rank_t rank, rank_t ranks) noexcept {
  if (!reduces(what.kind) || what.op != reduction::premul_sum) return in_place(what, rank, ranks);
  return what.kind == collective_kind::all_reduce || what.kind == collective_kind::scan ||
         (what.kind == collective_kind::reduce && rank == what.root);
}

void plan_execution::find_buffers() {
  in_ = what().in;
  out_ = what().out;
  if (what().carries_nothing()) {
    in_ = reinterpret_cast<const std::byte*>(token_);
    out_ = reinterpret_cast<std::byte*>(token_ + 1);
    return;
  }
  if (!how_.scales()) return;
  const std::uint64_t count = shape_of(what(), among().rank(), among().size()).in;
  std::byte* to = out_;
  if (!runs_in_place(what(), among().rank(), among().size())) {
    const std::uint64_t bytes = count * element_;
    if (bytes > scaled_capacity_) {
      scaled_.reset();
      scaled_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      scaled_capacity_ = bytes;
    }
    to = scaled_.get();
  }
  how_.scale(to, in_, count, what());
  in_ = to;
}

const std::byte* plan_execution::source(const plan_step& s) const noexcept {
  if (s.src_space == space::scratch) return scratch_.get() + s.src_offset;
  return (s.src_space == space::in ? in_ : out_) + s.src_offset;
}

std::byte* plan_execution::target(const plan_step& s) noexcept {
  if (s.dst_space == space::scratch) return scratch_.get() + s.dst_offset;
  // Only in the in-place form does a plan write what it calls input.
  return (s.dst_space == space::in ? const_cast<std::byte*>(in_) : out_) + s.dst_offset;
}

std::byte* plan_execution::sink_of(step_index s) noexcept {
  const plan_step& step = plan_->steps[s];
  return only_forwards(step.kind) ? scratch_.get() + spare_begin_ + steps_[s].spare : target(step);
}

void plan_execution::lay_out() {
  const auto& all = plan_->steps;
  element_ = how_.element_bytes();
  steps_.assign(all.size(), {});
  edges_.assign(plan_->edges.size(), {});
  std::uint32_t arrivals = 0;
  for (std::size_t e = 0; e < edges_.size(); ++e) {
    edges_[e].first = arrivals;
    if (plan_->edges[e].way == schedule::direction::receiving) arrivals += plan_->edges[e].messages;
  }
  arrivals_.resize(arrivals);
  sends_used_ = 0;
  spare_begin_ = padded(plan_->scratch_bytes);
  std::uint64_t spare = 0;
  for (step_index s = 0; s < all.size(); ++s) {
    steps_[s].waits_for = all[s].dependencies;
    if (schedule::sends(all[s].kind)) steps_[s].send = static_cast<std::uint32_t>(sends_used_++);
    if (schedule::receives(all[s].kind)) arrivals_[edges_[all[s].recv_edge].first + all[s].recv_sequence] = s;
    if (only_forwards(all[s].kind)) steps_[s].spare = std::exchange(spare, spare + padded(all[s].length));
  }
  if (sends_used_ > send_capacity_) sends_ = std::make_unique<send_state[]>(send_capacity_ = sends_used_);
  const std::size_t slots = slots_per_edge * edges_.size();
  if (slots > landing_capacity_) landings_ = std::make_unique<landing[]>(landing_capacity_ = slots);
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
  draining_ = true;  // receives may complete while they are posted: their steps wait for the list to be whole
  lay_out();
  find_buffers();
  left_ = plan_->steps.size();
  for (step_index s = static_cast<step_index>(left_); s-- > 0;)
    if (steps_[s].waits_for == 0) ready_.push_back(s);
  for (std::uint32_t e = 0; e < edges_.size() && !taken_back_; ++e) fill_slots(e);
  draining_ = false;
  drain();
}

std::span<plan_execution::landing> plan_execution::slots_of(std::uint32_t edge) noexcept {
  return {landings_.get() + slots_per_edge * edge, slots_per_edge};
}

void plan_execution::fill_slots(std::uint32_t edge) noexcept {
  const auto& e = plan_->edges[edge];
  if (e.way != schedule::direction::receiving) return;
  for (landing& slot : slots_of(edge)) {
    if (taken_back_) return;  // first: the plan may be gone with the operation
    if (slot.in_use || edges_[edge].posted == e.messages) continue;
    slot.home = this;
    slot.edge = edge;
    slot.step = arrivals_[edges_[edge].first + edges_[edge].posted++];
    slot.in_use = true;
    slot.arrived = false;
    slot.landed = 0;
    post(slot);
  }
}

void plan_execution::post(landing& slot) noexcept {
  const plan_step& step = plan_->steps[slot.step];
  const auto& edge = plan_->edges[slot.edge];
  slot.key = {lane().key, ticket(), step.recv_sequence, edge.channel};
  slot.call = signed_for(edge.peer);
  slot.size = step.length;
  slot.completed = on_received;
  slot.target = nullptr;
  slot.consume = on_part;
  if (steps_[slot.step].ready && goes_straight(slot.step)) {
    slot.target = sink_of(slot.step);
    slot.consume = nullptr;
  }
  link_to(edge.peer).receive(slot);
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
  if (left_ == 0 && !taken_back_) complete();
}

void plan_execution::complete() noexcept {
  if (how_.settles() && !wide_) {
    const buffer_shape shape = shape_of(what(), among().rank(), among().size());
    if (shape.writes) how_.settle(out_, shape.out);
  }
  owner().finish(*this, {});
}

/// Where the element at `offset` bytes of a narrow place lies in a wide one.
std::uint64_t plan_execution::widened(std::uint64_t offset) const noexcept {
  return offset / element_ * plan_->accumulator_bytes;
}

/// The message is what its place holds.
bool plan_execution::goes_straight(step_index s) const noexcept {
  return !schedule::reduces(plan_->steps[s].kind) && !plan_->steps[s].dst_wide;
}

void plan_execution::issue(step_index s) noexcept {
  const plan_step& step = plan_->steps[s];
  switch (step.kind) {
    case step_kind::copy:
      if (step.src_wide)
        how_.round(target(step), source(step), step.length / element_);
      else if (step.dst_wide)
        how_.begin(target(step), source(step), step.length / element_);
      else
        std::memmove(target(step), source(step), step.length);
      return step_done(s);
    case step_kind::reduce: {
      std::byte* to = target(step);
      const std::byte* arriving = source(step);
      const bool local_first = step.order == schedule::operand_order::local_first;
      const std::uint64_t count = step.length / element_;
      if (step.dst_wide)
        how_.fold(to, to, arriving, count);
      else
        how_.combine(to, local_first ? to : arriving, local_first ? arriving : to, count);
      return step_done(s);
    }
    case step_kind::send:
      return start_send(s, source(step));
    default:
      return open(s);
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
  m.header.call = signed_for(edge.peer);
  m.data = from;
  m.size = step.length;
  m.handed_over = on_sent;
  link_to(edge.peer).send(m);
}

/// The step's dependencies are met: its message may go to its place, and what has landed goes there now.
void plan_execution::open(step_index s) noexcept {
  const plan_step& step = plan_->steps[s];
  steps_[s].ready = true;
  for (landing& slot : slots_of(step.recv_edge)) {
    if (!slot.in_use || slot.step != s) continue;
    if (slot.landed != 0) apply(s, 0, slot.buffer.get(), slot.landed);
    if (slot.arrived) return received(slot);
    if (goes_straight(s)) {
      slot.target = sink_of(s);
      slot.consume = nullptr;
    }
    return;
  }
}

void plan_execution::apply(step_index s, std::uint64_t offset, const std::byte* payload,
                           std::uint64_t bytes) noexcept {
  const plan_step& step = plan_->steps[s];
  const std::uint64_t count = bytes / element_;
  std::byte* to = sink_of(s) + (step.dst_wide ? widened(offset) : offset);
  if (!schedule::reduces(step.kind)) {
    if (step.dst_wide)
      how_.begin(to, payload, count);
    else
      std::memcpy(to, payload, bytes);
    return;
  }
  const std::byte* local = source(step) + (step.src_wide ? widened(offset) : offset);
  if (step.src_wide && step.dst_wide) return how_.fold(to, local, payload, count);
  if (step.src_wide) return how_.finish(to, local, payload, count);
  const bool local_first = step.order == schedule::operand_order::local_first;
  const std::byte* const left = local_first ? local : payload;
  const std::byte* const right = local_first ? payload : local;
  // Folds that are kept wide need no accumulator only where there are two ranks.
  if (wide_)
    how_.finish_two(to, left, right, count);
  else
    how_.combine(to, left, right, count);
}

void plan_execution::on_part(posted_receive& base, std::uint64_t offset, const std::byte* payload,
                             std::uint64_t bytes) noexcept {
  auto& slot = static_cast<landing&>(base);
  plan_execution& self = *slot.home;
  if (self.steps_[slot.step].ready) return self.apply(slot.step, offset, payload, bytes);
  if (slot.capacity < slot.size) {
    slot.buffer = std::make_unique_for_overwrite<std::byte[]>(slot.size);
    slot.capacity = slot.size;
  }
  std::memcpy(slot.buffer.get() + offset, payload, bytes);
  slot.landed = offset + bytes;
}

void plan_execution::on_received(posted_receive& base) noexcept {
  auto& slot = static_cast<landing&>(base);
  plan_execution& self = *slot.home;
  slot.arrived = true;
  if (!self.steps_[slot.step].ready) return;
  // A send that completes at once must not end the operation, which may be recycled, under our feet.
  const bool outer = std::exchange(self.draining_, true);
  self.received(slot);
  self.draining_ = outer;
  self.drain();
}

/// The message is in its place: the slot serves the next one, and the step goes on.
void plan_execution::received(landing& slot) noexcept {
  const step_index s = slot.step;
  const std::uint32_t edge = slot.edge;
  slot.in_use = false;
  if (schedule::sends(plan_->steps[s].kind))
    start_send(s, sink_of(s));
  else
    step_done(s);
  if (!taken_back_) fill_slots(edge);
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
    if (sends_[i].where != outgoing::place::idle) link_to(sends_[i].peer).abandon(sends_[i]);
  for (std::size_t i = 0; i < slots_per_edge * edges_.size(); ++i) {
    if (landings_[i].posted) link_to(plan_->edges[landings_[i].edge].peer).withdraw(landings_[i]);
    landings_[i].in_use = false;
  }
}

bool plan_execution::has_come(step_index s) const noexcept {
  const plan_step& step = plan_->steps[s];
  const std::uint32_t e = step.recv_edge;
  for (std::size_t i = 0; i < slots_per_edge; ++i) {
    const landing& slot = landings_[slots_per_edge * e + i];
    if (slot.in_use && slot.step == s) return slot.arrived;
  }
  if (step.recv_sequence < edges_[e].posted) return true;  // it has left its slot
  const auto& edge = plan_->edges[e];
  bool early = false;
  link_to(edge.peer).early(lane().key, ticket(), [&](const frame_header& h) {
    early = early ||
            (h.kind == frame_kind::eager && h.channel == edge.channel && h.sequence == step.recv_sequence);
  });
  return early;
}

bool plan_execution::needs(rank_t in_epoch) const noexcept {
  const rank_t peer = among().member(in_epoch);
  if (peer == no_rank) return false;
  for (step_index s = 0; s < steps_.size(); ++s) {
    if (steps_[s].done) continue;
    const plan_step& step = plan_->steps[s];
    if (steps_[s].send != none && plan_->edges[step.send_edge].peer == peer) return true;
    if (schedule::receives(step.kind) && plan_->edges[step.recv_edge].peer == peer && !has_come(s))
      return true;
  }
  return false;
}

void plan_execution::recycle() noexcept {
  plan_.reset();
  owner().recycle(*this);
}

}  // namespace chorale
