// How other threads hand operations to an engine: a lock-free stack that the owner empties whole.
//
// push: any thread. take: the owner only; order of arrival is restored. An operation posted by one thread
// after another by the same thread runs after it.
#pragma once

#include <chorale/async/operation.hpp>

#include <atomic>

namespace chorale {

class inbox {
 public:
  /// Returns true if the inbox was empty, i.e. if the owner may need a wake-up.
  bool push(operation& op) noexcept {
    operation* head = head_.load(std::memory_order_relaxed);
    do {
      op.next_ = head;
    } while (!head_.compare_exchange_weak(head, &op, std::memory_order_release, std::memory_order_relaxed));
    return head == nullptr;
  }

  [[nodiscard]] bool empty() const noexcept { return head_.load(std::memory_order_acquire) == nullptr; }

  void take(operation_queue& into) noexcept {
    operation* newest = head_.exchange(nullptr, std::memory_order_acquire);
    operation* oldest = nullptr;
    while (newest) {
      operation* next = newest->next_;
      newest->next_ = oldest;
      oldest = newest;
      newest = next;
    }
    while (oldest) {
      operation* next = oldest->next_;
      into.push(*oldest);
      oldest = next;
    }
  }

 private:
  std::atomic<operation*> head_{nullptr};
};

}  // namespace chorale
