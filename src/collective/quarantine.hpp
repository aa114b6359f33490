// Epochs that ended, kept until nobody can touch their memory any more.
//
// A new epoch works on fresh memory; the old one's goes when every rank that came along has confirmed that it
// writes there no more (it does so by asking for the new epoch, see core::close), when the processes of all
// others have certainly ended, and when the application has let go of its handles. Looked at when an epoch
// comes in and on a timer that slows down: a rank that was left behind alive may hold its epoch for long.
// Engine's thread.
#pragma once

#include <chorale/async/engine.hpp>
#include <chorale/collective/epoch.hpp>

#include <memory>
#include <vector>

namespace chorale {

class quarantine {
 public:
  explicit quarantine(engine& loop) noexcept : loop_{loop} {}
  quarantine(const quarantine&) = delete;
  quarantine& operator=(const quarantine&) = delete;
  ~quarantine() { loop_.disarm(next_look_); }

  /// `former` is closed; `left_behind` are its ranks that share memory with this one and are not in the next
  /// epoch.
  void add(std::shared_ptr<epoch> former, std::vector<rank_t> left_behind);
  [[nodiscard]] std::size_t size() const noexcept { return kept_.size(); }

 private:
  struct entry {
    std::shared_ptr<epoch> former;
    std::vector<rank_t> left_behind;
  };
  struct look : timer {
    explicit look(quarantine& s) noexcept : timer{fired}, self{s} {}
    static void fired(operation& op) noexcept;
    quarantine& self;
  };
  void release() noexcept;

  engine& loop_;
  std::vector<entry> kept_;
  look next_look_{*this};
  duration pause_{};
};

}  // namespace chorale
