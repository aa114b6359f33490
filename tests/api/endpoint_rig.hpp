// What the endpoint tests share: a listener and peers in one engine, over every backend and transport, and a
// peer that can say anything once it has proved itself.
#pragma once

#include "../async/rig.hpp"
#include <chorale/api/endpoint.hpp>
#include <chorale/async/as_result.hpp>
#include <chorale/async/event.hpp>
#include <chorale/async/io.hpp>
#include <chorale/async/scope.hpp>
#include <chorale/async/sleep.hpp>
#include <chorale/async/when.hpp>
#include <chorale/async/with_environment.hpp>
#include <chorale/transport/endpoint/frame.hpp>
#include <chorale/transport/endpoint/greeting.hpp>
#include <chorale/transport/socket.hpp>

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace chorale::testing {

enum class carrier { tcp, unix_socket };

struct place {
  candidate backend;
  carrier over;
};

inline std::ostream& operator<<(std::ostream& out, const place& p) {
  return out << (p.over == carrier::tcp ? "tcp, " : "unix sockets, ") << p.backend;
}

inline std::vector<place> places() {
  std::vector<place> all;
  for (const candidate c : available_backends())
    if (c != candidate::small_io_uring)
      for (const carrier over : {carrier::tcp, carrier::unix_socket}) all.push_back({c, over});
  return all;
}

inline std::string free_address(carrier over) {
  static std::atomic<int> number{0};
  if (over == carrier::tcp) return "127.0.0.1:0";
  return "unix:@chorale-endpoint-test-" + std::to_string(::getpid()) + "-" + std::to_string(++number);
}

/// Small limits and short patience; the same on both sides.
inline endpoint_options short_options() {
  endpoint_options o;
  o.service = "test";
  o.secret = "s3cret";
  o.byte_limit = std::size_t{1} << 20;
  o.hello_limit = 2s;
  return o;
}

inline endpoint_options named(std::string name) {
  endpoint_options o = short_options();
  o.name = std::move(name);
  return o;
}

template <class T>
task<error> error_of(task<T> work) {
  task<result<T>> guarded = as_result(std::move(work));
  auto outcome = co_await std::move(guarded);
  co_return outcome ? error{} : outcome.error();
}

/// Two ends of one connection.
struct pair_of_peers {
  listener service;
  peer_handle near;  // connected
  peer_handle far;   // accepted
};

inline task<pair_of_peers> meet(carrier over, endpoint_options mine = named("near"),
                                endpoint_options theirs = named("far")) {
  task<listener> opening = listen(free_address(over), theirs);
  pair_of_peers pair{co_await std::move(opening), {}, {}};
  task<peer_handle> connecting = connect(pair.service.where(), mine);
  pair.near = co_await std::move(connecting);
  task<peer_handle> accepting = pair.service.accept();
  pair.far = co_await std::move(accepting);
  co_return pair;
}

/// Runs one test body, bounded in time.
inline void run(candidate backend, task<void> body) {
  engine loop{make(backend).value()};
  loop.run(with_timeout(60s, std::move(body)));
}

/// A socket that has done its hello and is now free to misbehave.
inline task<unique_fd> raw_peer(std::string where, endpoint_options options) {
  const auto target = address::parse(where).value();
  auto socket = open_stream(target);
  unique_fd fd = std::move(socket).value();
  auto connected = co_await connect_to(fd.get(), target.data(), target.size());
  static_cast<void>(connected.value());
  endpoints::introduction self{options.name, options.byte_limit};
  task<result<endpoints::introduction>> hello =
      endpoints::greet_service(fd.get(), options.secret, options.service, self);
  auto greeted = co_await std::move(hello);
  static_cast<void>(greeted.value());
  co_return fd;
}

inline std::vector<std::byte> bytes_of(const endpoints::frame_header& h, std::size_t body = 0) {
  const auto header = endpoints::encode(h);
  std::vector<std::byte> all{header.begin(), header.end()};
  all.resize(all.size() + body, std::byte{7});
  return all;
}

inline task<void> send_raw(int fd, std::vector<std::byte> bytes) {
  auto sent = co_await send_all(fd, bytes.data(), bytes.size());
  static_cast<void>(sent.value());
}

}  // namespace chorale::testing
