#include <chorale/async/virtual_backend.hpp>

#include <algorithm>
#include <cerrno>

namespace chorale {

void virtual_backend::submit(io_operation& op) noexcept {
  op.in_flight = true;
  refused_.push(op);
}

std::size_t virtual_backend::reap(operation_queue& completed) noexcept {
  const std::size_t count = refused_.size();
  while (!refused_.empty()) {
    auto& op = static_cast<io_operation&>(refused_.pop());
    op.in_flight = false;
    op.result = -ENOTSUP;
    completed.push(op);
  }
  return count;
}

std::size_t virtual_backend::wait(time_point until, operation_queue& completed) noexcept {
  const std::size_t count = reap(completed);
  if (woken_.exchange(false, std::memory_order_acquire) || count != 0) return count;
  if (until == never)
    stuck_ = true;
  else
    now_ = std::max(now_, until);
  return 0;
}

}  // namespace chorale
