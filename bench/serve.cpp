#include "serve.hpp"

#include "meter.hpp"
#include "peers/binding.hpp"
#include "peers/protocol.hpp"
#include "report.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <optional>

namespace chorale::bench {
namespace {

int number_from(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}

/// The next command, from rank 0's stdin to all; an empty one at its end. The ranks sleep meanwhile.
task<std::string> next_line(communicator& comm) {
  std::array<char, 128> line{};
  if (comm.rank() == 0) {
    std::string read;
    while (std::getline(std::cin, read) && read.empty()) continue;
    std::copy_n(read.begin(), std::min(read.size(), line.size() - 1), line.begin());
  }
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span{line});
  co_await comm.broadcast(bytes, 0);
  co_return std::string{line.data()};
}

task<void> obey(communicator& comm, meter& with, peers::command what) {
  with.set(what.about);
  const bool speaks = comm.rank() == 0;
  if (what.act == peers::command::verb::check) {
    task<std::uint64_t> checking = with.check();
    const std::uint64_t wrong = co_await std::move(checking);
    if (speaks) peers::say(std::to_string(wrong));
  } else {
    task<timing> running = with.time(what.iterations, what.warmup);
    const timing took = co_await std::move(running);
    if (speaks) peers::say_timing(took.time_us, took.p99_us);
  }
}

}  // namespace

task<int> serve(std::string algorithms) {
  peers::bind_to_share(number_from("CHORALE_LOCAL_RANK", 0), number_from("CHORALE_LOCAL_SIZE", 1));
  communicator_options settings;
  settings.algorithm = std::move(algorithms);
  task<communicator> joining = communicator::join(settings);
  communicator comm = co_await std::move(joining);
  meter with{comm};
  co_await comm.barrier();
  if (comm.rank() == 0) peers::say("ready chorale over " + transport_of(comm));
  for (;;) {
    task<std::string> waiting = next_line(comm);
    const std::string line = co_await std::move(waiting);
    if (line.empty()) break;
    const std::optional<peers::command> what = peers::parse_command(line, comm.size());
    if (!what) {
      if (comm.rank() == 0) peers::say_refusal("\"" + line + "\" is no command");
      continue;
    }
    task<void> obeying = obey(comm, with, *what);
    co_await std::move(obeying);
  }
  co_await comm.barrier();
  co_return 0;
}

}  // namespace chorale::bench
