// What this rank does to parts that it can not reach: the operations to one rank go out one after the other,
// so that the owner's engine applies them in their order.
#include <chorale/collective/window_side.hpp>

#include <algorithm>
#include <cstring>

namespace chorale {
namespace {

window_verb verb_of(window_action action) noexcept {
  switch (action) {
    case window_action::accumulate:
      return window_verb::accumulate;
    case window_action::get:
      return window_verb::get;
    case window_action::signal:
      return window_verb::signal;
    default:
      return window_verb::put;
  }
}

}  // namespace

window_side::link::link(window_side& owner, rank_t whom) noexcept : side{owner}, member{whom} {
  for (link_frame* each : {&out, &reply, &got}) {
    each->home = this;
    each->header.lane = owner.lane_->key;
  }
  out.handed_over = [](outgoing& m) noexcept {
    link& l = *static_cast<link_frame&>(m).home;
    l.side.handed_over(l);
  };
  reply.handed_over = [](outgoing& m) noexcept {
    link& l = *static_cast<link_frame&>(m).home;
    l.side.tell_applied(l);
  };
  got.handed_over = [](outgoing& m) noexcept {
    link& l = *static_cast<link_frame&>(m).home;
    l.side.serve(l);
  };
}

void window_side::violated(const link& l, const char* how) noexcept {
  core_->window_violated(among_.in_epoch(l.member), how);
}

/// The owner reads a get's bytes when there is room for them: until they are here nothing overtakes it.
bool window_side::is_being_got(const link& l, const window_request& what) noexcept {
  if (!what.from) return false;
  for (const window_operation* op = l.getting.first(); op; op = window_operations::after(*op)) {
    const window_request& read = op->what_;
    if (what.offset < read.offset + read.bytes && read.offset < what.offset + what.bytes) return true;
  }
  return false;
}

/// Hands the next frame of the first operation to the pair.
void window_side::send_next(link& l) noexcept {
  window_operation* const op = l.queued.first();
  if (!op || l.out.where != outgoing::place::idle) return;
  const window_request& what = op->what_;
  const bool fetching = what.action == window_action::get;
  // Goes on when a get has come: there are too many, or one would see what is written after it.
  if (fetching ? l.gets == most_gets : is_being_got(l, what)) return;
  if (op->number_ == 0) op->number_ = ++l.numbered;
  window_words words;
  words.verb = verb_of(what.action);
  words.number = op->number_;
  words.type = static_cast<std::uint8_t>(what.type);
  words.op = static_cast<std::uint8_t>(what.op);
  words.slot = what.slot;
  words.offset = what.offset + op->progress_;
  words.amount = fetching ? what.bytes : what.amount;
  l.out.data = what.from + op->progress_;
  l.out.size = what.from ? std::min(what.bytes - op->progress_, window_frame_limit) : 0;
  words.last = fetching || op->progress_ + l.out.size == what.bytes;
  write_words(words, l.out.header);
  link_to(l.member).send_frame(l.out);
}

void window_side::handed_over(link& l) noexcept {
  window_operation& op = *l.queued.first();
  op.progress_ += l.out.size;
  const bool fetching = op.what_.action == window_action::get;
  if (fetching || op.progress_ == op.what_.bytes) {
    window_operations::remove(op);
    op.progress_ = 0;
    if (fetching) ++l.gets;
    (fetching ? l.getting : l.sent).append(op);
  }
  send_next(l);
}

void window_side::on_applied(link& l, const window_words& w) noexcept {
  if (w.number > l.numbered) return violated(l, "a window's owner claims to have done what was not asked");
  while (l.sent.first() && l.sent.first()->number_ <= w.number) finish(*l.sent.first(), {});
}

void window_side::on_got(link& l, const window_words& w, const std::byte* payload,
                         std::uint64_t bytes) noexcept {
  window_operation* op = l.getting.first();
  while (op && op->number_ != w.number) op = window_operations::after(*op);
  if (op) {
    const std::uint64_t left = op->what_.bytes - op->progress_;
    if (w.offset != op->progress_ || bytes > left || w.last != (bytes == left))
      return violated(l, "a window's owner sends other bytes than were asked for");
    if (bytes != 0) std::memcpy(op->what_.into + op->progress_, payload, bytes);
    op->progress_ += bytes;
  }
  if (!w.last) return;
  if (l.gets == 0) return violated(l, "a window's owner sends bytes that nobody asked for");
  --l.gets;
  if (op) finish(*op, {});
  send_next(l);
}

}  // namespace chorale
