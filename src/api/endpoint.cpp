#include <chorale/api/endpoint.hpp>
#include <chorale/api/endpoint_peer.hpp>

#include <utility>

namespace chorale {
namespace {

std::shared_ptr<endpoint_peer> required(const std::shared_ptr<endpoint_peer>& state) {
  if (!state) throw failure{error{errc::invalid_state, "an empty peer_handle was used"}};
  return state;
}

}  // namespace

const std::string& peer_handle::whom() const noexcept {
  static const std::string nobody = "nobody";
  return state_ ? state_->whom() : nobody;
}

const std::string& peer_handle::name() const noexcept {
  static const std::string none;
  return state_ ? state_->name() : none;
}

const error& peer_handle::cause() const noexcept {
  static const error empty{errc::invalid_state, "an empty peer_handle was used"};
  return state_ ? state_->cause() : empty;
}

std::size_t peer_handle::largest_message() const noexcept { return state_ ? state_->largest_message() : 0; }

task<void> peer_handle::send(std::uint64_t tag, payload what) const {
  return endpoint_peer::send(required(state_), tag, what);
}
task<peer_message> peer_handle::recv() const { return endpoint_peer::recv(required(state_), std::nullopt); }
task<peer_message> peer_handle::recv_of(dtype wanted) const {
  return endpoint_peer::recv(required(state_), wanted);
}
task<peer_message> peer_handle::call(std::uint64_t tag, payload what) const {
  return endpoint_peer::call(required(state_), tag, what);
}
task<peer_request> peer_handle::next_request() const { return endpoint_peer::next_request(required(state_)); }
task<error> peer_handle::ended() const { return endpoint_peer::ended(required(state_)); }
task<void> peer_handle::close() const { return endpoint_peer::close(required(state_)); }

peer_request::peer_request(std::shared_ptr<endpoint_peer> from, peer_message message, std::uint64_t id,
                           std::uint64_t cost) noexcept
    : from_{std::move(from)}, message_{std::move(message)}, id_{id}, cost_{cost}, unanswered_{true} {}

peer_request::peer_request(peer_request&& other) noexcept
    : from_{std::move(other.from_)},
      message_{std::move(other.message_)},
      id_{other.id_},
      cost_{other.cost_},
      unanswered_{std::exchange(other.unanswered_, false)} {}

peer_request& peer_request::operator=(peer_request&& other) noexcept {
  std::swap(from_, other.from_);
  std::swap(message_, other.message_);
  std::swap(id_, other.id_);
  std::swap(cost_, other.cost_);
  std::swap(unanswered_, other.unanswered_);
  return *this;
}

peer_request::~peer_request() { refuse(error{errc::dropped, "the request was dropped without an answer"}); }

task<void> peer_request::reply(payload answer) {
  if (!std::exchange(unanswered_, false))
    throw failure{error{errc::invalid_state, "a request was answered twice"}};
  task<void> sending = endpoint_peer::reply(from_, answer, tag(), id_, cost_);
  co_await std::move(sending);
}

void peer_request::refuse(const error& why) noexcept {
  if (!std::exchange(unanswered_, false)) return;
  from_->refuse(id_, cost_, why ? why.code() : errc::dropped, why.detail());
}

}  // namespace chorale
