// Ranks on one engine with a thread of its own, called with Asio's tokens from the test's threads.
#pragma once

#include "../collective/rig.hpp"
#include <chorale/async/engine_thread.hpp>

#include <asio_under_test.hpp>

#include <memory>
#include <utility>

namespace chorale {

/// Ranks on an engine with a thread of its own; their calls are made on the test's threads.
class choir {
 public:
  explicit choir(rank_t n = 2, testing::medium over = testing::medium::shm) {
    thread_.run(assemble(*this, n, over));
  }
  ~choir() { thread_.run(dissolve(*this)); }

  template <class Token>
  auto all_reduce(rank_t rank, std::span<float> inout, Token&& token, deadline limit = {}) {
    const call what = testing::all_reduce_of(inout, inout);
    return async_call(
        thread_.loop(), [&on = (*ranks_)[rank], what, limit] { return testing::place(on, what, 0, limit); },
        std::forward<Token>(token));
  }
  /// By the engine's own coroutine, as programs without Asio do it.
  result<void> all_reduce_directly(rank_t rank, std::span<float> inout) {
    return thread_.run(direct(*this, rank, inout));
  }
  [[nodiscard]] engine_thread& thread() noexcept { return thread_; }

 private:
  static task<void> assemble(choir& self, rank_t n, testing::medium over) {
    const environment& here = co_await this_environment{};
    self.ranks_ = std::make_unique<testing::ranks>(*here.loop, n, over);
  }
  static task<void> dissolve(choir& self) {
    const environment& here = co_await this_environment{};
    static_cast<void>(here);
    self.ranks_.reset();
  }
  static task<result<void>> direct(choir& self, rank_t rank, std::span<float> inout) {
    as_result_of<ticket> awaited =
        as_result(testing::place((*self.ranks_)[rank], testing::all_reduce_of(inout, inout)));
    co_return co_await std::move(awaited);
  }
  engine_thread thread_;
  std::unique_ptr<testing::ranks> ranks_;
};

/// Counts handlers that live and calls to them.
struct watched {
  std::shared_ptr<int> alive = std::make_shared<int>(0);
  int called = 0;
  asio_error_code outcome;
  [[nodiscard]] auto handler() {
    return [this, held = alive](asio_error_code code) {
      ++called;
      outcome = code;
    };
  }
  [[nodiscard]] long handlers() const { return alive.use_count() - 1; }
};

}  // namespace chorale
