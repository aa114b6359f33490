#include <chorale/transport/guard/fork_mark.hpp>
#include <chorale/transport/guard/priority.hpp>
#include <chorale/transport/guard/watcher.hpp>

#include <algorithm>
#include <ctime>
#include <semaphore>
#include <span>

namespace chorale::guarding {
namespace {

/// In a sleep of the watch thread, beside the process's own bell; in one of an extra waiter, beside its
/// round.
constexpr std::size_t words_per_thread = max_waited_words - 1;

}  // namespace

watcher::watcher(const guard_options& options) : options_{options}, born_in_{fork_generation()} {}

watcher::~watcher() {
  if (inherited()) {
    thread_.forget();
    for (auto& e : extra_) e->forget();
    if (control_) control_->forget();
    return;
  }
  control_.reset();  // first: its handler uses everything else
  {
    const auto guarded = lock();
    stopping_ = true;
  }
  bell_.ring();
  thread_.join();
  extra_.clear();
}

bool watcher::inherited() const noexcept { return born_in_ != fork_generation(); }

void watcher::start() {
  if (thread_.running()) return;
  if (options_.signals == fatal_signals::announce && !handlers_) handlers_.emplace();
  std::binary_semaphore ready{0};
  thread_.start("chorale-watch", [this, &ready] {
    prefer_this_thread();
    many_futexes_ = can_wait_for_many_futexes();
    static_cast<void>(list_.install());
    ready.release();
    run();
  });
  ready.acquire();
}

std::shared_ptr<member> watcher::join(membership_setup setup, guard_sink& sink) {
  auto fresh = std::make_shared<member>(shared_from_this(), std::move(setup), sink);
  {
    const std::lock_guard guarded{mutex_};
    start();
    members_.push_back(fresh.get());
    provide_waiters();
    fresh->enter();
  }
  bell_.ring();
  return fresh;
}

void watcher::provide_waiters() {
  if (!many_futexes_) return;
  sleep_plan plan;
  plan.wait_for(bell_.word(), 0);
  for (const auto* m : members_) m->add_to(plan);
  while (plan.words.size() > words_per_thread * (1 + extra_.size()))
    extra_.push_back(std::make_unique<extra_waiter>(bell_));
}

void watcher::own(robust_node& node) {
  if (!list_.installed()) {
    node.word = unowned_word;
    futex_wake(node.word);
    return;
  }
  robust_list* room = &list_;
  for (auto e = extra_.begin(); room->size() >= robust_list::capacity; ++e) {
    if (e == extra_.end()) e = extra_.insert(e, std::make_unique<extra_waiter>(bell_));
    room = &(*e)->list();
  }
  room->add(node);
}

void watcher::disown(robust_node& node) noexcept {
  if (list_.remove(node)) return;
  for (auto& e : extra_)
    if (e->list().remove(node)) return;
  node.word = released_word;
  futex_wake(node.word);
}

void watcher::watch(const control_link& link) {
  if (!control_) control_ = std::make_unique<control_loop>([this](std::uint64_t id) { attend_link(id); });
  control_->add(link);
}

void watcher::update(const control_link& link) noexcept { control_->update(link); }

void watcher::unwatch(const control_link& link) noexcept {
  if (control_) control_->remove(link);
}

void watcher::remove(const member& m) noexcept {
  std::erase(members_, &m);
  bell_.ring();  // its words may be unmapped from now on
}

void watcher::attend_link(std::uint64_t id) {
  const std::lock_guard guarded{mutex_};
  for (auto* m : members_) {
    if (auto* link = m->find_link(id)) {
      m->attend(*link);
      tell_losses();
      return;
    }
  }
}

void watcher::tell_losses() {
  while (!lost_.empty()) {
    const auto losses = std::exchange(lost_, {});
    for (const auto& [process, why] : losses)
      for (auto* m : members_) m->note_process(process, why);
    for (auto* m : members_) m->settle();
  }
}

void watcher::run() {
  sleep_plan plan;
  for (;;) {
    {
      const std::lock_guard guarded{mutex_};
      if (stopping_) return;
      look_round(plan);
    }
    sleep(plan);
  }
}

void watcher::look_round(sleep_plan& plan) {
  plan.clear(many_futexes_ ? sleep_kind::futex : sleep_kind::poll);
  plan.wait_for(bell_.word(), bell_.word().load());
  plan.wait_for_descriptor(bell_.event_fd(), POLLIN);
  for (const auto* m : members_) m->add_to(plan);
  bell_.sleeps_in(plan.kind);
  if (plan.kind == sleep_kind::poll) drain_event(bell_.event_fd());
  const auto now = clock::now();
  for (auto* m : members_) plan.no_later_than(m->look(now, plan.kind));
  tell_losses();
  if (plan.kind == sleep_kind::poll) {
    // Whoever rings from here on writes the eventfd too; what was rung before shows in the words.
    if (plan.outdated()) plan.deadline = now;
    return;
  }
  std::span<const waited_word> rest{plan.words};
  rest = rest.subspan(std::min(rest.size(), words_per_thread));
  for (auto& e : extra_) {
    const auto share = rest.first(std::min(rest.size(), words_per_thread));
    e->wait_for(share);
    rest = rest.subspan(share.size());
  }
}

void watcher::sleep(const sleep_plan& plan) noexcept {
  if (plan.kind == sleep_kind::futex) {
    const std::span words{plan.words};
    futex_wait_any(words.first(std::min(words.size(), words_per_thread)), plan.deadline);
    return;
  }
  timespec left{};
  if (plan.deadline) {
    const auto wait = std::max<std::chrono::nanoseconds>(*plan.deadline - clock::now(), {});
    const auto seconds = std::chrono::floor<std::chrono::seconds>(wait);
    left = {static_cast<time_t>(seconds.count()),
            static_cast<long>(std::chrono::nanoseconds{wait - seconds}.count())};
  }
  auto descriptors = plan.descriptors;
  ::ppoll(descriptors.data(), descriptors.size(), plan.deadline ? &left : nullptr, nullptr);
}

}  // namespace chorale::guarding
