#include <chorale/async/timer.hpp>

#include <cassert>

namespace chorale {

void timer_heap::place(std::size_t slot, timer* t) noexcept {
  heap_[slot] = t;
  t->slot_ = slot;
}

void timer_heap::sift_up(std::size_t slot, timer* t) noexcept {
  while (slot > 0) {
    const std::size_t parent = (slot - 1) / 2;
    if (heap_[parent]->when_ <= t->when_) break;
    place(slot, heap_[parent]);
    slot = parent;
  }
  place(slot, t);
}

void timer_heap::sift_down(std::size_t slot, timer* t) noexcept {
  for (std::size_t child = 2 * slot + 1; child < heap_.size(); child = 2 * slot + 1) {
    if (child + 1 < heap_.size() && heap_[child + 1]->when_ < heap_[child]->when_) ++child;
    if (t->when_ <= heap_[child]->when_) break;
    place(slot, heap_[child]);
    slot = child;
  }
  place(slot, t);
}

void timer_heap::arm(timer& t, time_point when) {
  assert(!t.armed());
  t.when_ = when;
  heap_.push_back(&t);
  sift_up(heap_.size() - 1, &t);
}

void timer_heap::disarm(timer& t) noexcept {
  if (!t.armed()) return;
  const std::size_t slot = t.slot_;
  t.slot_ = timer::idle;
  timer* last = heap_.back();
  heap_.pop_back();
  if (last == &t) return;
  if (slot > 0 && last->when_ < heap_[(slot - 1) / 2]->when_)
    sift_up(slot, last);
  else
    sift_down(slot, last);
}

std::size_t timer_heap::expire(time_point now) noexcept {
  std::size_t fired = 0;
  for (; !heap_.empty() && heap_.front()->when_ <= now; ++fired) {
    timer& t = *heap_.front();
    disarm(t);
    t.run();
  }
  return fired;
}

}  // namespace chorale
