// A communicator for a program whose threads belong to another framework: with an engine and a thread of its
// own.
//
// Joins in the constructor and leaves in the destructor, both while the calling thread waits. Calls come from
// any thread with a completion token behind their arguments (asio.hpp, boost_asio.hpp, blocking.hpp), on the
// communicator's own lane, on lanes by key, or planned: hosted_lane.hpp says in which order they count. Or
// they are made by tasks on `thread()`. Every call has ended, or was cancelled, before this is destroyed or
// reset; lanes and plans go before. A child that `split` made shares the thread and goes before its parent.
#pragma once

#include <chorale/api/communicator.hpp>
#include <chorale/api/hosted_lane.hpp>
#include <chorale/async/engine_thread.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace chorale {

class hosted_communicator {
 public:
  /// Throws as `communicator::join` does.
  explicit hosted_communicator(communicator_options options = {});
  hosted_communicator(hosted_communicator&&) noexcept = default;
  hosted_communicator& operator=(hosted_communicator&& other) noexcept {
    std::swap(thread_, other.thread_);
    std::swap(joined_, other.joined_);
    return *this;
  }
  ~hosted_communicator();

  [[nodiscard]] communicator& operator*() const noexcept { return *joined_; }
  [[nodiscard]] communicator* operator->() const noexcept { return joined_.get(); }
  [[nodiscard]] engine_thread& thread() const noexcept { return *thread_; }

  /// An order of calls of its own, by key (0 is the communicator's own). Any thread; so are the following.
  /// Calls on a lane that could not be had end with its error.
  [[nodiscard]] hosted_lane lane(std::uint64_t key) const;
  /// A call with fixed buffers, to be made again and again on the communicator's own lane.
  [[nodiscard]] hosted_plan plan(described_call described) const;

  // As the communicator's own functions; the token's framework gets the task's exception or value.

  /// std::optional<hosted_communicator>.
  template <foreign_token Token>
  auto split(std::int64_t colour, std::int64_t key, deadline limit, Token&& token) const {
    limit = deadline{limit.from(steady_now())};
    return detail::run_with_token(
        thread_->loop(),
        [on = joined_.get(), thread = thread_, colour, key, limit] {
          return adopt(thread, on->split(colour, key, limit));
        },
        std::forward<Token>(token));
  }
  template <foreign_token Token>
  auto split(std::int64_t colour, std::int64_t key, Token&& token) const {
    return split(colour, key, deadline{}, std::forward<Token>(token));
  }
  template <foreign_token Token>
  auto reset(Token&& token) const {
    return detail::run_with_token(
        thread_->loop(), [on = joined_.get()] { return on->reset(); }, std::forward<Token>(token));
  }
  template <foreign_token Token>
  auto reset_lane(deadline limit, Token&& token) const {
    limit = deadline{limit.from(steady_now())};
    return detail::call_with_token(
        thread_->loop(), [on = joined_.get(), limit] { return on->reset_lane(limit); },
        std::forward<Token>(token));
  }
  template <foreign_token Token>
  auto reset_lane(Token&& token) const {
    return reset_lane(deadline{}, std::forward<Token>(token));
  }

 private:
  hosted_communicator(std::shared_ptr<engine_thread> thread, communicator joined);
  static task<std::optional<hosted_communicator>> adopt(std::shared_ptr<engine_thread> thread,
                                                        task<std::optional<communicator>> splitting);
  static task<void> join(hosted_communicator& self, communicator_options options);
  static task<void> leave(std::unique_ptr<communicator> leaving);

  std::shared_ptr<engine_thread> thread_;  // shared with children
  std::unique_ptr<communicator> joined_;   // its thread's
};

}  // namespace chorale
