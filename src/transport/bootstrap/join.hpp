// A member's side of the rendezvous: joining, asking for a reset, saying goodbye.
//
// The link is kept open for the life of the job. Everything runs on the caller's engine and ends by its
// deadline with an error that names what was waited for. errc::no_decider when the rendezvous is gone.
#pragma once

#include <chorale/transport/bootstrap/config.hpp>
#include <chorale/transport/bootstrap/hello.hpp>
#include <chorale/transport/bootstrap/membership.hpp>
#include <chorale/transport/bootstrap/message.hpp>

#include <span>
#include <vector>

namespace chorale {

class rendezvous_link {
 public:
  rendezvous_link() = default;
  rendezvous_link(rendezvous_link&&) = default;
  rendezvous_link& operator=(rendezvous_link&&) = default;
  /// Announces an orderly end, unless in a fork child.
  ~rendezvous_link();
  /// Connects to `config.root`, trying again while nobody listens there, and proves itself. A launcher passes
  /// hello_purpose::launcher and then only calls `next_lost_origin`.
  [[nodiscard]] static task<result<rendezvous_link>> connect(const bootstrap_config& config, time_point until,
                                                             hello_purpose as = hello_purpose::member);

  /// Hands in the record and waits for the table.
  [[nodiscard]] task<result<member_table>> join(const member_record& record, time_point until);
  /// Waits for the decision who goes on: the next epoch's table, or errc::excluded.
  [[nodiscard]] task<result<member_table>> ask_reset(std::uint64_t epoch,
                                                     std::span<const rank_t> believed_dead,
                                                     const member_record& record, time_point until);
  /// Waits until the rendezvous reports a loss in this epoch, or is gone: always an error. Ends at once when
  /// a loss of the epoch has been reported before. May be stopped and repeated.
  [[nodiscard]] task<error> first_loss(std::uint64_t epoch);

  /// For launchers: the next rank, as launched, that was lost; no_rank when all have ended;
  /// errc::no_decider when the rendezvous is gone.
  [[nodiscard]] task<result<rank_t>> next_lost_origin();

  [[nodiscard]] int fd() const noexcept { return connection_.fd(); }
  [[nodiscard]] address local() const noexcept { return local_address(connection_.fd()); }
  explicit operator bool() const noexcept { return static_cast<bool>(connection_); }

 private:
  task<result<member_table>> await_table(std::uint64_t after_epoch);
  message_connection connection_;
  std::string where_;
  pid_t owner_ = 0;
  std::uint64_t epoch_of_loss_ = 0;
  rank_t lost_ = no_rank;
};

}  // namespace chorale
