// A service on Asio that asks all ranks for every request. A table is spread over the ranks; rank 0 has the
// door, and `GET /below/N` answers how many entries are below N: each rank counts in its share, and an
// all_reduce on a lane of the request's own adds up. Requests run side by side and end in any order.
//
//   chorale run -n 3 -- asio_service        # rank 0 prints its port
//   curl http://127.0.0.1:PORT/below/500
//
// SIGTERM (or SIGINT) at rank 0 shuts it down: the door closes, requests under way get their answers, the
// other ranks are told and finish what they began, all leave. One thread serves; the engine has another.
#include <chorale/asio.hpp>

#include <asio/buffer.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read_until.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/write.hpp>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

using asio::use_awaitable;
using asio::ip::tcp;
using namespace std::chrono_literals;

constexpr std::uint64_t table_size = 100'000;
constexpr int most_visitors = 256;

/// What rank 0 tells the others, on the communicator's own lane. Number 0: go home.
struct order {
  std::uint64_t number = 0;
  std::uint64_t bound = 0;
};

/// Counts what is under way, and waits until it is nothing.
class attendance {
 public:
  explicit attendance(asio::io_context& io) : empty_{io, asio::steady_timer::time_point::max()} {}
  class entry {
   public:
    explicit entry(attendance& where) : where_{where} { ++where_.present_; }
    entry(const entry&) = delete;
    entry& operator=(const entry&) = delete;
    ~entry() {
      if (--where_.present_ == 0) where_.empty_.cancel();
    }

   private:
    attendance& where_;
  };
  [[nodiscard]] int present() const noexcept { return present_; }
  asio::awaitable<void> until_empty() {
    while (present_ != 0) {
      try {
        co_await empty_.async_wait(use_awaitable);
      } catch (const std::system_error&) {
        // Cancelled: somebody was the last to go.
      }
    }
  }

 private:
  asio::steady_timer empty_;
  int present_ = 0;
};

/// What every rank runs, on one thread.
class service {
 public:
  service(asio::io_context& io, chorale::hosted_communicator& comm) : comm_{comm}, under_way_{io} {
    const auto mine = static_cast<std::uint64_t>(comm->rank());
    for (std::uint64_t i = mine; i < table_size; i += static_cast<std::uint64_t>(comm->size()))
      share_.push_back(i);
  }

  /// Rank 0: has all ranks count.
  asio::awaitable<std::uint64_t> ask(std::uint64_t bound) {
    order what{++last_number_, bound};
    const attendance::entry here{under_way_};
    co_await tell(what);
    co_return co_await count(what);
  }
  // guide: drain
  asio::awaitable<void> shut_down() {
    co_await under_way_.until_empty();
    order go_home;
    co_await tell(go_home);
  }

  /// The other ranks: do as they are told.
  asio::awaitable<void> follow() {
    while (true) {
      order what;
      co_await tell(what);
      if (what.number == 0) break;
      asio::co_spawn(co_await asio::this_coro::executor, help(what), asio::detached);
    }
    co_await under_way_.until_empty();
  }
  // end of guide

 private:
  asio::awaitable<void> tell(order& what) {
    std::array<std::uint64_t, 2> words{what.number, what.bound};
    co_await comm_->broadcast(words, 0, use_awaitable);
    what = {words[0], words[1]};
  }
  // guide: lanes
  asio::awaitable<std::uint64_t> count(order what) {
    std::array<std::uint64_t, 1> found{static_cast<std::uint64_t>(
        std::ranges::count_if(share_, [&](std::uint64_t entry) { return entry < what.bound; }))};
    chorale::hosted_lane lane = comm_.lane(what.number);
    co_await lane.all_reduce(found, chorale::sum, chorale::deadline{5s}, use_awaitable);
    co_return found[0];
  }
  // end of guide
  asio::awaitable<void> help(order what) {
    const attendance::entry here{under_way_};
    try {
      co_await count(what);
    } catch (const std::system_error& e) {
      std::fprintf(stderr, "asio_service: request %lu: %s\n", static_cast<unsigned long>(what.number),
                   e.what());
    }
  }

  chorale::hosted_communicator& comm_;
  attendance under_way_;
  std::vector<std::uint64_t> share_;
  std::uint64_t last_number_ = 0;
};

std::string response(std::string_view status, const std::string& text) {
  return "HTTP/1.1 " + std::string{status} + "\r\nContent-Type: text/plain\r\nConnection: close\r\n" +
         "Content-Length: " + std::to_string(text.size() + 1) + "\r\n\r\n" + text + "\n";
}

/// N of "GET /below/N HTTP/1.1".
std::optional<std::uint64_t> bound_in(std::string_view request) {
  constexpr std::string_view wanted = "GET /below/";
  if (!request.starts_with(wanted)) return std::nullopt;
  std::uint64_t bound = 0;
  const char* const begin = request.data() + wanted.size();
  const auto [end, wrong] = std::from_chars(begin, request.data() + request.size(), bound);
  if (wrong != std::errc{} || *end != ' ') return std::nullopt;
  return bound;
}

asio::awaitable<std::string> answer(service& ranks, std::string_view request) {
  const std::optional<std::uint64_t> bound = bound_in(request);
  if (!bound) co_return response("404 Not Found", "ask for /below/N");
  std::string failed;
  try {
    const std::uint64_t found = co_await ranks.ask(*bound);
    co_return response("200 OK", std::to_string(found));
  } catch (const std::system_error& e) {
    failed = e.what();
  }
  co_return response("503 Service Unavailable", failed);
}

asio::awaitable<void> serve(tcp::socket visitor, service& ranks, attendance& visitors) {
  const attendance::entry here{visitors};
  asio::steady_timer patience{visitor.get_executor(), 5s};
  patience.async_wait([&visitor](std::error_code cancelled) {
    if (!cancelled) visitor.cancel();
  });
  try {
    std::string request;
    co_await asio::async_read_until(visitor, asio::dynamic_buffer(request, 8192), "\r\n\r\n", use_awaitable);
    patience.cancel();
    std::string text = response("503 Service Unavailable", "too many visitors at once");
    if (visitors.present() <= most_visitors) text = co_await answer(ranks, request);
    co_await asio::async_write(visitor, asio::buffer(text), use_awaitable);
  } catch (const std::system_error&) {
    // A visitor who hung up, or said nothing.
  }
}

asio::awaitable<void> keep_the_door(tcp::acceptor& door, service& ranks, attendance& visitors) {
  try {
    while (true) {
      tcp::socket visitor = co_await door.async_accept(use_awaitable);
      asio::co_spawn(door.get_executor(), serve(std::move(visitor), ranks, visitors), asio::detached);
    }
  } catch (const std::system_error&) {
    // The door was closed.
  }
}

asio::awaitable<void> lead(asio::io_context& io, service& ranks) {
  tcp::acceptor door{io, tcp::endpoint{asio::ip::address_v4::loopback(), 0}};
  attendance visitors{io};
  asio::signal_set signals{io, SIGTERM, SIGINT};
  asio::co_spawn(io, keep_the_door(door, ranks, visitors), asio::detached);
  std::printf("process %d serves port %d\n", static_cast<int>(::getpid()), door.local_endpoint().port());
  std::fflush(stdout);

  co_await signals.async_wait(use_awaitable);
  door.close();
  co_await visitors.until_empty();
  co_await ranks.shut_down();
}

}  // namespace

int main() try {
  chorale::hosted_communicator comm;
  asio::io_context io;
  service ranks{io, comm};
  std::exception_ptr failed;
  const auto ended = [&](std::exception_ptr why) {
    failed = why;
    io.stop();
  };
  if (comm->rank() == 0) {
    asio::co_spawn(io, lead(io, ranks), ended);
  } else {
    std::signal(SIGTERM, SIG_IGN);  // rank 0 says when
    std::signal(SIGINT, SIG_IGN);
    asio::co_spawn(io, ranks.follow(), ended);
  }
  io.run();
  if (failed) std::rethrow_exception(failed);
  std::printf("rank %d has nothing left to do\n", comm->rank());
} catch (const std::exception& e) {
  std::fprintf(stderr, "asio_service: %s\n", e.what());
  return 1;
}
