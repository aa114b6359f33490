// One peer as the library sees it: its connection, what came and was not taken, the calls that wait for
// answers.
//
// Shared by the handles, requests and running operations of that peer, and by its listener until somebody
// accepted it. Operations are static coroutines that own a share, so a handle may go while they run. One
// engine's thread.
#pragma once

#include <chorale/api/endpoint.hpp>
#include <chorale/api/endpoint_hub.hpp>
#include <chorale/async/event.hpp>
#include <chorale/transport/endpoint/connection.hpp>

#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>

namespace chorale {

class endpoint_peer final : public std::enable_shared_from_this<endpoint_peer>,
                            private endpoints::connection_events {
 public:
  using share = std::shared_ptr<endpoint_peer>;

  struct parameters {
    std::string name;
    std::string address;
    std::uint64_t receive_window = 0;
    std::uint64_t send_window = 0;
  };
  endpoint_peer(engine& loop, unique_fd socket, parameters known, std::shared_ptr<endpoint_hub> hub);
  endpoint_peer(const endpoint_peer&) = delete;
  endpoint_peer& operator=(const endpoint_peer&) = delete;
  ~endpoint_peer() override;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const std::string& whom() const noexcept { return wire_.whom(); }
  [[nodiscard]] const error& cause() const noexcept { return cause_; }
  [[nodiscard]] std::size_t largest_message() const noexcept {
    return static_cast<std::size_t>(wire_.largest() - endpoints::frame_overhead);
  }
  [[nodiscard]] bool has_message() const noexcept { return !messages_.empty(); }
  [[nodiscard]] bool has_request() const noexcept { return !requests_.empty(); }

  static task<void> send(share self, std::uint64_t tag, payload what);
  static task<peer_message> recv(share self, std::optional<dtype> wanted);
  static task<peer_message> call(share self, std::uint64_t tag, payload what);
  static task<peer_request> next_request(share self);
  static task<void> reply(share self, payload answer, std::uint64_t tag, std::uint64_t id,
                          std::uint64_t cost);
  static task<error> ended(share self);
  static task<void> close(share self);

  void refuse(std::uint64_t id, std::uint64_t cost, errc code, std::string_view why) noexcept;
  /// For the listener. Precondition: there is one.
  peer_message take_message();
  peer_request take_request();
  /// The listener took it off its list of turns.
  void turn_taken(const peer_turns& which) noexcept;
  void list_again(peer_turns& which);

 private:
  struct pending_send;
  struct pending_call;
  struct refusal;

  const char* on_frame(endpoints::received_frame&& frame) noexcept override;
  void on_end(const error& why) noexcept override;
  [[nodiscard]] std::shared_ptr<void> keep() noexcept override { return weak_from_this().lock(); }

  void on_answer(endpoints::received_frame&& frame) noexcept;
  void drop_refusal(refusal& done) noexcept;
  void forget_if_drained() noexcept;
  void wake_all() noexcept;
  void require_open() const;
  /// Waits on the peer's behalf: a stop request's error says what was being done, and with whom.
  static task<void> wait(share self, event& on, const char* doing);
  static task<void> transmit(share self, payload what, endpoints::frame_header header, const char* doing);
  static peer_message message_from(endpoints::received_frame&& frame);

  std::string name_;
  std::shared_ptr<endpoint_hub> hub_;
  endpoints::connection wire_;
  error cause_;
  std::deque<endpoints::received_frame> messages_;
  std::deque<endpoints::received_frame> requests_;
  event messages_changed_;
  event requests_changed_;
  event over_;
  bool listed_messages_ = false;
  bool listed_requests_ = false;
  std::uint64_t last_id_ = 0;
  std::unordered_map<std::uint64_t, pending_call*> calls_;
  std::unordered_map<std::uint64_t, std::unique_ptr<refusal>> refusals_;
  std::uint64_t last_refusal_ = 0;
};

}  // namespace chorale
