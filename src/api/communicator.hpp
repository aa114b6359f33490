// communicator: a fixed group of ranks that call the same operations in the same order.
//
//   chorale::task<> work() {
//     auto comm = co_await chorale::communicator::join();  // by the launcher's variables, or a job of one
//     co_await comm.all_reduce(gradient, chorale::sum);
//   }
//
// Made inside an engine, whose thread it then belongs to: one thread at a time, that one. Move-only. Calls on
// one lane match across ranks in the order in which they were made; lanes are independent of each other.
// An await ends with a value, or with an error that names rank, operation and cause, also when a rank dies,
// stops, leaves or calls something else. A rank that lives and never makes its call is waited for, unless
// the call has a deadline. Destroying a communicator tells the others that this rank has left; handles and
// operations go before it. A fork child owns nothing: every call there gives errc::forked, and what the
// parent holds stays untouched. Element types and operations: docs/numbers.md.
#pragma once

#include <chorale/api/gpu.hpp>
#include <chorale/api/lane.hpp>
#include <chorale/api/planned_call.hpp>
#include <chorale/api/ticket.hpp>
#include <chorale/api/token_traits.hpp>
#include <chorale/api/window.hpp>
#include <chorale/async/clock.hpp>
#include <chorale/async/task.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>

namespace chorale {

struct epoch;
class group;
class quarantine;

/// For `split`: a rank that wants none.
inline constexpr std::int64_t no_colour = std::numeric_limits<std::int64_t>::min();

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
  [[nodiscard]] static task<communicator> join(communicator_options options);
  /// An overload and no default argument: g++ 12 destroys an aggregate made inside an await expression twice.
  [[nodiscard]] static task<communicator> join() { return join(communicator_options{}); }

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

  /// Any described call takes its place in the order of the communicator's own lane now.
  ticket place(const described_call& described, deadline limit = {}) { return lane_.place(described, limit); }

  /// A call with fixed buffers, to be made again and again.
  [[nodiscard]] planned_call plan(const described_call& described) { return lane_.plan(described); }

  template <std::same_as<described_call>... Calls>
  [[nodiscard]] task<void> batch(const Calls&... calls) {
    return lane_.batch(calls...);
  }
  [[nodiscard]] task<void> batch(std::span<const described_call> calls) { return lane_.batch(calls); }
  /// Sends and receives of device memory with a stream behind them: one operation on it.
  template <class... Args>
    requires detail::call_arguments<Args...>::template
  has<on> [[nodiscard]] gpu_ticket batch(const Args&... calls_and_stream) {
    return detail::batch_and_last(
        [this](const auto& calls, const on& stream) { return launch_batch(calls, stream); },
        calls_and_stream...);
  }
  /// With a completion token behind the calls, from any thread.
  template <class... Args>
    requires detail::call_arguments<Args...>::has_token
  auto batch(Args&&... calls_and_token) {
    return detail::batch_and_last(
        [this](auto calls, auto&& token) {
          return detail::call_with_token(
              loop(),
              [this, calls = std::move(calls)] { return batch(std::span<const described_call>{calls}); },
              std::forward<decltype(token)>(token));
        },
        std::forward<Args>(calls_and_token)...);
  }

  /// An order of calls of its own, by key (0 is the communicator's own). Calls on a handle that could not be
  /// had end with its error.
  [[nodiscard]] lane lane_for(std::uint64_t key);
  [[nodiscard]] lane operator[](std::uint64_t key) { return lane_for(key); }
  /// The communicator's own lane begins anew after a deadline, a stop or a mismatch ended it: see
  /// `lane::reset`.
  [[nodiscard]] ticket reset_lane(deadline limit = {}) { return lane_.reset(limit); }

  /// Ranks that name the same colour get a communicator of their own, numbered by `key` and, where keys are
  /// equal, by their numbers here; ranks that name `no_colour` take part and get none. Every rank calls it. A
  /// child shares its parent's connections and its fate: what ends the parent's epoch ends the child's calls,
  /// and a child goes before its parent does. Destroying one tells its members only: their calls that need
  /// this rank end with errc::peer_left.
  [[nodiscard]] task<std::optional<communicator>> split(std::int64_t colour, std::int64_t key = 0,
                                                        deadline limit = {});
  /// All ranks once more, with an order of calls of its own.
  [[nodiscard]] task<communicator> dup(deadline limit = {});

  /// Memory of every rank that the others reach with put, get, accumulate and signal: see window.hpp. Every
  /// rank calls it; parts may differ in size, also be empty, and start as zeroes. The library's memory,
  /// shared by the ranks of a host. Refused while a `use_gpu` is under way, as that is while a window is
  /// created.
  [[nodiscard]] task<window> create_window(std::uint64_t bytes, window_options options = {},
                                           deadline limit = {});
  /// Likewise over memory of the caller's, which stays until the window is closed or destroyed; also between
  /// ranks of one host the owner's engine then does what others ask for. Ranks that create and ranks that
  /// register may meet in one window.
  [[nodiscard]] task<window> register_window(std::span<std::byte> memory, window_options options = {},
                                             deadline limit = {});

  /// Gives this rank a GPU, by its ordinal as this process sees it; collective, once per epoch. Throws
  /// errc::unsupported where there is no driver, no peer access, or another rank's host or GPU stands in the
  /// way.
  [[nodiscard]] task<void> use_gpu(int ordinal);
  /// Any described call on device memory, to be enqueued on `stream`: see gpu.hpp.
  [[nodiscard]] gpu_ticket launch(const described_call& described, on stream, deadline limit = {});
  /// Sends and receives as one operation, at most one per peer and direction.
  [[nodiscard]] gpu_ticket launch_batch(std::span<const described_call> calls, on stream,
                                        deadline limit = {});

  /// After a failure: the survivors go on as a new epoch with new ranks. Every survivor calls it; operations
  /// of the old epoch end with it. Throws errc::excluded when the others went on without this rank,
  /// errc::no_decider when nobody is left to decide; the communicator then stays ended. Handles of lanes and
  /// children stay with their epoch: take new ones. Children cannot be reset.
  [[nodiscard]] task<void> reset();

 private:
  friend class collective_calls<communicator>;
  explicit communicator(std::shared_ptr<epoch> current);
  communicator(std::shared_ptr<epoch> current, group& among);
  template <class Token>
  auto call_with(described_call described, deadline limit, Token&& token) {
    return detail::call_with_token(
        loop(), [this, described = std::move(described), limit] { return place(described, limit); },
        std::forward<Token>(token));
  }
  [[nodiscard]] engine& loop() const noexcept;
  [[nodiscard]] gpu_call on_gpu(on stream, deadline limit) const;
  struct split_wishes;
  [[nodiscard]] static task<std::optional<communicator>> finish_split(std::shared_ptr<epoch> shared,
                                                                      group& parent, std::uint64_t id,
                                                                      std::unique_ptr<split_wishes> wishes,
                                                                      ticket placed);
  [[nodiscard]] static task<communicator> whole_of(task<std::optional<communicator>> splitting);
  [[nodiscard]] task<window> make_window(std::uint64_t bytes, std::byte* registered, window_options options,
                                         deadline limit);
  [[nodiscard]] group& among() const noexcept;
  [[nodiscard]] std::uint64_t next_ticket() const noexcept;
  std::shared_ptr<epoch> current_;
  group* child_ = nullptr;  // null: all ranks of the epoch
  std::unique_ptr<quarantine> former_;
  lane lane_;
};

}  // namespace chorale
