#include <chorale/api/endpoint.hpp>
#include <chorale/api/endpoint_peer.hpp>
#include <chorale/async/as_result.hpp>
#include <chorale/async/io.hpp>
#include <chorale/async/scope.hpp>
#include <chorale/async/sleep.hpp>
#include <chorale/async/with_environment.hpp>
#include <chorale/transport/bootstrap/accept_loop.hpp>
#include <chorale/transport/endpoint/greeting.hpp>
#include <chorale/transport/socket.hpp>

#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace chorale {
namespace {

/// Connections of one listener that have not finished their hello.
constexpr std::size_t most_half_open = 256;
constexpr auto pause_between_attempts = std::chrono::milliseconds{50};

result<address> checked(const std::string& text, const endpoint_options& options, const char* verb) {
  auto where = address::parse(text);
  if (!where) return where;
  if (options.byte_limit < endpoints::least_window)
    return error{errc::invalid_argument, "a byte_limit of " + std::to_string(options.byte_limit) +
                                             " leaves no room for messages; give 16 KiB or more"};
  if (options.secret.empty() && !where->is_local())
    return error{errc::invalid_argument,
                 std::string{verb} + " " + text +
                     " without a secret: other hosts reach that address, so both sides must prove that they "
                     "know options.secret; without one use 127.0.0.1, [::1] or unix:@name"};
  return where;
}

/// The file of a unix address; null for every other.
const char* path_of(const address& where) noexcept {
  if (!where.is_unix()) return nullptr;
  const char* const path = reinterpret_cast<const sockaddr_un*>(where.data())->sun_path;
  return path[0] != '\0' ? path : nullptr;
}

/// Listens; where a service that was killed left its socket file behind, in its place.
task<result<unique_fd>> open_door(const address where) {
  auto opened = listen_on(where);
  const char* const path = path_of(where);
  if (opened || !path || opened.error().os_code() != EADDRINUSE) co_return opened;
  auto probe = open_stream(where);
  if (!probe) co_return std::move(probe).error();
  auto answered = co_await connect_to(probe->get(), where.data(), where.size());
  if (answered || answered.error().os_code() != ECONNREFUSED) co_return opened;
  ::unlink(path);
  co_return listen_on(where);
}

endpoints::introduction introduction_of(const endpoint_options& options) {
  return {options.name, options.byte_limit};
}

std::int64_t milliseconds(duration d) noexcept {
  return std::chrono::duration_cast<std::chrono::milliseconds>(d).count();
}

std::shared_ptr<endpoint_peer> make_peer(engine& loop, unique_fd fd, const endpoints::introduction& theirs,
                                         std::string where, const endpoint_options& options,
                                         std::shared_ptr<endpoint_hub> hub) {
  endpoints::limit_silence(fd.get(), milliseconds(options.silence));
  return std::make_shared<endpoint_peer>(
      loop, std::move(fd),
      endpoint_peer::parameters{theirs.name, std::move(where), options.byte_limit, theirs.window},
      std::move(hub));
}

}  // namespace

/// What accepts connections goes on for a moment after its listener has gone, until the kernel has given back
/// what is under way: it owns a share of this.
struct listener_state {
  listener_state(engine& loop, unique_fd fd, endpoint_options wanted)
      : socket{std::move(fd)}, bound{local_address(socket.get())}, options{std::move(wanted)} {
    env.loop = &loop;
    env.stop = &stop;
  }
  unique_fd socket;
  pid_t owner = ::getpid();
  address bound;
  endpoint_options options;
  std::shared_ptr<endpoint_hub> hub = std::make_shared<endpoint_hub>();
  std::size_t greeting = 0;  // proved themselves, not peers yet
  stop_source stop;
  environment env;
};

namespace {

using listening = std::shared_ptr<listener_state>;

task<void> converse(listening self, half_open_limit& limit, unique_fd fd) {
  tune_tcp(fd.get());
  const std::string where = peer_address(fd.get()).text();
  bool counted = false;
  const std::function<bool()> room = [&]() {
    counted = self->hub->peers + self->greeting < self->options.most_peers;
    if (counted) ++self->greeting;
    return counted;
  };
  task<result<endpoints::introduction>> hello = endpoints::answer_peer(
      fd.get(), self->options.secret, self->options.service, introduction_of(self->options), room);
  task<result<endpoints::introduction>> bounded = with_timeout(self->options.hello_limit, std::move(hello));
  auto theirs = co_await std::move(bounded);
  limit.leave();
  if (counted) --self->greeting;
  if (!theirs || self->hub->closed) {
    ++self->hub->strangers;
    co_return;
  }
  self->hub->unclaimed.push_back(
      make_peer(*self->env.loop, std::move(fd), *theirs, where, self->options, self->hub));
  self->hub->arrived.set();
}

task<void> accept_all(listening self) {
  half_open_limit limit{most_half_open};
  scope conversations{self->env};
  std::function<task<void>(unique_fd)> answer = [&](unique_fd fd) {
    return converse(self, limit, std::move(fd));
  };
  task<void> accepting = accept_loop(self->socket.get(), conversations, limit, std::move(answer));
  task<result<void>> guarded = as_result(std::move(accepting));
  auto over = co_await std::move(guarded);
  conversations.request_stop();
  co_await conversations.join();
  self->socket.reset();  // whoever still knocks is told at once
}

/// Owns itself: ends, at the latest, when the listener asks it to.
detail::root_coroutine run_listener(listening self) {
  task<void> accepting = accept_all(self);
  co_await std::move(accepting);
}

void require_listening(const endpoint_hub& hub) {
  if (hub.closed) throw failure{error{errc::invalid_state, "the listener was closed"}};
}

task<void> wait_for(event& changed, const char* doing) {
  try {
    event::waiter waiting = changed.wait();
    co_await waiting;
  } catch (const failure& f) {
    throw failure{error{f.why().code(), doing}};
  }
}

/// The next peer whose turn it is, with something to take.
task<endpoint_peer::share> next_turn(listening self, peer_turns& turns, const char* doing) {
  for (;;) {
    require_listening(*self->hub);
    while (!turns.empty()) {
      endpoint_peer& peer = turns.next();
      peer.turn_taken(turns);
      endpoint_peer::share found = peer.shared_from_this();
      const bool any = &turns == &self->hub->requests ? peer.has_request() : peer.has_message();
      if (any) co_return found;  // else it was taken through the peer itself
    }
    turns.changed.reset();
    task<void> coming = wait_for(turns.changed, doing);
    co_await std::move(coming);
  }
}

task<peer_handle> accept_from(listening self) {
  while (self->hub->unclaimed.empty()) {
    require_listening(*self->hub);
    self->hub->arrived.reset();
    task<void> coming = wait_for(self->hub->arrived, "accept");
    co_await std::move(coming);
  }
  peer_handle first{std::move(self->hub->unclaimed.front())};
  self->hub->unclaimed.pop_front();
  co_return first;
}

task<arrival> recv_from_any(listening self) {
  task<endpoint_peer::share> turn = next_turn(self, self->hub->messages, "recv from any peer");
  const endpoint_peer::share from = co_await std::move(turn);
  arrival got;
  got.message = from->take_message();
  from->list_again(self->hub->messages);
  got.from = peer_handle{from};
  co_return got;
}

task<peer_request> request_from_any(listening self) {
  task<endpoint_peer::share> turn = next_turn(self, self->hub->requests, "next request of any peer");
  const endpoint_peer::share from = co_await std::move(turn);
  peer_request got = from->take_request();
  from->list_again(self->hub->requests);
  co_return got;
}

listening required(const listening& state) {
  if (!state) throw failure{error{errc::invalid_state, "a listener was used after it was moved from"}};
  return state;
}

}  // namespace

task<listener> listen(std::string address, endpoint_options options) {
  const environment& here = co_await this_environment{};
  const auto where = checked(address, options, "listen on");
  if (!where) throw failure{where.error()};
  task<result<unique_fd>> opening = open_door(*where);
  auto socket = co_await std::move(opening);
  if (!socket) throw failure{std::move(socket).error()};
  listening state = std::make_shared<listener_state>(*here.loop, *std::move(socket), std::move(options));
  const auto root = run_listener(state);
  root.frame.promise().environment_used = &state->env;
  root.frame.resume();
  co_return listener{std::move(state)};
}

std::string listener::where() const { return required(state_)->bound.text(); }
std::size_t listener::peers() const noexcept { return state_ ? state_->hub->peers : 0; }
std::uint64_t listener::strangers() const noexcept { return state_ ? state_->hub->strangers : 0; }
task<peer_handle> listener::accept() const { return accept_from(required(state_)); }
task<arrival> listener::recv_any() const { return recv_from_any(required(state_)); }
task<peer_request> listener::next_request() const { return request_from_any(required(state_)); }

void listener::close() noexcept {
  if (!state_ || state_->owner != ::getpid()) return;  // a fork child closes nothing of its parent's
  if (std::exchange(state_->hub->closed, true)) return;
  if (const char* path = path_of(state_->bound)) ::unlink(path);
  state_->stop.request_stop();
  endpoint_hub& hub = *state_->hub;
  hub.messages.changed.set();
  hub.requests.changed.set();
  hub.arrived.set();
  const auto unclaimed = std::exchange(hub.unclaimed, {});
}

namespace {

/// One attempt; nothing is left of one that fails.
task<result<peer_handle>> attempt(const address where, std::string text, endpoint_options options) {
  const environment& here = co_await this_environment{};
  auto socket = open_stream(where);
  if (!socket) co_return std::move(socket).error();
  const int fd = socket->get();
  auto connected = co_await connect_to(fd, where.data(), where.size());
  if (!connected) {
    if (connected.error().os_code() == 0) co_return std::move(connected).error();
    co_return error::from_os(connected.error().os_code(), "connect " + text);
  }
  tune_tcp(fd);
  task<result<endpoints::introduction>> hello =
      endpoints::greet_service(fd, options.secret, options.service, introduction_of(options));
  auto theirs = co_await std::move(hello);
  if (!theirs) co_return std::move(theirs).error();
  peer_handle peer{make_peer(*here.loop, *std::move(socket), *theirs, text, options, nullptr)};
  co_return peer;
}

/// EAGAIN: a unix socket's queue is full.
bool nobody_listens(const error& why) noexcept {
  return why.os_code() == ECONNREFUSED || why.os_code() == ENOENT || why.os_code() == EAGAIN;
}

}  // namespace

task<peer_handle> connect(std::string address, endpoint_options options) {
  const environment& here = co_await this_environment{};
  const auto where = checked(address, options, "connect");
  if (!where) throw failure{where.error()};
  const time_point until = deadline{options.patience}.from(here.loop->now());
  for (;;) {
    task<result<peer_handle>> trying = with_timeout(options.hello_limit, attempt(*where, address, options));
    auto outcome = co_await std::move(trying);
    if (outcome) co_return *std::move(outcome);
    const error& why = outcome.error();
    if (nobody_listens(why) && here.loop->now() < until) {
      task<void> pause = sleep_for(pause_between_attempts);
      co_await std::move(pause);
      continue;
    }
    if (why != errc::timed_out || here.stop_requested()) throw failure{why};
    throw failure{error{errc::timed_out, "connect " + address + ": the hello was not over within " +
                                             std::to_string(milliseconds(options.hello_limit)) + " ms"}};
  }
}

}  // namespace chorale
