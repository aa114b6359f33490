#include <chorale/async/event.hpp>
#include <chorale/async/io.hpp>
#include <chorale/async/scope.hpp>
#include <chorale/async/sleep.hpp>
#include <chorale/async/virtual_backend.hpp>

#include <boost/test/unit_test.hpp>
#include <sys/poll.h>

#include <random>
#include <thread>
#include <vector>

namespace {

using namespace chorale;
using namespace std::chrono_literals;

struct simulated {
  virtual_backend* io = new virtual_backend;
  engine loop{std::unique_ptr<backend>{io}};
};

BOOST_FIXTURE_TEST_SUITE(virtual_time, simulated)

BOOST_AUTO_TEST_CASE(a_day_passes_in_no_time) {
  const time_point real = steady_now();
  loop.run(sleep_for(24h));
  BOOST_TEST((loop.now() == virtual_backend::start + 24h));
  BOOST_TEST((steady_now() - real < 1s));
}

task<> wait_for_ever() {
  event nobody_sets_this;
  co_await nobody_sets_this.wait();
}

BOOST_AUTO_TEST_CASE(nothing_left_to_run_is_a_deadlock) {
  BOOST_CHECK_EXCEPTION(loop.run(wait_for_ever()), failure,
                        [](const failure& f) { return f.why() == errc::deadlock; });
  BOOST_TEST(io->stuck());
}

task<int> try_to_poll() {
  auto got = co_await poll_fd(0, POLLIN);
  co_return got ? 0 : got.error().os_code();
}

BOOST_AUTO_TEST_CASE(the_kernel_is_out_of_reach) {
  BOOST_TEST(loop.run(try_to_poll()) == ENOTSUP);
  BOOST_TEST(io->outstanding() == 0U);
}

task<> sleeper(int name, unsigned seed, std::vector<int>& order) {
  std::mt19937 random{seed};
  for (int i = 0; i < 20; ++i) {
    const duration pause{static_cast<long>(random() % 5)};
    co_await sleep_for(pause);
    order.push_back(name);
  }
}

task<> many_sleepers(unsigned seed, std::vector<int>& order) {
  const environment& here = co_await this_environment{};
  scope all{here};
  for (int i = 0; i < 50; ++i) all.spawn(sleeper(i, seed + static_cast<unsigned>(i), order));
  co_await all.join();
}

std::vector<int> simulate(unsigned seed) {
  engine loop{std::make_unique<virtual_backend>()};
  std::vector<int> order;
  loop.run(many_sleepers(seed, order));
  return order;
}

BOOST_AUTO_TEST_CASE(the_same_seed_gives_the_same_order) {
  const auto first = simulate(1);
  BOOST_TEST(first.size() == 1000U);
  BOOST_TEST((simulate(1) == first));
  BOOST_TEST((simulate(2) != first));
}

task<> advance(virtual_backend& clock, engine& loop) {
  const time_point before = loop.now();
  clock.advance(3s);
  if (loop.now() - before != 3s) throw std::logic_error{"time did not pass"};
  co_await sleep_for(1s);
  if (loop.now() - before != 4s) throw std::logic_error{"the sleep was not counted from the new time"};
}

BOOST_AUTO_TEST_CASE(computing_can_cost_time) { BOOST_CHECK_NO_THROW(loop.run(advance(*io, loop))); }

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
