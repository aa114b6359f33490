#include <chorale/async/as_result.hpp>
#include <chorale/async/io.hpp>
#include <chorale/async/sleep.hpp>
#include <chorale/async/with_environment.hpp>
#include <chorale/transport/bootstrap/hello.hpp>
#include <chorale/transport/bootstrap/join.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace chorale {
namespace {

constexpr std::size_t largest_table = std::size_t{256} << 20;
constexpr std::size_t largest_notice = 64 * 1024;
// The rendezvous knows who is missing and says so when its own patience ends; wait a little longer than it
// does.
constexpr auto for_the_last_word = std::chrono::seconds{2};

task<result<unique_fd>> connect_once(const bootstrap_config& config, hello_purpose as) {
  auto opened = open_stream(config.root);
  if (!opened) co_return std::move(opened).error();
  unique_fd fd = *std::move(opened);
  const auto connected = co_await connect_to(fd.get(), config.root.data(), config.root.size());
  if (!connected) co_return connected.error();
  tune_tcp(fd.get());
  hello mine;
  mine.purpose = as;
  mine.from = config.rank;
  task<result<void>> greeting = with_timeout(config.hello_timeout, greet(fd.get(), config.secret, mine));
  const auto greeted = co_await std::move(greeting);
  if (!greeted) co_return greeted.error();
  co_return fd;
}

bool worth_another_try(const error& e) noexcept {
  switch (e.os_code()) {
    case ECONNREFUSED:
    case ENOENT:
    case EAGAIN:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ECONNRESET:
    case EPIPE:
      return true;
    default:
      return e.code() == errc::link_lost;
  }
}

}  // namespace

task<result<rendezvous_link>> rendezvous_link::connect(const bootstrap_config& config, time_point until,
                                                       hello_purpose as) {
  const environment& here = co_await this_environment{};
  duration pause = std::chrono::milliseconds{2};
  error last{errc::bootstrap_failed, "nobody answered"};
  while (here.loop->now() < until) {
    task<result<unique_fd>> attempt = with_deadline(until, connect_once(config, as));
    auto connected = co_await std::move(attempt);
    if (connected) {
      rendezvous_link link;
      link.connection_ = message_connection{*std::move(connected)};
      link.where_ = config.root.text();
      link.owner_ = ::getpid();
      co_return link;
    }
    if (here.stop_requested() || connected.error().code() == errc::secret_refused ||
        connected.error().code() == errc::protocol_error)
      co_return std::move(connected).error();
    const bool silent = connected.error().code() == errc::timed_out;
    if (!silent || here.loop->now() < until) last = connected.error();
    if (!silent && !worth_another_try(connected.error())) break;
    task<result<void>> wait = as_result(sleep_for(pause));
    (void)co_await std::move(wait);
    pause = std::min<duration>(pause * 2, std::chrono::milliseconds{100});
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(config.timeout).count();
  co_return error{errc::bootstrap_failed, "rank " + std::to_string(config.rank) +
                                              " could not reach the rendezvous at " + config.root.text() +
                                              " within " + std::to_string(seconds) +
                                              " s; the last attempt: " + last.summary()};
}

task<result<member_table>> rendezvous_link::await_table(std::uint64_t after_epoch) {
  for (;;) {
    task<result<message>> receive = connection_.receive(largest_table);
    auto got = co_await std::move(receive);
    if (!got) {
      const errc code = got.error().code();
      if (code == errc::timed_out || code == errc::cancelled || code == errc::protocol_error)
        co_return std::move(got).error();
      co_return error{errc::no_decider, "the rendezvous at " + where_ + " closed the connection"};
    }
    if (got->kind == message_kind::refused) co_return decode_error(got->body);
    if (got->kind != message_kind::table) continue;  // reports of losses, on the way to a decision
    auto table = decode_table(got->body);
    if (!table || table->epoch > after_epoch) co_return table;
  }
}

task<result<member_table>> rendezvous_link::join(const member_record& record, time_point until) {
  byte_writer body;
  encode(record, body);
  task<result<void>> send = connection_.send(message_kind::record, body.bytes());
  const auto sent = co_await std::move(send);
  if (!sent) co_return error{errc::no_decider, "the rendezvous at " + where_ + " closed the connection"};
  const time_point limit = until == never ? never : until + for_the_last_word;
  task<result<member_table>> wait = with_deadline(limit, await_table(0));
  auto table = co_await std::move(wait);
  if (!table && table.error().code() == errc::timed_out)
    co_return error{errc::bootstrap_failed,
                    "the rendezvous at " + where_ + " did not send the table of ranks in time"};
  if (table && (table->members.size() != static_cast<std::size_t>(record.size)))
    co_return error{errc::protocol_error, "the rendezvous at " + where_ + " sent the table of another job"};
  co_return table;
}

task<result<member_table>> rendezvous_link::ask_reset(std::uint64_t epoch,
                                                      std::span<const rank_t> believed_dead,
                                                      const member_record& record, time_point until) {
  byte_writer body;
  body.put(epoch);
  body.put(static_cast<std::uint32_t>(believed_dead.size()));
  for (const rank_t r : believed_dead) body.put(r);
  encode(record, body);
  task<result<void>> send = connection_.send(message_kind::reset, body.bytes());
  const auto sent = co_await std::move(send);
  if (!sent) co_return error{errc::no_decider, "the rendezvous at " + where_ + " closed the connection"};
  task<result<member_table>> wait = with_deadline(until, await_table(epoch));
  auto table = co_await std::move(wait);
  if (!table && table.error().code() == errc::timed_out)
    co_return error{errc::timed_out, "the rendezvous at " + where_ + " has not decided the reset of epoch " +
                                         std::to_string(epoch)};
  co_return table;
}

task<error> rendezvous_link::first_loss(std::uint64_t epoch) {
  for (;;) {
    if (epoch_of_loss_ == epoch) co_return error{errc::peer_lost, "reported by the rendezvous", lost_};
    task<result<message>> receive = connection_.receive(largest_notice);
    auto got = co_await std::move(receive);
    if (!got) {
      const errc code = got.error().code();
      if (code == errc::timed_out || code == errc::cancelled) co_return std::move(got).error();
      co_return error{errc::no_decider, "the rendezvous at " + where_ + " closed the connection"};
    }
    if (got->kind == message_kind::refused) co_return decode_error(got->body);
    if (got->kind != message_kind::lost) continue;
    byte_reader in{got->body};
    const auto of_epoch = in.take<std::uint64_t>();
    const auto rank = in.take<rank_t>();
    if (in.overrun()) continue;
    epoch_of_loss_ = of_epoch;
    lost_ = rank;
  }
}

task<result<rank_t>> rendezvous_link::next_lost_origin() {
  for (;;) {
    task<result<message>> receive = connection_.receive(largest_notice);
    auto got = co_await std::move(receive);
    if (!got && got.error().code() == errc::cancelled) co_return std::move(got).error();
    if (!got) co_return error{errc::no_decider, "the rendezvous at " + where_ + " closed the connection"};
    if (got->kind == message_kind::over) co_return no_rank;
    if (got->kind != message_kind::lost) continue;
    byte_reader in{got->body};
    (void)in.take<std::uint64_t>();
    (void)in.take<rank_t>();
    const auto origin = in.take<rank_t>();
    if (in.complete()) co_return origin;
  }
}

rendezvous_link::~rendezvous_link() {
  if (!connection_ || owner_ != ::getpid()) return;
  const std::vector<std::byte> message = encode_message(message_kind::bye, {});
  (void)::send(connection_.fd(), message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace chorale
