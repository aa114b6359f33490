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
// types: float for reductions in this version, any arithmetic type of dtype.hpp for messages.
#pragma once

#include <chorale/api/batch.hpp>
#include <chorale/api/gpu.hpp>
#include <chorale/api/ticket.hpp>
#include <chorale/api/token_traits.hpp>
#include <chorale/async/clock.hpp>
#include <chorale/async/task.hpp>
#include <chorale/kernels/element.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>

namespace chorale {

inline constexpr reduction sum = reduction::sum;
inline constexpr reduction avg = reduction::avg;

class communicator;

/// A key's own order of calls. A handle; the last one dropped ends the key for this epoch.
class lane {
 public:
  lane(lane&& other) noexcept
      : inside_{std::exchange(other.inside_, nullptr)},
        state_{other.state_},
        refused_{std::move(other.refused_)} {}
  lane& operator=(lane&& other) noexcept {
    std::swap(inside_, other.inside_);
    std::swap(state_, other.state_);
    std::swap(refused_, other.refused_);
    return *this;
  }
  ~lane();

  /// out = the sum over all ranks, bitwise the same on every rank. In place with one span; else the two are
  /// apart and of one length. Sums associate as the chosen algorithm says; see CHORALE_DETERMINISTIC.
  ticket all_reduce(std::span<float> inout, reduction op = sum, deadline limit = {});
  ticket all_reduce(std::span<const float> in, std::span<float> out, reduction op = sum, deadline limit = {});

  /// To and from one rank; the n-th send of a rank to another on a lane meets the n-th receive there. Both
  /// sides name the same count and type, else errc::mismatch.
  template <element T>
  ticket send(std::span<const T> from, rank_t to, deadline limit = {}) {
    return message(const_cast<std::byte*>(reinterpret_cast<const std::byte*>(from.data())), from.size(),
                   dtype_of<T>, to, direction::out, limit);
  }
  template <element T>
  ticket send(std::span<T> from, rank_t to, deadline limit = {}) {
    return send(std::span<const T>{from}, to, limit);
  }
  template <element T>
  ticket recv(std::span<T> into, rank_t from, deadline limit = {}) {
    return message(reinterpret_cast<std::byte*>(into.data()), into.size(), dtype_of<T>, from, direction::in,
                   limit);
  }

  /// Ends when every rank has called it.
  ticket barrier(deadline limit = {});

  /// Several calls, numbered left to right now, started together when the task is awaited. The first failure
  /// is thrown when all have ended. A batch that is never awaited drops its tickets: see ticket.hpp.
  template <std::same_as<described_call>... Calls>
  [[nodiscard]] task<void> batch(const Calls&... calls) {
    std::vector<ticket> placed;
    placed.reserve(sizeof...(calls));
    (placed.push_back(place(calls)), ...);
    return detail::run_batch(std::move(placed));
  }

 private:
  friend class communicator;
  enum class direction : std::uint8_t { in, out };
  lane(core* inside, lane_state* state) noexcept : inside_{inside}, state_{state} {}
  explicit lane(error refused) noexcept : refused_{std::move(refused)} {}
  ticket message(std::byte* data, std::size_t count, dtype type, rank_t peer, direction way, deadline limit);
  ticket place(call what, deadline limit);
  ticket place(const described_call& described);
  core* inside_ = nullptr;
  lane_state* state_ = nullptr;
  error refused_;
};

struct epoch;
class quarantine;

struct communicator_options {
  /// Leave empty to take CHORALE_DETERMINISTIC. Rank 0's choice counts for all.
  std::optional<bool> deterministic;
  /// Leave empty to take CHORALE_ALGO: auto, tiny, recursive_doubling, slice_owner, ring. Rank 0's choice
  /// counts.
  std::string algorithm;
};

class communicator {
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

  ticket all_reduce(std::span<float> inout, reduction op = sum, deadline limit = {}) {
    return lane_.all_reduce(inout, op, limit);
  }
  ticket all_reduce(std::span<const float> in, std::span<float> out, reduction op = sum,
                    deadline limit = {}) {
    return lane_.all_reduce(in, out, op, limit);
  }
  template <element T>
  ticket send(std::span<T> from, rank_t to, deadline limit = {}) {
    return lane_.send(from, to, limit);
  }
  template <element T>
  ticket recv(std::span<T> into, rank_t from, deadline limit = {}) {
    return lane_.recv(into, from, limit);
  }
  ticket barrier(deadline limit = {}) { return lane_.barrier(limit); }

  /// The same calls for completion tokens of other frameworks, from any thread (asio.hpp says how). A
  /// communicator that is called so stays where it is.
  template <foreign_token Token>
  auto all_reduce(std::span<float> inout, reduction op, Token&& token) {
    return call_with([this, inout, op] { return all_reduce(inout, op); }, std::forward<Token>(token));
  }
  template <foreign_token Token>
  auto all_reduce(std::span<float> inout, reduction op, deadline limit, Token&& token) {
    limit = deadline{limit.from(steady_now())};  // counts from this call, not from when the engine takes it
    return call_with([this, inout, op, limit] { return all_reduce(inout, op, limit); },
                     std::forward<Token>(token));
  }
  template <element T, foreign_token Token>
  auto send(std::span<T> from, rank_t to, Token&& token) {
    return call_with([this, from, to] { return send(from, to); }, std::forward<Token>(token));
  }
  template <element T, foreign_token Token>
  auto recv(std::span<T> into, rank_t from, Token&& token) {
    return call_with([this, into, from] { return recv(into, from); }, std::forward<Token>(token));
  }
  template <foreign_token Token>
  auto barrier(Token&& token) {
    return call_with([this] { return barrier(); }, std::forward<Token>(token));
  }

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
