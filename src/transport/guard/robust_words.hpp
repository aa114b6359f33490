// Robust futex words: the kernel itself marks them when the thread that owns them ends, whatever ended it.
//
// One word per (victim, watcher) pair, because the kernel wakes one sleeper per word, and none unless
// FUTEX_WAITERS is set. A word belongs to a guard thread of the victim, which lives as long as the
// process or exec: SIGKILL, a crash and exec all end it, 0.1–3 ms before the process's memory is gone.
//
// `robust_list` is the list the kernel walks. The owning thread installs it; any thread that holds the
// guard's lock adds and removes. At every instant the list is one the kernel can walk, because a death does
// not wait.
#pragma once

#include <chorale/transport/guard/guard_segment.hpp>
#include <chorale/transport/guard/system_calls.hpp>

#include <cstdint>
#include <vector>

namespace chorale::guarding {

enum class word_state {
  unregistered,  ///< the victim has not joined
  owned,         ///< alive, and the kernel will tell
  unowned,       ///< alive, but its system refuses robust lists: watch it in another way
  released,      ///< it left
  owner_died,
};
[[nodiscard]] word_state read_word(std::uint32_t value) noexcept;

inline constexpr std::uint32_t released_word = 0x80000000;    // FUTEX_WAITERS, nobody's
inline constexpr std::uint32_t unowned_word = 0xbfffffff;     // FUTEX_WAITERS, a thread id that cannot be
inline constexpr std::uint32_t owner_died_word = 0xc0000000;  // FUTEX_WAITERS | FUTEX_OWNER_DIED

class robust_list {
 public:
  /// The kernel stops after 2048 entries.
  static constexpr std::size_t capacity = 2000;

  robust_list() noexcept;
  robust_list(const robust_list&) = delete;
  robust_list& operator=(const robust_list&) = delete;

  /// Called by the thread whose death is to be told. It takes the place of libc's own list of that thread,
  /// which therefore must hold no robust mutex. False where the system refuses.
  [[nodiscard]] bool install() noexcept;

  [[nodiscard]] bool installed() const noexcept { return thread_id_ != 0; }
  [[nodiscard]] std::size_t size() const noexcept { return nodes_.size(); }
  /// Preconditions: installed, size() < capacity. Wakes the watcher.
  void add(robust_node& node);
  /// Says "released" to the watcher, wakes it and takes the node off the list. False when it is not on it.
  bool remove(robust_node& node) noexcept;

 private:
  struct head {  // struct robust_list_head of the kernel
    std::atomic<std::uint64_t> first;
    long word_offset;
    std::uint64_t pending;
  };
  head head_;
  std::uint32_t thread_id_ = 0;
  std::vector<robust_node*> nodes_;  // in list order
};

}  // namespace chorale::guarding
