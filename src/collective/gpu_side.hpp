// A communicator epoch's GPU: its device group, and the coroutines that wait for launches.
//
// Engine's thread, except `abort`, which guard threads call. A poller of the engine: it looks at flags in
// pinned memory, which kernels write when they end; before the engine sleeps, a private stream waits for the
// nearest flag and then runs a host function that wakes it. An aborted kernel writes its flag too, so nobody
// waits for ever.
#pragma once

#include <chorale/async/suspension.hpp>
#include <chorale/kernels/device_group.hpp>
#include <chorale/transport/bootstrap/world.hpp>

#include <memory>

namespace chorale {

/// What a failure elsewhere ends on this GPU. Any thread; pinned memory only.
class gpu_abort {
 public:
  virtual void abort(errc cause, rank_t culprit) noexcept = 0;

 protected:
  ~gpu_abort() = default;
};

class gpu_side final : public poller, public gpu_abort {
 public:
  /// Collective over `members`, which must all be host-mates; runs on a thread of its own meanwhile.
  [[nodiscard]] static task<result<std::unique_ptr<gpu_side>>> create(const world& members, int ordinal);

  gpu_side(engine& loop, std::unique_ptr<cuda::device_group> group);
  gpu_side(const gpu_side&) = delete;
  gpu_side& operator=(const gpu_side&) = delete;
  /// Nobody may wait any more.
  ~gpu_side();

  [[nodiscard]] cuda::device_group& group() noexcept { return *group_; }
  void abort(errc cause, rank_t culprit) noexcept override { group_->abort(cause, culprit); }

  /// One coroutine's wait for one launch.
  struct waiting {
    cuda::completion launch;
    void (*ended)(waiting&) noexcept = nullptr;
    waiting* next = nullptr;
  };
  void wait(waiting& w) noexcept;

  std::size_t poll(std::size_t budget) noexcept override;
  arming arm() noexcept override;
  void disarm() noexcept override {}
  [[nodiscard]] std::size_t outstanding() const noexcept override { return first_ ? 1 : 0; }

 private:
  /// The engine's doorbell, for host functions that may run after this object and its engine are gone.
  struct bell {
    unique_fd doorbell;
  };
  static void ring(void* argument);

  engine& loop_;
  std::unique_ptr<cuda::device_group> group_;
  cuda::stream alarm_ = nullptr;  // waits for flags on behalf of a sleeping engine
  std::uint64_t armed_for_ = 0;   // the sequence whose alarm is set
  std::shared_ptr<bell> bell_ = std::make_shared<bell>();
  waiting* first_ = nullptr;  // in launch order
  waiting* last_ = nullptr;
};

}  // namespace chorale
