// How windows and what is done on them end early, and what is refused.
#include "window_rig.hpp"
#include <chorale/async/sleep.hpp>

#include <boost/test/unit_test.hpp>

#include <limits>

using namespace chorale;
using namespace chorale::testing;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t bytes = 1 << 20;

template <class T>
error refusal(windows& w, window_call<T> op) {
  static_cast<void>(w);
  detail::window_result_awaiter<T> awaiter = as_result(std::move(op)).operator co_await();
  BOOST_REQUIRE(awaiter.await_ready());
  auto r = awaiter.await_resume();
  return r ? error{} : r.error();
}

/// Runs `work` as the only coroutine of the ranks' engine.
template <class Body>
void alone(engine& loop, Body body) {
  loop.run([](Body& made) -> task<void> {
    task<void> work = made();
    co_await std::move(work);
  }(body));
}

void expect_error(const error& why, errc code, std::string_view text) {
  BOOST_TEST((why == code), why.message());
  BOOST_TEST(why.message().find(text) != std::string::npos, why.message());
}

window_call<void> raw(const window_ptr& on, const window_request& what) {
  return window_call<void>{detail::window_handle{on, what}};
}

task<void> refuse_everything(windows& w, std::vector<std::pair<error, std::string>>& got) {
  std::vector<std::uint8_t> buffer(100);
  std::vector<std::int32_t> numbers(10);
  const std::span<const std::uint8_t> data{buffer};
  const std::span<const std::int32_t> values{numbers};
  const auto note = [&](const error& e, const char* text) { got.emplace_back(e, text); };
  note(co_await ended(put(w[0], 2, 0, data)), "rank 2 does not exist; the window has ranks 0 to 1");
  note(co_await ended(put(w[0], -1, 0, data)), "rank -1 does not exist");
  note(co_await ended(put(w[0], 1, bytes - 99, data)), "100 bytes at 1048477 reach beyond the 1048576 bytes");
  note(co_await ended(put(w[0], 1, std::numeric_limits<std::uint64_t>::max(), data)), "reach beyond");
  note(co_await ended(get(w[0], 1, bytes + 1, std::span<std::uint8_t>{})), "0 bytes at 1048577 reach beyond");
  note(co_await ended(accumulate(w[0], 1, 2, values)), "offset 2 is no multiple of the 4 bytes");
  note(co_await ended(accumulate(w[0], 1, bytes, values)), "reach beyond");
  note(co_await ended(signal(w[0], 1, 8)), "counter 8 does not exist; rank 1 has 8");
  note(co_await ended(wait(w[0], 9, 1)), "counter 9 does not exist; rank 0 has 8");
  window_request nothing;
  nothing.peer = 1;
  nothing.bytes = 5;
  note(co_await ended(raw(w[0], nothing)), "the buffer is null and has 5 bytes");
}

}  // namespace

BOOST_AUTO_TEST_SUITE(window_endings)

BOOST_AUTO_TEST_CASE(arguments_that_can_not_be_are_refused_before_anything_happens) {
  for (const reach how : {reach{medium::shm, true}, reach{medium::tcp, false}}) {
    engine loop = engine_for(how.over);
    ranks all{loop, 2, how.over};
    windows w{all, how, bytes};
    std::vector<std::pair<error, std::string>> got;
    alone(loop, [&] { return refuse_everything(w, got); });
    for (const auto& [why, text] : got) expect_error(why, errc::invalid_argument, text);
    BOOST_TEST(got.size() == 10u);
  }
}

BOOST_AUTO_TEST_CASE(operations_that_windows_do_not_have_are_refused) {
  engine loop = engine_for(medium::shm);
  ranks all{loop, 2, medium::shm};
  windows w{all, {medium::shm, true}, bytes};
  std::vector<error> got;
  const auto body = [&]() -> task<void> {
    return [](windows& on, std::vector<error>& out) -> task<void> {
      const std::vector<float> values(4, 1);
      for (const reduction op :
           {reduction::avg, reduction::premul_sum, reduction::user, reduction::bit_and, reduction::none}) {
        error why = co_await ended(accumulate(on[0], 1, 0, std::span<const float>{values}, op));
        out.push_back(std::move(why));
      }
    }(w, got);
  };
  alone(loop, body);
  BOOST_TEST(got.size() == 5u);
  for (const error& why : got) BOOST_TEST((why == errc::unsupported), why.message());
}

BOOST_AUTO_TEST_CASE(a_deadline_ends_one_wait_and_the_window_goes_on) {
  engine loop = engine_for(medium::shm);
  ranks all{loop, 2, medium::shm};
  windows w{all, {medium::shm, true}, bytes};
  error first;
  std::uint64_t second = 0;
  const auto body = [&]() -> task<void> {
    return [](engine& on, windows& win, error& out, std::uint64_t& value) -> task<void> {
      co_await signal(win[1], 0, 3, 2);
      out = co_await ended(wait(win[0], 3, 5, on.now() + 20ms));
      auto later = wait(win[0], 3, 5).start();
      co_await signal(win[1], 0, 3, 4);
      value = co_await std::move(later);
    }(loop, w, first, second);
  };
  alone(loop, body);
  expect_error(first, errc::timed_out, "wait for counter 3 to reach 5, which is at 2");
  BOOST_TEST(second == 6u);
}

BOOST_AUTO_TEST_CASE(a_signal_after_the_last_look_keeps_the_engine_awake) {
  engine loop = engine_for(medium::shm);
  ranks all{loop, 2, medium::shm};
  windows w{all, {medium::shm, true}, bytes};
  auto idle = poller::arming::busy, signalled = poller::arming::armed;
  const auto body = [&]() -> task<void> {
    return [](ranks& every, windows& win, poller::arming& before, poller::arming& after) -> task<void> {
      auto waiting = wait(win[0], 0, 1).start();
      static_cast<void>(every[0].poll(100));
      before = every[0].arm();
      every[0].disarm();
      co_await signal(win[1], 0, 0);
      after = every[0].arm();
      every[0].disarm();
      co_await std::move(waiting);
    }(all, w, idle, signalled);
  };
  alone(loop, body);
  BOOST_TEST((idle == poller::arming::armed));
  BOOST_TEST((signalled == poller::arming::busy));
}

BOOST_AUTO_TEST_CASE(a_stopped_put_lets_go_of_its_buffer_and_what_follows_arrives) {
  for (const reach how :
       {reach{medium::shm, false}, reach{medium::tcp, false}, reach{medium::simulated, false}}) {
    BOOST_TEST_CONTEXT(how) {
      engine loop = engine_for(how.over);
      ranks all{loop, 2, how.over};
      windows w{all, how, std::uint64_t{64} << 20};
      error stopped;
      bool right = false;
      const auto body = [&]() -> task<void> {
        return [](engine& on, windows& win, error& out, bool& good) -> task<void> {
          {
            // More than any wire holds; the deadline has passed when the first frames are out.
            const std::vector<std::uint8_t> large(std::size_t{48} << 20, 1);
            out = co_await ended(put(win[0], 1, 0, std::span{large}, on.now()));
          }
          {
            std::vector<std::uint8_t> large(std::size_t{48} << 20, 1);
            error also = co_await ended(get(win[0], 1, 0, std::span{large}, on.now()));
            if (also != errc::timed_out) out = also;
          }
          const std::vector<std::uint8_t> small(100, 7);
          std::vector<std::uint8_t> back(100);
          co_await put(win[0], 1, std::uint64_t{50} << 20, std::span{small});
          co_await signal(win[0], 1, 0);
          co_await get(win[0], 1, std::uint64_t{50} << 20, std::span{back});
          good = back == small && win[1]->part(1).counters[0].value == 1;
        }(loop, w, stopped, right);
      };
      alone(loop, body);
      BOOST_TEST((stopped == errc::timed_out), stopped.message());
      BOOST_TEST(stopped.culprit() == 1);
      BOOST_TEST(right);
    }
  }
}

namespace {

struct outcomes {
  error waiting, putting, getting, later;
};

/// A wait, a put and a get that can not end, then `strike`.
template <class Strike>
task<void> struck(windows& w, outcomes& out, Strike strike) {
  std::vector<std::uint8_t> from(std::size_t{1} << 20, 1), into(std::size_t{1} << 20);
  auto waiting = wait(w[0], 0, 1).start();
  auto putting = put(w[0], 1, 0, std::span<const std::uint8_t>{from}).start();
  auto getting = get(w[0], 1, 0, std::span{into}).start();
  strike();
  auto first = as_result(std::move(waiting));
  auto r = co_await std::move(first);
  if (!r) out.waiting = r.error();
  out.putting = co_await ended(std::move(putting));
  out.getting = co_await ended(std::move(getting));
  out.later = co_await ended(signal(w[0], 1, 0));
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_ends_the_epoch_ends_everything_on_its_windows) {
  for (const reach how : {reach{medium::shm, false}, reach{medium::tcp, false}}) {
    engine loop = engine_for(how.over);
    ranks all{loop, 2, how.over};
    windows w{all, how, bytes};
    outcomes out;
    const auto strike = [&] { all[0].revoke_all(error{errc::peer_lost, "killed by signal 9", 1}); };
    alone(loop, [&] { return struck(w, out, strike); });
    for (const error& why : {out.waiting, out.putting, out.getting}) {
      expect_error(why, errc::peer_lost, "killed by signal 9");
      BOOST_TEST(why.culprit() == 1);
    }
    expect_error(out.later, errc::revoked, "peer_lost");
    BOOST_TEST(all[0].outstanding() == 0u);
  }
}

BOOST_AUTO_TEST_CASE(a_rank_that_leaves_ends_waits_and_what_is_under_way_to_it) {
  engine loop = engine_for(medium::shm);
  ranks all{loop, 2, medium::shm};
  windows w{all, {medium::shm, false}, bytes};
  outcomes out;
  alone(loop, [&] { return struck(w, out, [&] { all[0].on_left(1, 0); }); });
  for (const error& why : {out.waiting, out.putting, out.getting, out.later}) {
    BOOST_TEST((why == errc::peer_left), why.message());
    BOOST_TEST(why.culprit() == 1);
  }
}

BOOST_AUTO_TEST_CASE(a_window_that_is_dropped_ends_on_every_rank) {
  for (const reach how : {reach{medium::shm, true}, reach{medium::shm, false}, reach{medium::tcp, false}}) {
    engine loop = engine_for(how.over);
    ranks all{loop, 2, how.over};
    windows w{all, how, bytes};
    outcomes out;
    alone(loop, [&] {
      return struck(w, out, [&] {
        w[1]->drop();
        w[1].reset();
      });
    });
    expect_error(out.waiting, errc::dropped, "rank 1 destroyed its part of a window that was not closed");
    BOOST_TEST(out.waiting.culprit() == 1);
    if (!how.direct) BOOST_TEST((out.putting == errc::dropped), out.putting.message());
    if (!how.direct) BOOST_TEST((out.getting == errc::dropped), out.getting.message());
    expect_error(out.later, errc::revoked, "dropped");
  }
}

namespace {

/// Puts from rank 0 to rank 1, whose loop does not turn meanwhile, until the socket is full; returns how many
/// it took whole.
std::size_t puts_until_full(ranks& all, windows& w, std::span<const std::uint8_t> each, std::size_t most,
                            std::vector<window_started<void>>& under_way) {
  std::size_t whole = 0;
  for (; whole < most; ++whole) {
    under_way.push_back(put(w[0], 1, 0, each).start());
    if (all[0].link_to(1).carrier().in_frame()) break;
  }
  return whole;
}

struct half_way {
  bool begun = false;
  error stopped;
  bool right = false;
};

task<void> stop_a_get_half_way(engine& loop, ranks& all, windows& w, std::size_t whole, half_way& out) {
  const std::vector<std::uint8_t> each(4000, 7);
  std::vector<window_started<void>> puts;
  static_cast<void>(puts_until_full(all, w, each, whole, puts));
  std::vector<std::uint8_t> unwanted(1000), back(1000);
  auto getting = get(w[0], 1, 0, std::span{unwanted}, loop.now()).start();
  out.begun = all[0].link_to(1).carrier().in_frame();
  auto late = as_result(std::move(getting));
  auto r = co_await std::move(late);
  if (!r) out.stopped = r.error();
  for (auto& each_put : puts) co_await std::move(each_put);
  co_await get(w[0], 1, 0, std::span{back});
  out.right = std::ranges::all_of(back, [](std::uint8_t v) { return v == 7; });
}

}  // namespace

/// Its request goes out in spite of that, and the answer comes to nobody.
BOOST_AUTO_TEST_CASE(a_get_is_stopped_while_a_part_of_its_request_is_on_the_wire) {
  std::size_t whole = 0;
  for (const bool counting : {true, false}) {
    engine loop = engine_for(medium::tcp);
    ranks all{loop, 2, medium::tcp};
    all.narrow_last_socket();
    windows w{all, {medium::tcp, false}, bytes};
    half_way out;
    if (counting) {
      const std::vector<std::uint8_t> each(4000, 7);
      alone(loop, [&]() -> task<void> {
        return [](ranks& every, windows& win, std::span<const std::uint8_t> data,
                  std::size_t& count) -> task<void> {
          std::vector<window_started<void>> puts;
          count = puts_until_full(every, win, data, 10'000, puts);
          for (auto& p : puts) co_await std::move(p);
        }(all, w, each, whole);
      });
      BOOST_REQUIRE(whole < 10'000u);
      continue;
    }
    alone(loop, [&] { return stop_a_get_half_way(loop, all, w, whole, out); });
    BOOST_TEST(out.begun);
    BOOST_TEST((out.stopped == errc::timed_out), out.stopped.message());
    BOOST_TEST(!all[0].cause(), all[0].cause().message());
    BOOST_TEST(out.right);
  }
}

BOOST_AUTO_TEST_CASE(closing_ends_waits_here_and_refuses_what_comes_later) {
  engine loop = engine_for(medium::tcp);
  ranks all{loop, 2, medium::tcp};
  windows w{all, {medium::tcp, false}, bytes};
  outcomes out;
  alone(loop, [&] { return struck(w, out, [&] { w[0]->begin_closing(); }); });
  BOOST_TEST((out.waiting == errc::cancelled), out.waiting.message());
  BOOST_TEST(!out.putting, out.putting.message());
  BOOST_TEST(!out.getting, out.getting.message());
  BOOST_TEST((out.later == errc::invalid_state), out.later.message());
}

BOOST_AUTO_TEST_CASE(frames_that_no_correct_rank_sends_end_the_epoch_and_touch_nothing) {
  const auto words = [](window_verb verb, std::uint64_t number, std::uint64_t offset, std::uint64_t amount) {
    window_words w;
    w.verb = verb;
    w.number = number;
    w.offset = offset;
    w.amount = amount;
    w.last = true;
    return w;
  };
  window_words bad_type = words(window_verb::accumulate, 1, 0, 0);
  bad_type.type = 99;
  window_words bad_slot = words(window_verb::signal, 1, 0, 1);
  bad_slot.slot = 8;
  window_words endless_get = words(window_verb::get, 1, 0, 8);
  endless_get.last = false;
  window_words endless_signal = words(window_verb::signal, 1, 0, 1);
  endless_signal.last = false;
  const std::pair<window_words, const char*> hostile[] = {
      {words(window_verb::put, 1, bytes - 63, 0), "a put reaches beyond"},
      {words(window_verb::put, 1, ~std::uint64_t{0} - 10, 0), "a put reaches beyond"},
      {words(window_verb::put, 0, 0, 0), "out of order"},
      {words(window_verb::get, 1, 8, bytes), "a get reaches beyond"},
      {bad_type, "can not be combined"},
      {bad_slot, "a counter that is not there"},
      {words(window_verb::applied, 1, 0, 0), "what was not asked"},
      {words(window_verb::got, 1, 0, 0), "that nobody asked for"},
      {words(static_cast<window_verb>(77), 1, 0, 0), "nothing known"},
      {endless_get, "of one frame"},
      {endless_signal, "of one frame"},
  };
  for (const auto& [evil, text] : hostile) {
    BOOST_TEST_CONTEXT(text) {
      engine loop = engine_for(medium::tcp);
      ranks all{loop, 2, medium::tcp};
      windows w{all, {medium::tcp, false}, bytes};
      const std::vector<std::byte> payload(64, std::byte{0xff});
      outgoing frame;
      frame.header.lane = window_lane;
      frame.data = payload.data();
      frame.size = payload.size();
      write_words(evil, frame.header);
      error why;
      const auto body = [&]() -> task<void> {
        return [](ranks& every, windows& win, outgoing& m, error& out) -> task<void> {
          auto waiting = wait(win[0], 0, 1).start();
          every[1].link_to(0).send_frame(m);
          auto awaited = as_result(std::move(waiting));
          auto r = co_await std::move(awaited);
          if (!r) out = r.error();
        }(all, w, frame, why);
      };
      alone(loop, body);
      expect_error(why, errc::protocol_error, text);
      BOOST_TEST(why.culprit() == 1);
      const std::byte* memory = w.bytes_of(0);
      BOOST_TEST(std::all_of(memory, memory + bytes, [](std::byte b) { return b == std::byte{}; }));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
