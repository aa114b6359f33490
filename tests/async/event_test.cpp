#include <chorale/async/event.hpp>
#include <chorale/async/scope.hpp>
#include <chorale/async/sleep.hpp>
#include <chorale/async/virtual_backend.hpp>

#include <boost/test/unit_test.hpp>

#include <vector>

namespace {

using namespace chorale;

struct simulated {
  engine loop{std::make_unique<virtual_backend>()};
};

BOOST_FIXTURE_TEST_SUITE(events, simulated)

task<> note(event& e, int name, std::vector<int>& order) {
  const int mine = name;
  co_await e.wait();
  order.push_back(mine);
}

task<> set_after_all_wait(event& e, std::vector<int>& order) {
  const environment& here = co_await this_environment{};
  scope waiters{here};
  for (int i = 0; i < 5; ++i) waiters.spawn(note(e, i, order));
  co_await sleep_for(duration{1});  // each has reached its wait
  e.set();
  if (!order.empty()) throw std::logic_error{"set() resumed a waiter inside itself"};
  co_await waiters.join();
}

BOOST_AUTO_TEST_CASE(waiters_go_on_in_the_order_in_which_they_came) {
  event e;
  std::vector<int> order;
  loop.run(set_after_all_wait(e, order));
  BOOST_TEST((order == std::vector<int>{0, 1, 2, 3, 4}));
}

BOOST_AUTO_TEST_CASE(a_set_event_is_not_waited_for) {
  event e;
  e.set();
  std::vector<int> order;
  loop.run(note(e, 7, order));
  BOOST_TEST(order.size() == 1U);
  e.reset();
  BOOST_TEST(!e.is_set());
}

task<> note_reason(event& e, std::vector<errc>& reasons) {
  try {
    co_await e.wait();
    reasons.push_back(errc::ok);
  } catch (const failure& f) {
    reasons.push_back(f.why().code());
  }
}

enum class race { set_then_stop, stop_then_set, stop_before_waiting };

task<> set_and_stop(race what, event& e, std::vector<errc>& reasons) {
  const environment& here = co_await this_environment{};
  scope waiters{here};
  for (int i = 0; i < 3; ++i) waiters.spawn(note_reason(e, reasons));
  if (what == race::stop_before_waiting) waiters.request_stop(errc::timed_out);
  co_await sleep_for(duration{1});  // each has reached its wait
  if (what == race::set_then_stop) e.set();
  waiters.request_stop(errc::timed_out);
  e.set();
  co_await waiters.join();
}

BOOST_AUTO_TEST_CASE(whichever_comes_first_of_set_and_stop_decides) {
  for (const race what : {race::set_then_stop, race::stop_then_set, race::stop_before_waiting}) {
    event e;
    std::vector<errc> reasons;
    loop.run(set_and_stop(what, e, reasons));
    const errc expected = what == race::set_then_stop ? errc::ok : errc::timed_out;
    BOOST_TEST((reasons == std::vector<errc>(3, expected)));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
