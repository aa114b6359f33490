// communicator: a fixed group of ranks that call the same operations in the same order.
//
//   chorale::task<> work() {
//     auto comm = co_await chorale::communicator::join();       // from the launcher's variables; alone
//     without one co_await comm.all_reduce(std::span{gradient}, chorale::sum);
//   }
//
// Made inside an engine, whose thread it then belongs to: one thread at a time, that one. Move-only. Calls on
// one lane match across ranks in the order in which they were made; lanes are independent of each other.
// Every await ends: with a value, or with an error that names rank, operation and cause. Destroying a
// communicator tells the others that this rank has left; handles and operations go before it. A fork child
// owns nothing: every call there gives errc::forked, and what the parent holds stays untouched. Element
// types and operations: docs/numbers.md.
#pragma once

#include <chorale/api/gpu.hpp>
#include <chorale/api/lane.hpp>
#include <chorale/api/planned_call.hpp>
#include <chorale/api/ticket.hpp>
#include <chorale/api/token_traits.hpp>
#include <chorale/async/clock.hpp>
#include <chorale/async/task.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>

namespace chorale {

struct epoch;
class quarantine;

struct communicator_options {
  /// Leave empty to take CHORALE_DETERMINISTIC. Rank 0's choice counts for all.
  std::optional<bool> deterministic;
  /// Leave empty to take CHORALE_ALGO: an algorithm for every collective that has it ("ring"), or for single
  /// ones ("all_reduce=ring,broadcast=chain"; errc::invalid_argument where it does not exist). A call that
  /// the algorithm cannot serve takes another. Rank 0's choice counts.
  std::string algorithm;
};

class communicator : public collective_calls<communicator> {
 public:
  /// Joins the job that the launcher's variables describe (docs/launchers.md); a job of one without a
  /// launcher. Throws errc::bootstrap_failed, errc::secret_refused, errc::invalid_argument, … with what was
  /// waited for.
  [[nodiscard]] static task<communicator> join(communicator_options options = {});

  communicator(communicator&&) noexcept;
  communicator& operator=(communicator&&) noexcept;
  ~communicator();

  [[nodiscard]] rank_t rank() const noexcept;
  [[nodiscard]] rank_t size() const noexcept;
  /// This rank's number in the job as launched; ranks move up when a reset leaves some behind.
  [[nodiscard]] rank_t launched_as() const noexcept;
  [[nodiscard]] std::uint64_t epoch_number() const noexcept;
  /// What ended this epoch; errc::ok while nothing has. Also tells, between awaits, what the guard has found
  /// out.
  [[nodiscard]] const error& cause() const noexcept;
  /// "shm", "tcp", or "self": how bytes reach a rank.
  [[nodiscard]] std::string_view transport_to(rank_t peer) const noexcept;

  using collective_calls::all_reduce;
  /// Any described call takes its place in the order of the communicator's own lane now.
  ticket place(const described_call& described, deadline limit = {}) { return lane_.place(described, limit); }

  /// A call with fixed buffers, to be made again and again.
  [[nodiscard]] planned_call plan(const described_call& described) { return lane_.plan(described); }

  template <std::same_as<described_call>... Calls>
  [[nodiscard]] task<void> batch(const Calls&... calls) {
    return lane_.batch(calls...);
  }

  /// An order of calls of its own, by key (0 is the communicator's own). Calls on a handle that could not be
  /// had end with its error.
  [[nodiscard]] lane lane_for(std::uint64_t key);
  [[nodiscard]] lane operator[](std::uint64_t key) { return lane_for(key); }

  /// Gives this rank a GPU, by its ordinal as this process sees it; collective, once per epoch. Throws
  /// errc::unsupported where there is no driver, no peer access, or another rank's host or GPU stands in the
  /// way.
  [[nodiscard]] task<void> use_gpu(int ordinal);
  /// The f32 sum on device memory, bitwise the same on every rank; in place, or input and output apart.
  gpu_ticket all_reduce(device_span inout, reduction op, on stream) {
    return all_reduce(inout, inout, op, stream);
  }
  gpu_ticket all_reduce(device_span in, device_span out, reduction op, on stream);

  /// After a failure: the survivors go on as a new epoch with new ranks. Every survivor calls it; operations
  /// of the old epoch end with it. Throws errc::excluded when the others went on without this rank,
  /// errc::no_decider when nobody is left to decide; the communicator then stays ended. Handles of lanes stay
  /// with their epoch: take new ones.
  [[nodiscard]] task<void> reset();

 private:
  friend class collective_calls<communicator>;
  explicit communicator(std::unique_ptr<epoch> current);
  template <class Maker, class Token>
  auto call_with(Maker maker, Token&& token) {
    return token_traits<std::remove_cvref_t<Token>>::call(loop(), std::move(maker),
                                                          std::forward<Token>(token));
  }
  [[nodiscard]] engine& loop() const noexcept;
  std::unique_ptr<epoch> current_;
  std::unique_ptr<quarantine> former_;
  lane lane_;
};

}  // namespace chorale
