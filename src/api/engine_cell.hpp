// Something that lives on an engine and is named from any thread: made there, used there, destroyed there.
//
// A counted handle. Making, and letting the last handle go, are posted: they keep their place among what the
// same thread hands to the engine, so a call made after `engine_cell{…}` finds the value. On the engine's own
// thread both happen at once. The engine runs until the last handle is gone. In a fork
// child nothing is made and nothing destroyed.
#pragma once

#include <chorale/api/foreign_call.hpp>
#include <chorale/async/engine.hpp>

#include <atomic>
#include <cassert>
#include <optional>
#include <utility>

namespace chorale {

template <class T>
class engine_cell {
 public:
  /// `make()` returns the T and does not throw.
  template <class Make>
  engine_cell(engine& loop, Make make) : kept_{new contents{loop}} {
    if (loop.in_loop())
      kept_->value.emplace(make());
    else
      static_cast<void>(detail::post_to_engine(loop, *new opening<Make>{*this, std::move(make)}));
  }
  engine_cell(const engine_cell& other) noexcept : kept_{other.kept_} {
    if (kept_) kept_->references.fetch_add(1, std::memory_order_relaxed);
  }
  engine_cell(engine_cell&& other) noexcept : kept_{std::exchange(other.kept_, nullptr)} {}
  engine_cell& operator=(engine_cell other) noexcept {
    std::swap(kept_, other.kept_);
    return *this;
  }
  ~engine_cell() {
    if (!kept_ || kept_->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    if (kept_->loop.in_loop())
      delete kept_;
    else
      static_cast<void>(detail::post_to_engine(kept_->loop, *kept_));
  }

  [[nodiscard]] engine& loop() const noexcept { return kept_->loop; }
  /// The engine's thread only.
  [[nodiscard]] T& operator*() const noexcept {
    assert(kept_->value && kept_->loop.in_loop());
    return *kept_->value;
  }
  [[nodiscard]] T* operator->() const noexcept { return &**this; }

 private:
  /// Queued once, when nobody names it any more.
  struct contents : operation {
    explicit contents(engine& on) noexcept : operation{destroy}, loop{on} {}
    static void destroy(operation& op) noexcept { delete &static_cast<contents&>(op); }
    engine& loop;
    std::atomic<int> references{1};
    std::optional<T> value;
  };
  template <class Make>
  struct opening : operation {
    opening(engine_cell cell, Make how) noexcept
        : operation{open}, into{std::move(cell)}, make{std::move(how)} {}
    static void open(operation& op) noexcept {
      auto* self = &static_cast<opening&>(op);
      self->into.kept_->value.emplace(self->make());
      delete self;
    }
    engine_cell into;
    Make make;
  };
  contents* kept_;
};

}  // namespace chorale
