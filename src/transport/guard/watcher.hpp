// The threads of a process's guard and the lock that all memberships are looked at under.
//
// Kept alive by `guard` pointers and memberships. `join` and the destructor of a membership come from
// application threads, everything marked (lock) wants the lock. The lock is held for one look at the words at
// a time and never on an operation's path.
#pragma once

#include <chorale/transport/guard/control_loop.hpp>
#include <chorale/transport/guard/doorbell.hpp>
#include <chorale/transport/guard/dying.hpp>
#include <chorale/transport/guard/extra_waiter.hpp>
#include <chorale/transport/guard/guard_options.hpp>
#include <chorale/transport/guard/member.hpp>
#include <chorale/transport/guard/plain_thread.hpp>
#include <chorale/transport/guard/robust_words.hpp>
#include <chorale/transport/guard/sleep_plan.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace chorale::guarding {

class watcher : public std::enable_shared_from_this<watcher> {
 public:
  explicit watcher(const guard_options& options);
  watcher(const watcher&) = delete;
  watcher& operator=(const watcher&) = delete;
  /// Joins the threads; in a fork child forgets them.
  ~watcher();

  [[nodiscard]] const guard_options& options() const noexcept { return options_; }
  [[nodiscard]] bool inherited() const noexcept;
  [[nodiscard]] doorbell& bell() noexcept { return bell_; }
  [[nodiscard]] std::unique_lock<std::mutex> lock() { return std::unique_lock{mutex_}; }
  [[nodiscard]] std::uint64_t next_link_id() noexcept { return ++link_ids_; }

  /// Throws `failure`.
  [[nodiscard]] std::shared_ptr<member> join(membership_setup setup, guard_sink& sink);

  // (lock)
  /// Has a guard thread own the word, so that the kernel tells its watcher of this process's death.
  void own(robust_node& node);
  void disown(robust_node& node) noexcept;
  void watch(const control_link& link);
  void update(const control_link& link) noexcept;
  void unwatch(const control_link& link) noexcept;
  void remove(const member& m) noexcept;
  /// A membership lost the process: the others are told before the lock is released.
  void lost(std::uint64_t process, const revoke& why) { lost_.emplace_back(process, why); }

 private:
  void start();
  void run();
  void look_round(sleep_plan& plan);
  void tell_losses();
  void attend_link(std::uint64_t id);
  void provide_waiters();
  void sleep(const sleep_plan& plan) noexcept;

  guard_options options_;
  std::uint32_t born_in_;  // fork generation
  std::mutex mutex_;
  doorbell bell_;
  std::atomic<std::uint64_t> link_ids_{0};
  std::vector<member*> members_;
  std::vector<std::pair<std::uint64_t, revoke>> lost_;
  bool stopping_ = false;

  std::optional<fatal_signal_handlers> handlers_;
  robust_list list_;
  bool many_futexes_ = false;
  plain_thread thread_;
  std::vector<std::unique_ptr<extra_waiter>> extra_;
  std::unique_ptr<control_loop> control_;
};

}  // namespace chorale::guarding
