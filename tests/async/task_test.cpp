#include "task_elsewhere.hpp"
#include <chorale/async/engine.hpp>
#include <chorale/async/sleep.hpp>
#include <chorale/async/virtual_backend.hpp>

#include <boost/test/unit_test.hpp>

#include <memory>
#include <stdexcept>
#include <string>

namespace {

using namespace chorale;
using namespace chorale::testing;

struct simulated {
  engine loop{std::make_unique<virtual_backend>()};
};

BOOST_FIXTURE_TEST_SUITE(tasks, simulated)

struct lifetime {
  explicit lifetime(int& count) noexcept : alive{&count} { ++*alive; }
  lifetime(lifetime&& other) noexcept : alive{std::exchange(other.alive, nullptr)} {}
  lifetime& operator=(lifetime&&) = delete;
  ~lifetime() {
    if (alive) --*alive;
  }
  int* alive;
};

task<> set_flag(bool& flag) {
  const bool value = true;
  flag = value;
  co_return;
}

BOOST_AUTO_TEST_CASE(a_task_does_nothing_until_it_is_awaited) {
  bool ran = false;
  task<> work = set_flag(ran);
  BOOST_TEST(!ran);
  loop.run(std::move(work));
  BOOST_TEST(ran);
}

task<> hold(lifetime held) {
  const lifetime* mine = &held;
  static_cast<void>(mine);
  co_return;
}

BOOST_AUTO_TEST_CASE(a_task_that_never_ran_gives_its_arguments_back) {
  int alive = 0;
  {
    const task<> work = hold(lifetime{alive});
    BOOST_TEST(alive == 1);
  }
  BOOST_TEST(alive == 0);
}

BOOST_AUTO_TEST_CASE(moving_a_task_moves_its_ownership) {
  int alive = 0;
  {
    task<> first = hold(lifetime{alive});
    task<> second = std::move(first);
    second = hold(lifetime{alive});
  }
  BOOST_TEST(alive == 0);
}

task<std::unique_ptr<int>> doubled(int value) {
  std::unique_ptr<int> owned = co_await owned_elsewhere(value);
  *owned *= 2;
  co_return std::move(owned);
}

BOOST_AUTO_TEST_CASE(move_only_values_pass_through) {
  const std::unique_ptr<int> got = loop.run(doubled(21));
  BOOST_TEST(*got == 42);
}

task<std::string> caught() {
  std::string text;
  try {
    co_await throws_elsewhere();
  } catch (const std::runtime_error& e) {
    text = e.what();
  }
  co_return text;
}

BOOST_AUTO_TEST_CASE(an_exception_reaches_the_awaiter) {
  BOOST_TEST(loop.run(caught()) == "thrown elsewhere");
  BOOST_CHECK_THROW(loop.run(throws_elsewhere()), std::runtime_error);
}

task<> throw_after_suspending(int& alive) {
  const lifetime held{alive};
  co_await yield{};
  throw std::logic_error{"late"};
}

BOOST_AUTO_TEST_CASE(unwinding_destroys_the_locals_of_every_level) {
  int alive = 0;
  BOOST_CHECK_THROW(loop.run(throw_after_suspending(alive)), std::logic_error);
  BOOST_TEST(alive == 0);
}

task<long> many_hops(int count) {
  long sum = 0;
  for (int i = 0; i < count; ++i) {
    const int one = co_await one_elsewhere();
    sum += one;
  }
  co_return sum;
}

// Without tail calls each hop would leave a few frames on the stack: a million of them overflow any.
BOOST_AUTO_TEST_CASE(a_million_synchronous_awaits_need_no_stack) {
  BOOST_TEST(loop.run(many_hops(1'000'000)) == 1'000'000);
}

task<int> deep(int levels) {
  int below = 0;
  if (levels > 1) below = co_await deep(levels - 1);
  co_return below + 1;
}

BOOST_AUTO_TEST_CASE(a_chain_of_a_hundred_thousand_levels_needs_no_stack) {
  BOOST_TEST(loop.run(deep(100'000)) == 100'000);
}

task<const environment*> my_environment() {
  const environment& here = co_await this_environment{};
  co_return &here;
}

task<bool> environment_is_passed_down() {
  const environment& mine = co_await this_environment{};
  const environment* childs = co_await my_environment();
  co_return childs == &mine;
}

BOOST_AUTO_TEST_CASE(children_see_their_parents_environment) {
  BOOST_TEST(loop.run(environment_is_passed_down()));
  BOOST_TEST(loop.run(my_environment()) == &loop.root());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
