#include <chorale/transport/guard/robust_words.hpp>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

namespace chorale::guarding {
namespace {

std::uint64_t address_of(const void* p) noexcept { return reinterpret_cast<std::uintptr_t>(p); }

}  // namespace

word_state read_word(std::uint32_t value) noexcept {
  if (value == 0) return word_state::unregistered;
  if ((value & FUTEX_OWNER_DIED) != 0) return word_state::owner_died;
  if (value == unowned_word) return word_state::unowned;
  if ((value & FUTEX_TID_MASK) == 0) return word_state::released;
  return word_state::owned;
}
static_assert(released_word == FUTEX_WAITERS && owner_died_word == (FUTEX_WAITERS | FUTEX_OWNER_DIED) &&
              unowned_word == (FUTEX_WAITERS | FUTEX_TID_MASK));

robust_list::robust_list() noexcept
    : head_{.first{}, .word_offset = offsetof(robust_node, word), .pending = 0} {
  head_.first = address_of(&head_.first);
}

bool robust_list::install() noexcept {
  static_assert(sizeof(head) == sizeof(robust_list_head));
  if (::syscall(SYS_set_robust_list, &head_, sizeof head_) != 0) return false;
  thread_id_ = static_cast<std::uint32_t>(::syscall(SYS_gettid));
  return true;
}

void robust_list::add(robust_node& node) {
  nodes_.insert(nodes_.begin(), &node);
  node.next.store(head_.first.load());
  head_.first.store(address_of(&node));
  // Last: a word without owner that is on the list is skipped by the kernel, the reverse would go unnoticed.
  node.word.store(thread_id_ | FUTEX_WAITERS);
  futex_wake(node.word);
}

bool robust_list::remove(robust_node& node) noexcept {
  const auto at = std::find(nodes_.begin(), nodes_.end(), &node);
  if (at == nodes_.end()) return false;
  node.word.store(released_word);
  futex_wake(node.word);
  auto& before = at == nodes_.begin() ? head_.first : (*(at - 1))->next;
  before.store(node.next.load());
  nodes_.erase(at);
  return true;
}

}  // namespace chorale::guarding
