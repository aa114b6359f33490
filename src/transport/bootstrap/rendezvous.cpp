#include <chorale/async/as_result.hpp>
#include <chorale/async/io.hpp>
#include <chorale/async/sleep.hpp>
#include <chorale/async/with_environment.hpp>
#include <chorale/transport/bootstrap/rendezvous.hpp>
#include <chorale/transport/bootstrap/secret.hpp>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace chorale {
namespace {

constexpr std::size_t largest_request = 64 * 1024;
// Reports of losses are advice: a member that does not read them is not waited for.
constexpr std::size_t longest_outbox = 4096;

task<void> wait_for(event& e) { co_await e.wait(); }
task<void> wait_until(time_point at) { co_await sleep_until{at}; }
task<void> wait_for_close(int fd) {
  const auto closed = co_await poll_fd(fd, POLLRDHUP);
  (void)closed;
}

}  // namespace

result<std::unique_ptr<rendezvous>> rendezvous::listen(rendezvous_options options) {
  if (options.size < 1) return error{errc::invalid_argument, "a job has at least one rank"};
  if (!options.where.is_local() && options.secret.empty())
    return error{errc::bootstrap_failed,
                 "a rendezvous at " + options.where.text() +
                     " can be reached from other hosts and needs a secret; set CHORALE_SECRET"};
  auto listener = listen_on(options.where);
  if (!listener && listener.error().os_code() == EADDRINUSE)
    return error{errc::bootstrap_failed,
                 listener.error().detail() +
                     ": already in use; end the other job, or choose another CHORALE_ROOT" +
                     (options.where.is_unix() ? " (a file left by a killed job may be removed)" : "")};
  if (!listener) return std::move(listener).error();
  return std::unique_ptr<rendezvous>{new rendezvous{std::move(options), *std::move(listener)}};
}

rendezvous::rendezvous(rendezvous_options options, unique_fd listener)
    : options_{std::move(options)},
      listener_{std::move(listener)},
      where_{local_address(listener_.get())},
      seats_(static_cast<std::size_t>(options_.size)) {}

rendezvous::~rendezvous() {
  // A socket in the file system outlives its listener; an abstract one does not.
  constexpr std::string_view file = "unix:/";
  const std::string name = where_.text();
  if (name.starts_with(file)) ::unlink(name.c_str() + file.size() - 1);
}

std::string rendezvous::who() const { return "the rendezvous at " + where_.text(); }

task<void> rendezvous::serve() {
  const environment& here = co_await this_environment{};
  scope connections{here};
  connections_ = &connections;
  connections.spawn(accept_loop(listener_.get(), connections, half_open_,
                                [this](unique_fd fd) { return converse(std::move(fd)); }));
  connections.spawn(give_up_at(here.loop->now() + options_.timeout));
  task<result<void>> end = as_result(wait_for(finished_));
  const auto ended = co_await std::move(end);
  if (ended && complete()) {
    const auto over = std::make_shared<const std::vector<std::byte>>(encode_message(message_kind::over, {}));
    for (conversation* watcher : watchers_) push(*watcher, over);
    task<void> draining = drain();
    co_await std::move(draining);
  }
  connections.request_stop();
  co_await connections.join();
  connections_ = nullptr;
}

task<void> rendezvous::drain() {
  if (unsent_ == 0) co_return;
  all_sent_.reset();
  task<result<void>> sent = as_result(with_timeout(std::chrono::seconds{1}, wait_for(all_sent_)));
  (void)co_await std::move(sent);
}

task<result<hello>> rendezvous::identify(int fd) {
  const hello_judge judge = [](const hello& h) {
    const bool known = h.purpose == hello_purpose::member || h.purpose == hello_purpose::launcher;
    return known ? hello_status::ok : hello_status::unexpected;
  };
  task<result<hello>> answer = answer_hello(fd, options_.secret, judge);
  task<result<hello>> bounded = with_timeout(options_.hello_timeout, std::move(answer));
  auto heard = co_await std::move(bounded);
  if (!heard) ++counters_.strangers;
  half_open_.leave();
  co_return heard;
}

task<void> rendezvous::converse(unique_fd fd) {
  conversation talk{std::move(fd)};
  tune_tcp(talk.connection.fd());
  task<result<hello>> introduction = identify(talk.connection.fd());
  auto heard = co_await std::move(introduction);
  if (!heard) co_return;
  task<void> rest = heard->purpose == hello_purpose::member ? converse_with_member(talk, heard->from)
                                                            : converse_with_launcher(talk);
  co_await std::move(rest);
}

task<void> rendezvous::converse_with_member(conversation& talk, rank_t origin) {
  task<result<message>> receive = talk.connection.receive(largest_request);
  task<result<message>> bounded = with_timeout(options_.hello_timeout, std::move(receive));
  auto first = co_await std::move(bounded);
  if (!first) co_return;
  const environment& here = co_await this_environment{};
  scope writing{here};
  writing.spawn(write_outbox(talk));
  const auto taken = take_seat(*first, origin, talk);
  if (taken) {
    if (std::all_of(seats_.begin(), seats_.end(), [](const seat& s) { return s.state == presence::present; }))
      publish();
    task<void> requests = read_requests(talk, **taken);
    co_await std::move(requests);
    (*taken)->talk = nullptr;
    check_finished();
  } else {
    ++counters_.refused;
    push_error(talk, taken.error());
    // The refused one closes when it has read why.
    task<result<void>> end =
        as_result(with_timeout(options_.hello_timeout, wait_for_close(talk.connection.fd())));
    (void)co_await std::move(end);
  }
  writing.request_stop();
  co_await writing.join();
  forget_unsent(talk);
}

task<void> rendezvous::converse_with_launcher(conversation& talk) {
  const environment& here = co_await this_environment{};
  scope writing{here};
  writing.spawn(write_outbox(talk));
  watchers_.push_back(&talk);
  push(talk, std::make_shared<const std::vector<std::byte>>(encode_message(message_kind::watching, {})));
  for (const seat& s : seats_)  // who was lost before the launcher came
    if (s.state == presence::dead && complete()) push(talk, loss_of(s));
  task<result<message>> until_closed = talk.connection.receive(0);
  (void)co_await std::move(until_closed);
  std::erase(watchers_, &talk);
  writing.request_stop();
  co_await writing.join();
  forget_unsent(talk);
}

task<void> rendezvous::write_outbox(conversation& talk) {
  for (;;) {
    while (!talk.outbox.empty()) {
      const shared_bytes next = talk.outbox.front();
      task<result<void>> send = send_all(talk.connection.fd(), next->data(), next->size());
      const auto sent = co_await std::move(send);
      if (!sent) {
        ::shutdown(talk.connection.fd(), SHUT_RDWR);  // the reader sees the end and tidies up
        co_return;
      }
      talk.outbox.pop_front();
      if (--unsent_ == 0) all_sent_.set();
    }
    talk.output.reset();
    task<result<void>> more = as_result(wait_for(talk.output));
    const auto waited = co_await std::move(more);
    if (!waited) co_return;
  }
}

task<void> rendezvous::read_requests(conversation& talk, seat& from) {
  for (;;) {
    task<result<message>> receive = talk.connection.receive(largest_request);
    auto request = co_await std::move(receive);
    if (!request) {
      if (request.error().code() != errc::cancelled) mark_dead(from);
      co_return;
    }
    if (request->kind == message_kind::bye) {
      if (!from.ended()) from.state = presence::left;
      decide_if_heard();
      co_return;
    }
    if (request->kind == message_kind::reset)
      handle_reset(from, *request);
    else
      push_error(talk, error{errc::protocol_error,
                             who() + " did not understand rank " + std::to_string(from.record.origin)});
  }
}

result<rendezvous::seat*> rendezvous::take_seat(const message& first, rank_t claimed, conversation& talk) {
  if (failed_) return failed_;
  byte_reader in{first.body};
  member_record record = decode_record(in);
  if (first.kind != message_kind::record || !in.complete() || record.rank != claimed)
    return error{errc::protocol_error, who() + " got no valid record"};
  const std::string name = "rank " + std::to_string(record.rank);
  if (record.size != options_.size) {
    error why{errc::bootstrap_failed, name + " says that the job has " + std::to_string(record.size) +
                                          " ranks, the rendezvous expects " + std::to_string(options_.size) +
                                          "; start all of them with the same number"};
    fail_all(why);
    return why;
  }
  if (record.rank < 0 || record.rank >= options_.size)
    return error{errc::invalid_argument,
                 name + " does not exist in a job of " + std::to_string(options_.size)};
  seat& s = seats_[static_cast<std::size_t>(record.rank)];
  if (complete() || s.state != presence::awaited)
    return error{errc::invalid_argument, name + " has connected already (process " +
                                             std::to_string(s.record.pid) + "); every rank may join once"};
  record.origin = record.rank;
  s = seat{presence::present, record.rank, std::move(record), &talk};
  return &s;
}

void rendezvous::publish() {
  table_.epoch = 1;
  table_.nonce = random_word();
  for (const seat& s : seats_) table_.members.push_back(s.record);
  byte_writer body;
  encode(table_, body);
  const auto message =
      std::make_shared<const std::vector<std::byte>>(encode_message(message_kind::table, body.bytes()));
  for (seat& s : seats_) push(*s.talk, message);
}

task<void> rendezvous::give_up_at(time_point deadline) {
  task<result<void>> wait = as_result(wait_until(deadline));
  const auto waited = co_await std::move(wait);
  if (!waited || complete() || failed_) co_return;
  std::vector<rank_t> missing;
  for (std::size_t i = 0; i < seats_.size(); ++i)
    if (seats_[i].state == presence::awaited) missing.push_back(static_cast<rank_t>(i));
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(options_.timeout).count();
  fail_all(error{errc::bootstrap_failed, list_ranks(missing) + " of " + std::to_string(options_.size) +
                                             (missing.size() == 1 ? " has" : " have") + " not connected to " +
                                             where_.text() + " after " + std::to_string(seconds) +
                                             " s; CHORALE_BOOTSTRAP_TIMEOUT sets the patience"});
}

void rendezvous::fail_all(const error& why) {
  if (failed_) return;
  failed_ = why;
  for (seat& s : seats_)
    if (s.talk) push_error(*s.talk, why);
}

void rendezvous::handle_reset(seat& from, const message& request) {
  byte_reader in{request.body};
  const auto epoch = in.take<std::uint64_t>();
  const auto believed = in.take<std::uint32_t>();
  (void)in.take_bytes(std::size_t{believed} * sizeof(rank_t));
  member_record record = decode_record(in);
  if (from.state == presence::excluded || (in.complete() && epoch < table_.epoch)) {
    push_error(*from.talk,
               error{errc::excluded, "epoch " + std::to_string(table_.epoch) + " began without rank " +
                                         std::to_string(from.record.origin) + " of the launch"});
    return;
  }
  if (!in.complete() || epoch != table_.epoch || !complete() || from.ended()) {
    push_error(*from.talk, error{errc::protocol_error, who() + " got a malformed reset request"});
    return;
  }
  record.origin = from.record.origin;
  record.size = options_.size;
  from.record = std::move(record);
  from.state = presence::asked;
  if (!resetting_) {
    resetting_ = true;
    connections_->spawn(decide_at(connections_->env().loop->now() + options_.reset_grace, epoch));
  }
  decide_if_heard();
}

task<void> rendezvous::decide_at(time_point deadline, std::uint64_t epoch) {
  task<result<void>> wait = as_result(wait_until(deadline));
  const auto waited = co_await std::move(wait);
  if (waited && resetting_ && table_.epoch == epoch) decide();
}

void rendezvous::decide_if_heard() {
  if (!resetting_) return;
  for (const seat& s : seats_)
    if (s.state == presence::present) return;
  decide();
}

void rendezvous::decide() {
  resetting_ = false;
  ++counters_.resets;
  ++table_.epoch;
  table_.nonce = random_word();
  table_.members.clear();
  std::vector<seat*> members;
  for (seat& s : seats_) {
    if (s.state == presence::present) s.state = presence::excluded;
    if (s.state != presence::asked) continue;
    s.rank = s.record.rank = static_cast<rank_t>(members.size());
    s.state = presence::present;
    members.push_back(&s);
    table_.members.push_back(s.record);
  }
  byte_writer body;
  encode(table_, body);
  const auto message =
      std::make_shared<const std::vector<std::byte>>(encode_message(message_kind::table, body.bytes()));
  for (seat* s : members) push(*s->talk, message);
}

rendezvous::shared_bytes rendezvous::loss_of(const seat& s) const {
  byte_writer body;
  body.put(table_.epoch);
  body.put(s.rank);
  body.put(s.record.origin);
  return std::make_shared<const std::vector<std::byte>>(encode_message(message_kind::lost, body.bytes()));
}

void rendezvous::mark_dead(seat& s) {
  if (s.ended() || s.state == presence::awaited) return;
  const bool was_member = s.member();
  s.state = presence::dead;
  const rank_t origin = s.record.origin;
  if (!complete()) {
    fail_all(error{errc::peer_lost, "rank " + std::to_string(origin) + " ended before the job was complete",
                   origin});
  } else if (was_member) {
    const shared_bytes message = loss_of(s);
    for (seat& other : seats_)
      if (other.talk && other.member() && !other.ended()) push(*other.talk, message);
    for (conversation* watcher : watchers_) push(*watcher, message);
  }
  if (options_.on_loss) options_.on_loss(origin);
  decide_if_heard();
}

void rendezvous::report_exit(rank_t origin) {
  if (origin < 0 || origin >= options_.size) return;
  seat& s = seats_[static_cast<std::size_t>(origin)];
  if (s.state != presence::awaited) return mark_dead(s);
  s.state = presence::dead;
  fail_all(error{errc::peer_lost, "rank " + std::to_string(origin) + " ended before it had joined", origin});
}

void rendezvous::check_finished() {
  const bool connected =
      std::any_of(seats_.begin(), seats_.end(), [](const seat& s) { return s.talk != nullptr; });
  if (!connected && (complete() || failed_)) finished_.set();
}

void rendezvous::forget_unsent(conversation& talk) {
  unsent_ -= talk.outbox.size();
  talk.outbox.clear();
  if (unsent_ == 0) all_sent_.set();
}

void rendezvous::push(conversation& talk, shared_bytes bytes) {
  if (talk.outbox.size() >= longest_outbox) return;
  talk.outbox.push_back(std::move(bytes));
  ++unsent_;
  talk.output.set();
}

void rendezvous::push_error(conversation& talk, const error& why) {
  byte_writer body;
  encode(why, body);
  push(talk,
       std::make_shared<const std::vector<std::byte>>(encode_message(message_kind::refused, body.bytes())));
}

}  // namespace chorale
