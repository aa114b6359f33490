// An engine with a thread of its own: work goes there and its outcome comes back.
#include <chorale/async/engine_thread.hpp>
#include <chorale/async/sleep.hpp>

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace chorale {
namespace {

using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(engine_threads)

task<int> answer(int n) {
  const environment& here = co_await this_environment{};
  if (n < 0) throw std::runtime_error{"negative"};
  co_await sleep_until(here.loop->now() + 1ms);
  co_return 2 * n;
}

task<bool> nested(engine_thread& thread) {
  const environment& here = co_await this_environment{};
  static_cast<void>(here);
  bool refused = false;
  try {
    thread.run(answer(1));
  } catch (const failure& f) {
    refused = f.why() == errc::invalid_state;
  }
  co_return refused;
}

BOOST_AUTO_TEST_CASE(work_runs_there_and_its_outcome_comes_back) {
  engine_thread thread;
  for (int i = 0; i < 20; ++i) BOOST_TEST(thread.run(answer(i)) == 2 * i);
  BOOST_CHECK_THROW(thread.run(answer(-1)), std::runtime_error);
  BOOST_TEST(thread.run(nested(thread)));
  std::vector<std::thread> others;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t)
    others.emplace_back([&] {
      for (int i = 0; i < 20; ++i) right += thread.run(answer(i)) == 2 * i ? 1 : 0;
    });
  for (std::thread& t : others) t.join();
  BOOST_TEST(right == 80);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace chorale
