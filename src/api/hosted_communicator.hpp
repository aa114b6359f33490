// A communicator for a program whose threads belong to another framework: with an engine and a thread of its
// own.
//
// Joins in the constructor and leaves in the destructor, both while the calling thread waits. Calls come from
// any thread through completion tokens (asio.hpp), or as tasks on `thread()`. Every call has ended, or was
// cancelled, before this is destroyed.
#pragma once

#include <chorale/api/communicator.hpp>
#include <chorale/async/engine_thread.hpp>

#include <optional>
#include <utility>

namespace chorale {

class hosted_communicator {
 public:
  /// Throws as `communicator::join` does.
  explicit hosted_communicator(communicator_options options = {}) {
    thread_.run(join(*this, std::move(options)));
  }
  hosted_communicator(const hosted_communicator&) = delete;
  hosted_communicator& operator=(const hosted_communicator&) = delete;
  ~hosted_communicator() { thread_.run(leave(*this)); }

  [[nodiscard]] communicator& operator*() noexcept { return *joined_; }
  [[nodiscard]] communicator* operator->() noexcept { return &*joined_; }
  [[nodiscard]] engine_thread& thread() noexcept { return thread_; }

 private:
  static task<void> join(hosted_communicator& self, communicator_options options) {
    task<communicator> joining = communicator::join(std::move(options));
    communicator joined = co_await std::move(joining);
    self.joined_.emplace(std::move(joined));
  }
  static task<void> leave(hosted_communicator& self) {
    self.joined_.reset();
    co_return;
  }

  engine_thread thread_;
  std::optional<communicator> joined_;
};

}  // namespace chorale
