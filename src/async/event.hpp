// A flag that coroutines of one engine wait for: set once, or reset and set again. One thread.
#pragma once

#include <chorale/async/suspension.hpp>

namespace chorale {

class event {
 public:
  event() = default;
  event(const event&) = delete;
  event& operator=(const event&) = delete;
  ~event() { assert(!first_ && "an event is destroyed while coroutines wait for it"); }

  [[nodiscard]] bool is_set() const noexcept { return set_; }
  void reset() noexcept { set_ = false; }
  /// Readies every waiter, in the order in which they came.
  void set() noexcept {
    set_ = true;
    while (first_) {
      waiter& next = *first_;
      unlink(next);
      next.finish_wait();
    }
  }

  class [[nodiscard]] waiter : public suspension {
   public:
    explicit waiter(event& on) noexcept : suspension{on_stop}, event_{on} {}
    [[nodiscard]] bool await_ready() const noexcept { return event_.set_; }
    template <environment_promise Promise>
    bool await_suspend(std::coroutine_handle<Promise> waiting) noexcept {
      if (!suspend(waiting, waiting.promise().env())) return stopped_ = true, false;
      event_.link(*this);
      return true;
    }
    /// Throws `failure` with the reason if a stop was requested first.
    void await_resume() const {
      if (stopped_) throw failure{error{stop_reason()}};
    }

   private:
    friend class event;
    void finish_wait() noexcept { finish(); }
    static void on_stop(suspension& base) noexcept {
      auto& self = static_cast<waiter&>(base);
      self.stopped_ = true;
      self.event_.unlink(self);
      self.finish();
    }
    event& event_;
    waiter* previous_ = nullptr;
    waiter* next_ = nullptr;
    bool stopped_ = false;
  };
  [[nodiscard]] waiter wait() noexcept { return waiter{*this}; }

 private:
  void link(waiter& w) noexcept {
    w.previous_ = last_;
    w.next_ = nullptr;
    (last_ ? last_->next_ : first_) = &w;
    last_ = &w;
  }
  void unlink(waiter& w) noexcept {
    (w.previous_ ? w.previous_->next_ : first_) = w.next_;
    (w.next_ ? w.next_->previous_ : last_) = w.previous_;
    w.previous_ = w.next_ = nullptr;
  }
  bool set_ = false;
  waiter* first_ = nullptr;
  waiter* last_ = nullptr;
};

}  // namespace chorale
