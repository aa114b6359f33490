#include <chorale/async/event.hpp>
#include <chorale/async/scope.hpp>
#include <chorale/async/sleep.hpp>
#include <chorale/async/virtual_backend.hpp>

#include <boost/test/unit_test.hpp>

#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace chorale;
using namespace std::chrono_literals;

struct simulated {
  engine loop{std::make_unique<virtual_backend>()};
};

/// Counts who is inside a coroutine.
struct presence {
  explicit presence(int& count) noexcept : inside{count} { ++inside; }
  presence(const presence&) = delete;
  presence& operator=(const presence&) = delete;
  ~presence() { --inside; }
  int& inside;
};

task<> sleep_inside(duration in, int& inside) {
  const presence here{inside};
  co_await sleep_for(in);
}

BOOST_FIXTURE_TEST_SUITE(scopes, simulated)

task<int> join_three(int& inside) {
  const environment& here = co_await this_environment{};
  scope children{here};
  for (const duration in : {3s, 1s, 2s}) children.spawn(sleep_inside(in, inside));
  const int before = inside;
  co_await children.join();
  co_return before * 10 + inside;
}

BOOST_AUTO_TEST_CASE(join_waits_for_the_last_child) {
  int inside = 0;
  const time_point begun = loop.now();
  BOOST_TEST(loop.run(join_three(inside)) == 0);  // none had started at spawn, none is left after join
  BOOST_TEST((loop.now() - begun == 3s));
}

task<int> join_nothing() {
  const environment& here = co_await this_environment{};
  scope children{here};
  co_await children.join();
  const int rounds = 3;
  int inside = 0;
  for (int i = 0; i < rounds; ++i) {
    children.spawn(sleep_inside(1s, inside));
    co_await children.join();
  }
  co_return rounds;
}

BOOST_AUTO_TEST_CASE(an_empty_scope_joins_and_a_joined_one_is_used_again) {
  BOOST_TEST(loop.run(join_nothing()) == 3);
}

task<> fail_after(duration in, const char* what) {
  const std::string text = what;
  co_await sleep_for(in);
  throw std::runtime_error{text};
}

task<> siblings_of_a_failure(int& inside) {
  const environment& here = co_await this_environment{};
  scope children{here};
  children.spawn(sleep_inside(1h, inside));
  children.spawn(fail_after(2s, "second"));
  children.spawn(fail_after(1s, "first"));
  co_await children.join();
}

BOOST_AUTO_TEST_CASE(the_first_failure_stops_the_siblings_and_is_thrown) {
  int inside = 0;
  const time_point begun = loop.now();
  BOOST_CHECK_EXCEPTION(loop.run(siblings_of_a_failure(inside)), std::runtime_error,
                        [](const std::runtime_error& e) { return std::string{e.what()} == "first"; });
  BOOST_TEST(inside == 0);
  BOOST_TEST((loop.now() - begun == 1s));
}

task<> slow_to_stop(int& inside) {
  const presence here{inside};
  bool stopped = false;
  try {
    co_await sleep_for(1h);
  } catch (const failure&) {
    stopped = true;
  }
  // Cleaning up takes turns, and the scope waits for them.
  for (int i = 0; stopped && i < 100; ++i) co_await yield{};
}

task<int> stop_and_join(int& inside) {
  const environment& here = co_await this_environment{};
  scope children{here};
  for (int i = 0; i < 4; ++i) children.spawn(slow_to_stop(inside));
  co_await sleep_for(1ns);
  const int started = inside;
  children.request_stop();
  co_await children.join();
  co_return started * 10 + inside;
}

BOOST_AUTO_TEST_CASE(a_stop_asks_and_join_still_waits) {
  int inside = 0;
  BOOST_TEST(loop.run(stop_and_join(inside)) == 40);
}

task<> spawn_a_sibling(scope& family, int generations, int& born) {
  ++born;
  co_await yield{};
  if (generations > 0) family.spawn(spawn_a_sibling(family, generations - 1, born));
}

task<> generations(int& born) {
  const environment& here = co_await this_environment{};
  scope family{here};
  family.spawn(spawn_a_sibling(family, 99, born));
  co_await family.join();
}

BOOST_AUTO_TEST_CASE(children_spawn_siblings) {
  int born = 0;
  loop.run(generations(born));
  BOOST_TEST(born == 100);
}

task<> inner_scope(int& inside) {
  const environment& here = co_await this_environment{};
  scope children{here};
  children.spawn(sleep_inside(1h, inside));
  co_await children.join();
}

task<> stop_the_outer(int& inside) {
  const environment& here = co_await this_environment{};
  scope outer{here};
  outer.spawn(inner_scope(inside));
  co_await sleep_for(1s);
  outer.request_stop(errc::peer_left);
  co_await outer.join();
}

BOOST_AUTO_TEST_CASE(a_stop_reaches_the_scopes_below_with_its_reason) {
  int inside = 0;
  const time_point begun = loop.now();
  BOOST_CHECK_EXCEPTION(loop.run(stop_the_outer(inside)), failure,
                        [](const failure& f) { return f.why() == errc::peer_left; });
  BOOST_TEST(inside == 0);
  BOOST_TEST((loop.now() - begun == 1s));
}

task<> nothing(int& ran) {
  ++ran;
  co_return;
}

task<> ten_thousand(int& ran) {
  const environment& here = co_await this_environment{};
  scope children{here};
  for (int i = 0; i < 10'000; ++i) children.spawn(nothing(ran));
  co_await children.join();
}

BOOST_AUTO_TEST_CASE(ten_thousand_children) {
  int ran = 0;
  loop.run(ten_thousand(ran));
  BOOST_TEST(ran == 10'000);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
