// What somebody who installed chorale builds first: a job of one that reduces, and sends itself a message.
#include <chorale/chorale.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <string_view>
#include <utility>

namespace {

using namespace std::chrono_literals;

chorale::task<bool> reduce_alone() {
  auto comm = co_await chorale::communicator::join();
  std::array<float, 3> values{1, 2, 3};
  co_await comm.all_reduce(values, chorale::sum, chorale::deadline{10s});
  const auto met = co_await chorale::as_result(comm.barrier());
  auto half = co_await comm.split(0);
  auto op = (*half)[7].all_reduce(values).start();
  co_await std::move(op);
  const std::array<float, 3> unchanged{1, 2, 3};
  co_return met&& comm.size() == 1 && values == unchanged;
}

chorale::task<bool> ask_myself() {
  auto door = co_await chorale::listen("127.0.0.1:0");
  auto there = co_await chorale::connect(door.where());
  co_await there.send(1, std::string_view{"hello"});
  chorale::arrival come = co_await door.recv_any();
  const bool good = come.message.text() == "hello";
  co_await there.close();
  co_return good;
}

}  // namespace

int main() {
  try {
    chorale::engine loop;
    const bool summed = loop.run(reduce_alone());
    const bool heard = loop.run(ask_myself());
    std::puts(summed && heard ? "sum and message are right" : "sum or message are wrong");
    return summed && heard ? 0 : 1;
  } catch (const chorale::failure& f) {
    std::fprintf(stderr, "%s\n", f.what());
    return 1;
  }
}
