#include <chorale/transport/guard/fork_mark.hpp>
#include <chorale/transport/guard/guard.hpp>
#include <chorale/transport/guard/watcher.hpp>

#include <mutex>
#include <new>

namespace chorale {
namespace {

// One per process, because threads, robust lists and signal dispositions are the process's.
std::mutex process_mutex;
std::weak_ptr<guarding::watcher> process_watcher;

void before_fork() { process_mutex.lock(); }
void after_fork() { process_mutex.unlock(); }

std::shared_ptr<guarding::watcher> obtain(const guard_options& options) {
  guarding::watch_forks(before_fork, after_fork, after_fork);
  const std::lock_guard lock{process_mutex};
  auto watcher = process_watcher.lock();
  if (watcher && !watcher->inherited()) return watcher;
  auto fresh = std::make_shared<guarding::watcher>(options);
  process_watcher = fresh;
  return fresh;
}

}  // namespace

guard::guard(std::shared_ptr<guarding::watcher> watcher) noexcept : watcher_{std::move(watcher)} {}
guard::~guard() = default;

std::shared_ptr<guard> guard::process() { return process(guard_options::from_environment().value()); }

std::shared_ptr<guard> guard::process(const guard_options& options) {
  return std::shared_ptr<guard>{new guard{obtain(options)}};
}

result<membership> guard::join(membership_setup setup, guard_sink& sink) {
  if (watcher_->inherited()) return errc::forked;
  try {
    return membership{watcher_->join(std::move(setup), sink)};
  } catch (const failure& f) {
    return f.why();
  } catch (const std::bad_alloc&) {
    return error{errc::out_of_memory, "joining the guard"};
  }
}

const guard_options& guard::options() const noexcept { return watcher_->options(); }

bool forked() noexcept { return guarding::fork_generation() != 0; }

membership::membership(std::shared_ptr<guarding::member> state) noexcept : state_{std::move(state)} {}
membership::membership(membership&&) noexcept = default;
membership& membership::operator=(membership&&) noexcept = default;
membership::~membership() = default;

result<void> membership::revoke(revoke_scope scope, std::uint64_t lane, errc cause, rank_t culprit,
                                std::uint64_t ticket) {
  chorale::revoke notice;
  notice.scope = scope;
  notice.lane = lane;
  notice.cause = cause;
  notice.culprit = culprit;
  notice.ticket = ticket;
  return state_->revoke(notice);
}

std::optional<revoke> membership::cause() const noexcept { return state_->cause(); }
result<void> membership::leave(std::uint64_t last_ticket) { return state_->leave(last_ticket); }
void membership::started(std::uint64_t ticket) noexcept { state_->started(ticket); }

pending_id membership::pending(std::uint64_t lane, std::uint64_t ticket, std::span<const rank_t> waits_for,
                               std::chrono::steady_clock::time_point since) noexcept {
  return state_->pending(lane, ticket, waits_for, since);
}

void membership::done(pending_id operation) noexcept { state_->done(operation); }
call_state membership::last_answer(rank_t rank) const noexcept { return state_->last_answer(rank); }
member_state membership::state_of(rank_t rank) const noexcept { return state_->state_of(rank); }
death_signal membership::signal_for(rank_t rank) const noexcept { return state_->signal_for(rank); }
bool membership::gone(rank_t rank) const noexcept { return state_->gone(rank); }
guard_counters membership::counters() const noexcept { return state_->counters(); }

}  // namespace chorale
