// An engine with a thread of its own, for programs whose threads belong to somebody else.
//
// The thread runs the engine from construction until destruction. Other threads hand it work: `run` waits for
// it, `engine::post` does not. Everything that lives on the engine must have ended before this is destroyed.
#pragma once

#include <chorale/async/engine.hpp>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace chorale {

class engine_thread {
 public:
  /// Throws `failure` when no backend can be had.
  explicit engine_thread(engine_options options = {})
      : loop_{options}, thread_{[this] { loop_.run_forever(); }} {}
  engine_thread(const engine_thread&) = delete;
  engine_thread& operator=(const engine_thread&) = delete;
  ~engine_thread() {
    loop_.stop();
    thread_.join();
  }

  [[nodiscard]] engine& loop() noexcept { return loop_; }

  /// Runs `work` on the engine's thread while the calling one waits; returns its value or throws its
  /// exception. Throws errc::invalid_state on the engine's own thread, where it would wait for itself.
  template <class T>
  T run(task<T> work) {
    if (loop_.in_loop())
      throw failure{error{errc::invalid_state,
                          "engine_thread::run was called on the engine's own thread; co_await the work "
                          "instead"}};
    errand<T> mine{std::move(work), loop_};
    loop_.post(mine);
    mine.wait();
    return mine.driver->take();
  }

 private:
  template <class T>
  struct errand : operation {
    errand(task<T> what, engine& on) : operation{begin}, work{std::move(what)}, loop{on} {}

    static void begin(operation& op) noexcept {
      auto& self = static_cast<errand&>(op);
      self.driver.emplace(carry(std::move(self.work), self), self.loop.root());
      self.driver->start();
    }
    static task<T> carry(task<T> work, errand& self) {
      const on_return tell{self};
      co_return co_await std::move(work);
    }
    /// The last thing in the coroutine.
    struct on_return {
      errand& self;
      ~on_return() { self.loop.schedule(self.ended); }
    };
    struct end : operation {
      explicit end(errand& s) noexcept : operation{tell}, self{s} {}
      static void tell(operation& op) noexcept {
        errand& self = static_cast<end&>(op).self;
        if (!self.driver->done()) return self.loop.schedule(op);  // its last resumption stands behind us
        const std::lock_guard lock{self.mutex};
        self.over = true;
        self.changed.notify_one();
      }
      errand& self;
    };
    void wait() {
      std::unique_lock lock{mutex};
      changed.wait(lock, [this] { return over; });
    }

    task<T> work;
    engine& loop;
    std::optional<task_driver<T>> driver;
    end ended{*this};
    std::mutex mutex;
    std::condition_variable changed;
    bool over = false;
  };

  engine loop_;
  std::thread thread_;
};

}  // namespace chorale
