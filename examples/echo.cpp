// Requests between two processes outside any communicator: one answers, the other asks and tells how long it
// took.
//   echo serve unix:@echo
//   echo call unix:@echo 10000 64          so many requests of so many bytes
#include <chorale/chorale.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace {

namespace ch = chorale;
using steady = std::chrono::steady_clock;

// guide: serve
ch::task<> serve(const char* where) {
  ch::listener door = co_await ch::listen(where);
  std::printf("listening at %s\n", door.where().c_str());
  std::fflush(stdout);
  for (;;) {
    ch::peer_request asked = co_await door.next_request();
    ch::task<ch::result<>> answering = ch::as_result(asked.reply(asked.message().bytes()));
    const auto answered = co_await std::move(answering);
    if (!answered) std::printf("%s\n", answered.error().message().c_str());
  }
}
// end of guide

ch::task<> call(const char* where, std::size_t count, std::size_t bytes) {
  ch::endpoint_options how;
  how.patience = std::chrono::seconds{5};
  ch::peer_handle peer = co_await ch::connect(where, how);
  const std::vector<std::byte> question(bytes);
  std::vector<double> microseconds;
  for (std::size_t i = 0; i < count; ++i) {
    const auto from = steady::now();
    const ch::peer_message answer = co_await peer.call(i, question);
    microseconds.push_back(std::chrono::duration<double, std::micro>(steady::now() - from).count());
    if (answer.bytes().size() != bytes) std::abort();
  }
  std::ranges::sort(microseconds);
  std::printf("%zu round trips of %zu bytes: median %.1f us, 99th percentile %.1f us\n", count, bytes,
              microseconds[count / 2], microseconds[count * 99 / 100]);
  co_await peer.close();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  const auto number = [&](int at, std::size_t otherwise) {
    return argc > at ? std::max(1UL, std::strtoul(argv[at], nullptr, 10)) : otherwise;
  };
  if (argc < 3 || (what != "serve" && what != "call")) {
    std::fprintf(stderr, "echo serve ADDRESS | echo call ADDRESS [COUNT [BYTES]], e.g. unix:@echo\n");
    return 1;
  }
  try {
    ch::engine loop;
    loop.run(what == "serve" ? serve(argv[2]) : call(argv[2], number(3, 10000), number(4, 64)));
  } catch (const ch::failure& f) {
    std::fprintf(stderr, "echo: %s\n", f.what());
    return 1;
  }
}
