// The completion node: whatever the engine can run once, linked into its queues without allocating.
//
// An operation's storage belongs to whoever waits for it (usually an awaiter in a coroutine frame) and must
// stay put from the moment it is handed over until it has run. Its address is the ring's user_data and a
// verbs wr_id.
#pragma once

#include <cstddef>
#include <utility>

namespace chorale {

struct operation {
  using function = void (*)(operation&) noexcept;

  explicit operation(function what) noexcept : run_{what} {}
  operation(const operation&) = delete;
  operation& operator=(const operation&) = delete;

  void run() noexcept { run_(*this); }

 private:
  friend class operation_queue;
  friend class inbox;
  operation* next_ = nullptr;
  function run_;
};

/// Intrusive first-in first-out queue. One thread.
class operation_queue {
 public:
  [[nodiscard]] bool empty() const noexcept { return head_ == nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  void push(operation& op) noexcept {
    op.next_ = nullptr;
    if (tail_)
      tail_->next_ = &op;
    else
      head_ = &op;
    tail_ = &op;
    ++size_;
  }

  /// Precondition: not empty.
  [[nodiscard]] operation& pop() noexcept {
    operation& op = *head_;
    head_ = op.next_;
    if (!head_) tail_ = nullptr;
    --size_;
    return op;
  }

 private:
  operation* head_ = nullptr;
  operation* tail_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace chorale
