#include <chorale/async/timer.hpp>

#include <boost/test/unit_test.hpp>

#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace {

using namespace chorale;

time_point at(long ns) { return time_point{duration{ns}}; }

struct alarm_clock : timer {
  explicit alarm_clock(std::vector<alarm_clock*>& into) noexcept : timer{fire}, fired{into} {}
  std::vector<alarm_clock*>& fired;
  static void fire(operation& op) noexcept {
    auto& self = static_cast<alarm_clock&>(op);
    self.fired.push_back(&self);
  }
};

BOOST_AUTO_TEST_SUITE(timers)

BOOST_AUTO_TEST_CASE(an_empty_heap_waits_for_never) {
  timer_heap heap;
  BOOST_TEST(heap.empty());
  BOOST_TEST((heap.earliest() == never));
  BOOST_TEST(heap.expire(never) == 0U);
}

BOOST_AUTO_TEST_CASE(a_timer_fires_at_its_moment_and_not_before) {
  timer_heap heap;
  std::vector<alarm_clock*> fired;
  alarm_clock t{fired};
  heap.arm(t, at(100));
  BOOST_TEST(heap.expire(at(99)) == 0U);
  BOOST_TEST(heap.expire(at(100)) == 1U);
  BOOST_TEST(!t.armed());
  BOOST_TEST(heap.expire(at(1000)) == 0U);
}

BOOST_AUTO_TEST_CASE(disarming_twice_is_disarming_once) {
  timer_heap heap;
  std::vector<alarm_clock*> fired;
  alarm_clock t{fired};
  heap.arm(t, at(5));
  heap.disarm(t);
  heap.disarm(t);
  BOOST_TEST(heap.empty());
  BOOST_TEST(heap.expire(never) == 0U);
}

BOOST_AUTO_TEST_CASE(a_firing_timer_may_disarm_and_destroy_others) {
  struct killer : timer {
    explicit killer(timer_heap& h) noexcept : timer{fire}, heap{h} {}
    timer_heap& heap;
    std::vector<alarm_clock*> fired;
    std::deque<alarm_clock> victims;
    static void fire(operation& op) noexcept {
      auto& self = static_cast<killer&>(op);
      for (auto& v : self.victims) self.heap.disarm(v);
      self.victims.clear();
    }
  };
  timer_heap heap;
  killer k{heap};
  for (int i = 0; i < 10; ++i) heap.arm(k.victims.emplace_back(k.fired), at(20));
  heap.arm(k, at(10));
  BOOST_TEST(heap.expire(at(30)) == 1U);
  BOOST_TEST(k.fired.empty());
}

// Against std::multimap: the same random arming, disarming and passing of time gives the same firings.
BOOST_AUTO_TEST_CASE(the_heap_agrees_with_a_sorted_map) {
  const unsigned seed = std::random_device{}();
  BOOST_TEST_MESSAGE("seed " << seed);
  std::mt19937 random{seed};
  timer_heap heap;
  std::vector<alarm_clock*> fired;
  std::deque<alarm_clock> timers;
  for (int i = 0; i < 300; ++i) timers.emplace_back(fired);
  std::multimap<time_point, alarm_clock*> model;
  long now = 0;
  for (int step = 0; step < 50'000; ++step) {
    alarm_clock& t = timers[random() % timers.size()];
    const unsigned what = random() % 8;
    if (what < 5) {
      if (t.armed()) continue;
      const time_point when = at(now + static_cast<long>(random() % 200));
      heap.arm(t, when);
      model.emplace(when, &t);
    } else if (what < 7) {
      if (t.armed())
        for (auto [entry, end] = model.equal_range(t.when()); entry != end; ++entry)
          if (entry->second == &t) {
            model.erase(entry);
            break;
          }
      heap.disarm(t);
    } else {
      now += static_cast<long>(random() % 40);
      fired.clear();
      heap.expire(at(now));
      std::multiset<alarm_clock*> expected;
      while (!model.empty() && model.begin()->first <= at(now)) {
        expected.insert(model.begin()->second);
        model.erase(model.begin());
      }
      BOOST_REQUIRE((expected == std::multiset<alarm_clock*>(fired.begin(), fired.end())));
      for (std::size_t i = 1; i < fired.size(); ++i)
        BOOST_REQUIRE((fired[i - 1]->when() <= fired[i]->when()));
    }
    BOOST_REQUIRE((heap.earliest() == (model.empty() ? never : model.begin()->first)));
  }
  for (auto& t : timers) heap.disarm(t);
  BOOST_TEST(heap.empty());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
