// First in, first out list of operations inside a backend, through io_operation::link. Removal walks.
#pragma once

#include <chorale/async/backend.hpp>

namespace chorale::detail {

class io_list {
 public:
  [[nodiscard]] bool empty() const noexcept { return head_ == nullptr; }
  /// Precondition: not empty.
  [[nodiscard]] io_operation& front() const noexcept { return *head_; }

  void push(io_operation& op) noexcept {
    op.link = nullptr;
    *(head_ ? &tail_->link : &head_) = &op;
    tail_ = &op;
  }

  io_operation& pop() noexcept {
    io_operation& op = *head_;
    head_ = op.link;
    return op;
  }

  template <class Visit>
  void each(Visit visit) const {
    for (const io_operation* at = head_; at; at = at->link) visit(*at);
  }

  void remove(io_operation& op) noexcept {
    io_operation* before = nullptr;
    for (io_operation* at = head_; at; before = at, at = at->link) {
      if (at != &op) continue;
      *(before ? &before->link : &head_) = op.link;
      if (tail_ == &op) tail_ = before;
      return;
    }
  }

 private:
  io_operation* head_ = nullptr;
  io_operation* tail_ = nullptr;
};

}  // namespace chorale::detail
