#include "rig.hpp"
#include <chorale/async/engine.hpp>
#include <chorale/async/event.hpp>
#include <chorale/async/scope.hpp>
#include <chorale/async/sleep.hpp>
#include <chorale/async/virtual_backend.hpp>

#include <sched.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace chorale;
using namespace chorale::testing;

struct real_engine {
  engine loop;
};

bool is_invalid_state(const failure& f) { return f.why() == errc::invalid_state; }

struct counting : operation {
  explicit counting(std::atomic<int>& count) noexcept : operation{add}, total{count} {}
  std::atomic<int>& total;
  static void add(operation& op) noexcept { ++static_cast<counting&>(op).total; }
};

BOOST_FIXTURE_TEST_SUITE(engines, real_engine)

task<int> answer() {
  const int value = 42;
  co_return value;
}

BOOST_AUTO_TEST_CASE(run_returns_the_value) {
  BOOST_TEST(loop.run(answer()) == 42);
  BOOST_TEST(loop.run(answer()) == 42);
  BOOST_TEST(!loop.in_loop());
}

task<> run_inside(engine& same) {
  task<int> inner = answer();
  same.run(std::move(inner));
  co_return;
}

BOOST_AUTO_TEST_CASE(reentry_is_refused_and_leaves_the_engine_usable) {
  BOOST_CHECK_EXCEPTION(loop.run(run_inside(loop)), failure, is_invalid_state);
  BOOST_TEST(loop.run(answer()) == 42);
}

task<int> run_other(engine& other) {
  task<int> inner = answer();
  const int value = other.run(std::move(inner));
  co_return value;
}

BOOST_AUTO_TEST_CASE(another_engine_may_run_inside) {
  engine inner;
  BOOST_TEST(loop.run(run_other(inner)) == 42);
  BOOST_TEST(!inner.in_loop());
}

BOOST_AUTO_TEST_CASE(another_thread_is_refused) {
  loop.run(answer());
  bool refused = false;
  std::thread other{[&] {
    try {
      loop.run(answer());
    } catch (const failure& f) {
      refused = is_invalid_state(f);
    }
  }};
  other.join();
  BOOST_TEST(refused);
}

task<> wait_for(event& happened) {
  const environment& here = co_await this_environment{};
  static_cast<void>(here);
  co_await happened.wait();
}

struct setter : operation {
  explicit setter(event& e) noexcept : operation{set}, target{e} {}
  event& target;
  static void set(operation& op) noexcept { static_cast<setter&>(op).target.set(); }
};

BOOST_AUTO_TEST_CASE(a_post_from_another_thread_wakes_a_sleeping_engine) {
  for (int round = 0; round < 50; ++round) {
    event happened;
    setter op{happened};
    std::thread other{[&] { loop.post(op); }};
    loop.run(wait_for(happened));
    other.join();
    BOOST_TEST(happened.is_set());
  }
}

BOOST_AUTO_TEST_CASE(posts_from_many_threads_all_run) {
  constexpr int threads = 4;
  constexpr int each = 5000;
  std::atomic<int> total{0};
  std::deque<counting> ops;
  for (int i = 0; i < threads * each; ++i) ops.emplace_back(total);
  std::vector<std::thread> senders;
  for (int t = 0; t < threads; ++t)
    senders.emplace_back([&, t] {
      for (int i = 0; i < each; ++i) loop.post(ops[static_cast<std::size_t>(t * each + i)]);
    });
  loop.run_until([&] { return total == threads * each; });
  for (auto& s : senders) s.join();
  BOOST_TEST(total == threads * each);
}

/// Another backend, with its wakes counted.
class counting_backend final : public backend {
 public:
  void submit(io_operation& op) noexcept override { inner_->submit(op); }
  void cancel(io_operation& op) noexcept override { inner_->cancel(op); }
  void wake() noexcept override {
    ++wakes;
    inner_->wake();
  }
  std::size_t reap(operation_queue& completed) noexcept override { return inner_->reap(completed); }
  std::size_t wait(time_point until, operation_queue& completed) noexcept override {
    return inner_->wait(until, completed);
  }
  [[nodiscard]] std::size_t outstanding() const noexcept override { return inner_->outstanding(); }
  [[nodiscard]] int doorbell() const noexcept override { return inner_->doorbell(); }
  [[nodiscard]] const char* name() const noexcept override { return "counting"; }
  std::atomic<int> wakes{0};

 private:
  std::unique_ptr<backend> inner_ = make_epoll_backend().value();
};

task<> spin_until_counted(const std::atomic<int>& total, int wanted) {
  while (total < wanted) co_await yield{};
}

BOOST_AUTO_TEST_CASE(posting_to_an_engine_that_is_awake_rings_no_bell) {
  auto* counted = new counting_backend;
  engine watched{std::unique_ptr<backend>{counted}};
  std::atomic<int> total{0};
  std::deque<counting> ops;
  for (int i = 0; i < 1000; ++i) ops.emplace_back(total);
  std::atomic<bool> go{false};
  std::thread other{[&] {
    while (!go) std::this_thread::yield();
    for (auto& op : ops) watched.post(op);
  }};
  go = true;
  watched.run(spin_until_counted(total, 1000));
  other.join();
  BOOST_TEST(total == 1000);
  BOOST_TEST(counted->wakes == 0);
}

BOOST_AUTO_TEST_CASE(stop_ends_run_forever_and_only_that_run) {
  for (int round = 0; round < 3; ++round) {
    std::thread other{[&] { loop.stop(); }};
    loop.run_forever();
    other.join();
  }
  // A later run still sleeps instead of spinning.
  const auto turns = loop.statistics().turns;
  loop.run(sleep_for(20ms));
  BOOST_TEST(loop.statistics().turns - turns < 20U);
}

struct hands_on : operation {
  hands_on(engine& in, int hops) : operation{taken}, loop{in}, left{hops} {}
  static void taken(operation& op) noexcept {
    auto& self = static_cast<hands_on&>(op);
    if (self.left-- > 0) self.loop.post(self);
  }
  engine& loop;
  int left;
};

BOOST_AUTO_TEST_CASE(what_was_posted_before_a_stop_still_runs_and_what_that_posts) {
  hands_on few{loop, 3};
  loop.post(few);
  loop.stop();
  loop.run_forever();
  BOOST_TEST(few.left == -1);
}

BOOST_AUTO_TEST_CASE(work_that_always_posts_more_does_not_hold_up_a_stop) {
  hands_on many{loop, 1'000'000};
  loop.post(many);
  loop.stop();
  loop.run_forever();
  BOOST_TEST(many.left > 0);
  many.left = 0;
  loop.run(answer());  // the last of it is taken here
}

BOOST_AUTO_TEST_CASE(an_idle_engine_sleeps_until_its_deadline) {
  const auto sleeps = loop.statistics().sleeps;
  const time_point begun = steady_now();
  loop.run(sleep_for(15ms));
  BOOST_TEST((steady_now() - begun >= 15ms));
  BOOST_TEST(loop.statistics().sleeps > sleeps);
}

task<> spin(int rounds, int& progress) {
  for (int i = 0; i < rounds; ++i) {
    ++progress;
    co_await yield{};
  }
}

task<> nap(bool& over) {
  const duration moment = 2ms;
  co_await sleep_for(moment);
  over = true;
}

task<> spin_until(const bool& over, long& turns) {
  while (!over) {
    ++turns;
    co_await yield{};
  }
}

task<> busy_and_napping(long& turns) {
  const environment& here = co_await this_environment{};
  scope both{here};
  bool over = false;
  both.spawn(nap(over));
  both.spawn(spin_until(over, turns));
  co_await both.join();
}

BOOST_AUTO_TEST_CASE(a_coroutine_that_always_reschedules_does_not_starve_timers) {
  long turns = 0;
  loop.run(busy_and_napping(turns));
  BOOST_TEST(turns > 1);
}

task<> two_spinners(int& first, int& second) {
  const environment& here = co_await this_environment{};
  scope both{here};
  both.spawn(spin(100, first));
  both.spawn(spin(100, second));
  co_await both.join();
}

BOOST_AUTO_TEST_CASE(yield_lets_the_others_run) {
  int first = 0;
  int second = 0;
  loop.run(two_spinners(first, second));
  BOOST_TEST(first == 100);
  BOOST_TEST(second == 100);
}

/// Says that work is outstanding and becomes ready at a moment of the test's choice.
class fake_poller final : public poller {
 public:
  fake_poller(engine& on, event& target) : loop_{on}, event_{target} { loop_.add(*this); }
  ~fake_poller() { loop_.remove(*this); }
  std::size_t poll(std::size_t) noexcept override {
    ++polls;
    if (!ready.exchange(false)) return 0;
    waiting = 0;
    event_.set();
    return 1;
  }
  arming arm() noexcept override {
    ++arms;
    if (work_arrives_while_arming) {
      work_arrives_while_arming = false;
      ready = true;
    }
    if (ready) return arming::busy;
    armed = true;
    return arming::armed;
  }
  void disarm() noexcept override {
    ++disarms;
    armed = false;
  }
  [[nodiscard]] std::size_t outstanding() const noexcept override { return waiting; }

  std::atomic<bool> ready{false};
  std::atomic<bool> armed{false};
  bool work_arrives_while_arming = false;
  std::size_t waiting = 1;
  long polls = 0;
  long arms = 0;
  long disarms = 0;

 private:
  engine& loop_;
  event& event_;
};

BOOST_AUTO_TEST_CASE(a_poller_is_armed_before_sleep_and_rung_awake) {
  loop.set_spin_budget(duration::zero());
  event happened;
  fake_poller p{loop, happened};
  std::thread other{[&] {
    while (!p.armed) std::this_thread::yield();
    p.ready = true;
    loop.wake();
  }};
  loop.run(wait_for(happened));
  other.join();
  BOOST_TEST(p.arms >= 1);
  BOOST_TEST(p.arms == p.disarms);
  BOOST_TEST(!p.armed);
}

BOOST_AUTO_TEST_CASE(work_that_comes_while_arming_keeps_the_engine_awake) {
  loop.set_spin_budget(duration::zero());
  event happened;
  fake_poller p{loop, happened};
  p.work_arrives_while_arming = true;
  const auto sleeps = loop.statistics().sleeps;
  loop.run(wait_for(happened));
  BOOST_TEST(loop.statistics().sleeps == sleeps);
  BOOST_TEST(p.arms == 1);
  BOOST_TEST(p.disarms <= p.arms);
}

BOOST_AUTO_TEST_CASE(within_its_budget_an_engine_spins_instead_of_sleeping) {
  loop.set_spin_budget(10s);
  event happened;
  fake_poller p{loop, happened};
  std::thread other{[&] {
    std::this_thread::sleep_for(2ms);
    p.ready = true;  // nobody wakes the engine
  }};
  loop.run(wait_for(happened));
  other.join();
  BOOST_TEST(p.arms == 0);
}

BOOST_AUTO_TEST_CASE(without_outstanding_work_the_budget_is_not_spent) {
  loop.set_spin_budget(10s);
  event happened;
  fake_poller p{loop, happened};
  p.waiting = 0;
  const auto sleeps = loop.statistics().sleeps;
  loop.run(sleep_for(2ms));
  BOOST_TEST(loop.statistics().sleeps > sleeps);
  BOOST_TEST(p.arms >= 1);
}

BOOST_AUTO_TEST_CASE(the_budget_ends) {
  loop.set_spin_budget(200us);
  event happened;
  fake_poller p{loop, happened};
  std::thread other{[&] {
    while (!p.armed) std::this_thread::yield();
    p.ready = true;
    loop.wake();
  }};
  loop.run(wait_for(happened));
  other.join();
  BOOST_TEST(p.arms >= 1);
}

/// Sets an environment variable for the length of a test.
class variable {
 public:
  variable(const char* name, const char* value) : name_{name} { ::setenv(name, value, 1); }
  variable(const variable&) = delete;
  variable& operator=(const variable&) = delete;
  ~variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

BOOST_AUTO_TEST_CASE(the_spin_budget_comes_from_the_environment) {
  const variable set{"CHORALE_SPIN_US", "7"};
  const engine configured;
  BOOST_TEST((configured.spin_budget() == 7us));
}

BOOST_AUTO_TEST_CASE(a_bad_spin_budget_is_explained) {
  for (const char* bad : {"", "fast", "-1", "5ms"}) {
    const variable set{"CHORALE_SPIN_US", bad};
    BOOST_CHECK_EXCEPTION(engine{}, failure, [](const failure& f) {
      return f.why() == errc::invalid_argument &&
             f.why().detail().find("CHORALE_SPIN_US") != std::string::npos;
    });
  }
}

BOOST_AUTO_TEST_CASE(the_derived_budget_heeds_the_cpus) {
  BOOST_TEST(usable_cpus() >= 1);
  BOOST_TEST((derived_spin_budget(usable_cpus() + 1) == duration::zero()));
  BOOST_TEST((derived_spin_budget(1) > duration::zero()));
}

allowed_cpus on(std::initializer_list<std::size_t> cpus) {
  allowed_cpus made;
  for (const std::size_t cpu : cpus) made.add(cpu);
  return made;
}

BOOST_AUTO_TEST_CASE(threads_have_a_cpu_each_or_not) {
  const auto each = [](std::vector<allowed_cpus> threads) {
    std::string answers;
    for (const allowed_cpus& mine : threads) answers += one_cpu_each(mine, threads) ? 'y' : 'n';
    return answers;
  };
  if (cpu_quota() < 4) return;
  BOOST_TEST(on({0, 63, 64, 1023}).count() == 4);
  BOOST_TEST(each({on({0})}) == "y");
  BOOST_TEST(each({on({0}), on({1})}) == "yy");    // bound to a core each
  BOOST_TEST(each({on({70}), on({70})}) == "nn");  // bound to the same one
  BOOST_TEST(each({on({0, 1}), on({0, 1})}) == "yy");
  BOOST_TEST(each({on({0, 1}), on({0, 1}), on({1, 0})}) == "nnn");
  BOOST_TEST(each({on({0}), on({0, 1})}) == "ny");
  BOOST_TEST(each({on({0, 1}), on({2, 3}), on({2, 3}), on({2})}) == "ynnn");
  BOOST_TEST(each({on({}), on({0})}) == "ny");  // of one nothing is known
  BOOST_TEST(allowed_cpus::of_this_thread().count() >= usable_cpus());
}

BOOST_AUTO_TEST_CASE(an_engine_bound_to_one_cpu_spins_once_it_knows_that_it_is_alone_there) {
  cpu_set_t before;
  CPU_ZERO(&before);
  BOOST_REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  std::thread bound{[&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    for (std::size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
      if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    engine loop;
    const allowed_cpus mine = allowed_cpus::of_this_thread();
    BOOST_TEST(mine.count() == 1);
    BOOST_TEST(one_cpu_each(mine, std::span{&mine, 1}));
    loop.share_cpus(cpu_share::one_each);
    BOOST_TEST((loop.spin_budget() > duration::zero()));
    loop.share_cpus(cpu_share::too_few);  // another communicator
    BOOST_TEST((loop.spin_budget() == duration::zero()));
    loop.share_cpus(cpu_share::one_each);
    BOOST_TEST((loop.spin_budget() == duration::zero()));
    engine told{engine_options{.spin = 7us}};
    told.share_cpus(cpu_share::too_few);
    BOOST_TEST((told.spin_budget() == 7us));
  }};
  bound.join();
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
