// Collectives on GPU memory: stream-ordered like NCCL's, and awaitable.
//
//   co_await comm.use_gpu(0);  // once per epoch, on every rank
//
//   chorale::device_span gradient{memory, n};
//   co_await comm.all_reduce(gradient, chorale::sum, chorale::on(stream));
//   co_await comm.all_gather(mine, all, chorale::on(stream), chorale::deadline{50ms});
//   co_await comm.barrier(chorale::on(stream));
//   co_await comm.batch(chorale::send(a, next), chorale::recv(b, last), chorale::on(stream));  // one
//   operation
//
//   auto op = comm.all_reduce(gradient, chorale::sum, chorale::on(stream)).start();  // enqueued
//   backward<<<..., compute>>>();
//   co_await std::move(op);
//
//   chorale::error bad = comm.all_reduce(gradient, chorale::sum, chorale::on(stream)).enqueue();  // as NCCL
//
// All collectives of description.hpp except the scans, with all element types and operations except functions
// of the user's; messages of a pair meet in the order of the calls. The operation runs on the caller's
// stream, after what was enqueued there before; the await ends when the GPU has finished. Inside a stream
// capture the operation becomes part of the graph: start it and do not await it, await the stream that runs
// the graph. When a rank dies or disagrees the kernel ends, the output is filled with NaN (integers with ones
// in all bits), and the await gives the cause; later operations of the epoch end at once. A deadline counts
// from the call and is looked after while the operation is awaited. No CUDA header is needed here.
#pragma once

#include <chorale/collective/gpu_launch.hpp>

#include <utility>

namespace chorale {

class gpu_started;

/// A call on device memory that has not been enqueued.
class [[nodiscard]] gpu_ticket {
 public:
  explicit gpu_ticket(gpu_call what) noexcept : what_{std::move(what)} {}
  gpu_ticket(gpu_ticket&&) noexcept = default;
  gpu_ticket& operator=(gpu_ticket&&) noexcept = default;

  /// Enqueues it now.
  gpu_started start() &&;
  /// Enqueues it now, for the stream alone: nobody is told of its end, which saves 1 to 2 µs of the kernel's
  /// time. Wait for the stream; a failure poisons the output and ends later operations. Errors here mean that
  /// nothing was enqueued.
  [[nodiscard]] error enqueue() && {
    what_.awaited = false;
    return launch(std::move(what_)).refused;
  }
  [[nodiscard]] gpu_awaiter operator co_await() && { return {launch(std::move(what_))}; }

 private:
  gpu_call what_;
};

/// A call that is enqueued. Dropping it leaves the operation to the stream.
class [[nodiscard]] gpu_started {
 public:
  explicit gpu_started(gpu_launch launched) noexcept : launched_{std::move(launched)} {}
  /// How the enqueueing went: an error here means that nothing was enqueued.
  [[nodiscard]] const error& refused() const noexcept { return launched_.refused; }
  [[nodiscard]] gpu_awaiter operator co_await() && noexcept { return {std::move(launched_)}; }

 private:
  gpu_launch launched_;
};

inline gpu_started gpu_ticket::start() && { return gpu_started{launch(std::move(what_))}; }

}  // namespace chorale
