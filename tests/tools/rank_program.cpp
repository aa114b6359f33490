// What the launcher tests start: joins the job, prints where it stands, then does what its argument says.
//
//   ok            ends with 0
//   exit RANK N   that rank ends with code N, the others wait
//   kill RANK     that rank kills itself, the others wait
//   stubborn RANK like kill, and the others ignore SIGTERM
//   reset RANK    that rank kills itself, the others reset and end with 0
//   wait          waits
#include <chorale/async/engine.hpp>
#include <chorale/async/sleep.hpp>
#include <chorale/transport/bootstrap/bootstrap.hpp>
#include <chorale/transport/bootstrap/host_exchange.hpp>

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

using namespace chorale;

void print_place(const world& w) {
  std::size_t mates = 0;
  std::size_t data = 0;
  for (const peer& p : w.peers) {
    mates += p.mate ? 1U : 0U;
    data += p.data.size();
  }
  std::printf("rank %d of %d, epoch %llu, %zu mates, %zu data sockets\n", w.rank, w.size,
              static_cast<unsigned long long>(w.epoch), mates, data);
  std::fflush(stdout);
}

task<int> survive(world w) {
  task<error> waiting = w.rendezvous.first_loss(w.epoch);
  const error loss = co_await std::move(waiting);
  task<result<world>> resetting = reset_world(std::move(w), {loss.culprit()});
  const auto next = co_await std::move(resetting);
  if (!next) {
    std::printf("%s\n", next.error().message().c_str());
    co_return 5;
  }
  print_place(*next);
  co_return 0;
}

task<int> rank_main(std::string mode, rank_t chosen, int code) {
  const auto config = bootstrap_config::from_environment();
  if (!config) {
    std::printf("%s\n", config.error().message().c_str());
    co_return 3;
  }
  task<result<world>> joining = bootstrap(*config);
  auto w = co_await std::move(joining);
  if (!w) {
    std::printf("%s\n", w.error().message().c_str());
    co_return 4;
  }
  print_place(*w);
  if (mode == "ok") co_return 0;
  {
    // All are connected before anybody ends.
    host_exchange among{*w};
    task<result<void>> meeting = among.barrier();
    (void)co_await std::move(meeting);
  }
  if (mode == "stubborn") (void)std::signal(SIGTERM, SIG_IGN);
  if (w->rank == chosen && mode == "exit") std::_Exit(code);
  if (w->rank == chosen && mode != "wait") ::raise(SIGKILL);
  if (mode == "reset") {
    task<int> surviving = survive(std::move(*w));
    const int ended = co_await std::move(surviving);
    co_return ended;
  }
  task<void> waiting = sleep_for(std::chrono::seconds{60});
  co_await std::move(waiting);
  co_return 0;
}

}  // namespace

int main(int argc, char** argv) {
  chorale::engine loop;
  return loop.run(rank_main(argc > 1 ? argv[1] : "ok", argc > 2 ? std::atoi(argv[2]) : -1,
                            argc > 3 ? std::atoi(argv[3]) : 0));
}
