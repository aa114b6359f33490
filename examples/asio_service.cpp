// A service on Asio whose ranks share a number: each counts the requests that it answers, and ten times a
// second all counts are added up. One thread serves and sums; the engine has another.
//
//   chorale run -n 2 asio_service 600        # for a minute; each rank prints its port
//   nc 127.0.0.1 PORT                        # answers with the count of all ranks, and hangs up
#include <chorale/asio.hpp>

#include <asio/buffer.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/write.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

namespace {

using asio::ip::tcp;
using namespace std::chrono_literals;

struct counts {
  float here = 0;
  float everywhere = 0;
};

asio::awaitable<void> serve(tcp::acceptor& door, counts& requests) {
  while (true) {
    tcp::socket visitor = co_await door.async_accept(asio::use_awaitable);
    requests.here += 1;
    const std::string answer = std::to_string(static_cast<long>(requests.everywhere)) + "\n";
    co_await asio::async_write(visitor, asio::buffer(answer), asio::use_awaitable);
  }
}

asio::awaitable<void> add_up(chorale::communicator& comm, counts& requests, long rounds,
                             tcp::acceptor& door) {
  asio::steady_timer tick{door.get_executor()};
  for (long round = 0; round < rounds; ++round) {
    tick.expires_after(100ms);
    co_await tick.async_wait(asio::use_awaitable);
    std::array<float, 1> sum{requests.here};
    co_await comm.all_reduce(sum, chorale::sum, chorale::deadline{5s}, asio::use_awaitable);
    requests.everywhere = sum[0];
  }
  std::printf("rank %d: %ld requests in all\n", comm.rank(), static_cast<long>(requests.everywhere));
  door.close();
}

}  // namespace

int main(int argc, char** argv) try {
  const long rounds = argc > 1 ? std::atol(argv[1]) : 600;
  chorale::hosted_communicator comm;
  asio::io_context io;
  tcp::acceptor door{io, tcp::endpoint{asio::ip::address_v4::loopback(), 0}};
  std::printf("rank %d of %d serves port %d\n", comm->rank(), comm->size(), door.local_endpoint().port());
  std::fflush(stdout);

  counts requests;
  std::exception_ptr failed;
  asio::co_spawn(io, serve(door, requests), asio::detached);
  asio::co_spawn(io, add_up(*comm, requests, rounds, door), [&](std::exception_ptr why) {
    failed = why;
    io.stop();
  });
  io.run();
  if (failed) std::rethrow_exception(failed);
} catch (const std::exception& e) {
  std::fprintf(stderr, "asio_service: %s\n", e.what());
  return 1;
}
