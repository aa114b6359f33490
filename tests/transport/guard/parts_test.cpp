// The guard's parts that need no second process: frames, graph, judge, table, mailbox, options, messages.
#include <chorale/transport/guard/frame.hpp>
#include <chorale/transport/guard/guard_options.hpp>
#include <chorale/transport/guard/mailbox_edge.hpp>
#include <chorale/transport/guard/neighbours.hpp>
#include <chorale/transport/guard/pending_table.hpp>
#include <chorale/transport/guard/silence.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <bit>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>
#include <set>
#include <thread>

using namespace chorale;
using namespace chorale::guarding;
using namespace std::chrono_literals;

namespace {

frame every_field() {
  frame f;
  f.kind = frame_kind::answer;
  f.scope = revoke_scope::lane;
  f.attempt = 7;
  f.hops = 9;
  f.call = call_state::not_called;
  f.origin = 0x01020304;
  f.target = -1;
  f.sequence = 0xfffffffd;
  f.nonce = 0x1122334455667788;
  f.epoch = 3;
  f.lane = ~std::uint64_t{0};
  f.ticket = 1;
  f.cause = errc::peer_lost;
  f.culprit = 12;
  f.detail = -5;
  return f;
}

silence::time_point at(std::chrono::nanoseconds t) { return silence::time_point{1h + t}; }

}  // namespace

BOOST_AUTO_TEST_SUITE(guard_frames)

BOOST_AUTO_TEST_CASE(every_field_survives) {
  const auto f = every_field();
  const auto back = decode(encode(f));
  BOOST_REQUIRE(back.has_value());
  BOOST_TEST((*back == f));
}

BOOST_AUTO_TEST_CASE(the_layout_is_the_documented_one) {
  const auto b = encode(every_field());
  auto byte = [&b](std::size_t i) { return std::to_integer<int>(b[i]); };
  BOOST_TEST(byte(0) == 0x43);
  BOOST_TEST(byte(1) == 0x47);
  BOOST_TEST(byte(2) == 1);
  BOOST_TEST(byte(3) == 3);
  BOOST_TEST(byte(4) == 4);
  BOOST_TEST(byte(7) == 1);
  BOOST_TEST(byte(12) == 0xfd);
  BOOST_TEST(byte(16) == 0x88);
  BOOST_TEST(byte(48) == 16);
  BOOST_TEST(byte(52) == 12);
  BOOST_TEST(byte(60) == 1);
  BOOST_TEST(byte(61) == 7);
  BOOST_TEST(byte(62) == 9);
  BOOST_TEST(byte(63) == 1);
}

BOOST_AUTO_TEST_CASE(bytes_no_guard_sends_are_refused) {
  const auto good = encode(every_field());
  for (const auto& [where, value] :
       {std::pair{0, 0}, {1, 0}, {2, 2}, {3, 0}, {3, 7}, {48, 99}, {60, 2}, {63, 4}}) {
    auto bad = good;
    bad[static_cast<std::size_t>(where)] = static_cast<std::byte>(value);
    BOOST_TEST_CONTEXT("byte " << where) { BOOST_TEST(!decode(bad).has_value()); }
  }
}

BOOST_AUTO_TEST_CASE(random_bytes_never_confuse_the_decoder) {
  const std::uint32_t seed = 20261130;
  std::cout << "seed " << seed << '\n';
  std::mt19937 random{seed};
  for (int i = 0; i < 20000; ++i) {
    auto bytes = encode(every_field());
    for (int k = 0; k < 3; ++k) bytes[random() % 64] = static_cast<std::byte>(random());
    if (const auto f = decode(bytes)) BOOST_REQUIRE((encode(*f) == bytes));
  }
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(guard_graph)

BOOST_AUTO_TEST_CASE(edges_are_mutual_and_few) {
  for (rank_t size = 1; size <= 70; ++size) {
    for (rank_t r = 0; r < size; ++r) {
      const auto mine = control_neighbours(r, size);
      BOOST_REQUIRE(mine.size() <= 2 * static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(size))));
      for (const rank_t n : mine) {
        BOOST_REQUIRE(n != r);
        const auto theirs = control_neighbours(n, size);
        BOOST_REQUIRE(std::binary_search(theirs.begin(), theirs.end(), r));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(every_way_arrives_over_edges_in_few_steps) {
  for (const rank_t size : {2, 3, 5, 8, 13, 16, 31, 64, 100}) {
    for (rank_t from = 0; from < size; ++from) {
      for (rank_t to = 0; to < size; ++to) {
        if (from == to) continue;
        for (unsigned attempt = 0; attempt < 12; ++attempt) {
          rank_t here = from;
          int steps = 0;
          while (here != to) {
            const auto next = next_hop(here, to, size, attempt);
            const auto edges = control_neighbours(here, size);
            BOOST_REQUIRE(std::binary_search(edges.begin(), edges.end(), next));
            here = next;
            BOOST_REQUIRE(++steps <= static_cast<int>(std::bit_width(static_cast<unsigned>(size))));
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(attempts_differ_in_the_first_step) {
  std::set<rank_t> first;
  for (unsigned attempt = 0; attempt < 8; ++attempt) first.insert(next_hop(0, 11, 64, attempt));
  BOOST_TEST(first.size() >= 4U);
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(guard_silence)

BOOST_AUTO_TEST_CASE(silence_is_judged_after_the_timeout_and_not_before) {
  silence judge{2, {.peer_timeout = 16s, .question_after = 1s}};
  const std::array<silence::wait, 1> waits{{{1, 5, 9}}};
  auto v = judge.look(at(0s), waits);
  BOOST_REQUIRE(v.ask.size() == 1U);
  BOOST_TEST(v.ask[0].about.ticket == 9U);
  std::chrono::nanoseconds t = 0s;
  unsigned asked = 0;
  for (; t < 20s && v.unresponsive.empty(); t += 1s) {
    v = judge.look(at(t + 1s), waits);
    for (const auto& q : v.ask) BOOST_TEST(q.attempt == ++asked);
  }
  BOOST_TEST((t == 16s));
  BOOST_TEST(asked >= 14U);
  BOOST_REQUIRE(v.unresponsive.size() == 1U);
  BOOST_TEST(v.unresponsive[0].rank == 1);
}

BOOST_AUTO_TEST_CASE(an_answer_clears_and_is_asked_for_again_later) {
  silence judge{2, {.peer_timeout = 16s, .question_after = 1s}};
  const std::array<silence::wait, 1> waits{{{1, 5, 9}}};
  for (int i = 0; i < 100; ++i) {
    const auto v = judge.look(at(i * 1s), waits);
    BOOST_REQUIRE(v.unresponsive.empty());
    BOOST_REQUIRE(v.ask.size() == 1U);
    judge.heard(1, at(i * 1s));
  }
}

BOOST_AUTO_TEST_CASE(a_judge_that_slept_does_not_count_its_sleep) {
  silence judge{2, {.peer_timeout = 16s, .question_after = 1s}};
  const std::array<silence::wait, 1> waits{{{1, 5, 9}}};
  static_cast<void>(judge.look(at(0s), waits));
  BOOST_TEST(judge.look(at(3600s), waits).unresponsive.empty());
  BOOST_TEST(judge.look(at(7200s), waits).unresponsive.empty());
}

BOOST_AUTO_TEST_CASE(nobody_is_judged_for_whom_nothing_waits) {
  silence judge{2, {.peer_timeout = 16s, .question_after = 1s}};
  const std::array<silence::wait, 1> waits{{{1, 5, 9}}};
  for (int i = 0; i < 15; ++i) static_cast<void>(judge.look(at(i * 1s), waits));
  const auto idle = judge.look(at(15s), {});
  BOOST_TEST(!idle.look_again.has_value());
  for (int i = 16; i < 30; ++i) BOOST_TEST(judge.look(at(i * 1s), waits).unresponsive.empty());
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(guard_pending)

BOOST_AUTO_TEST_CASE(operations_come_and_go_and_overflow_means_everybody) {
  pending_table table{100};
  const std::array<rank_t, 3> ranks{0, 63, 99};
  std::vector<pending_id> ids;
  for (std::uint64_t i = 0; i < pending_table::slot_count; ++i) ids.push_back(table.add(1, i, ranks, at(0s)));
  const auto extra = table.add(1, 1000, ranks, at(5s));
  int seen = 0;
  int overflow = 0;
  table.for_each([&](auto since, std::uint64_t, std::uint64_t, auto waits_for) {
    ++seen;
    BOOST_TEST((waits_for(0) && waits_for(63) && waits_for(99)));
    if (since == at(5s)) {
      ++overflow;
      BOOST_TEST(waits_for(50));
    } else {
      BOOST_TEST(!waits_for(50));
    }
  });
  BOOST_TEST(seen == 65);
  BOOST_TEST(overflow == 1);
  table.remove(extra);
  for (const auto id : ids) table.remove(id);
  for (const auto id : ids) table.remove(id);  // twice is once
  BOOST_TEST(table.empty());
}

BOOST_AUTO_TEST_CASE(engines_and_the_watch_thread_at_once) {
  pending_table table{8};
  std::atomic<bool> stop{false};
  std::vector<std::thread> engines;
  for (int e = 0; e < 3; ++e)
    engines.emplace_back([&table, e] {
      const std::array<rank_t, 1> ranks{e};
      for (int i = 0; i < 20000; ++i)
        table.remove(
            table.add(static_cast<std::uint64_t>(e), static_cast<std::uint64_t>(e) * 3, ranks, at(0s)));
    });
  std::thread watch{[&] {
    while (!stop)
      table.for_each([](auto, std::uint64_t lane, std::uint64_t ticket, auto) {
        if (ticket != lane * 3) std::abort();
      });
  }};
  for (auto& t : engines) t.join();
  stop = true;
  watch.join();
  BOOST_TEST(table.empty());
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(guard_mailbox)

BOOST_AUTO_TEST_CASE(order_is_kept_past_the_capacity_and_the_writer_is_marked) {
  const auto there = std::make_unique<mailbox>();
  const auto back = std::make_unique<mailbox>();
  mailbox_edge writer{*there, *back};
  mailbox_edge reader{*back, *there};
  auto numbered = [](std::uint64_t n) {
    frame f;
    f.ticket = n;
    return encode(f);
  };
  std::uint64_t written = 0;
  for (; written < 50; ++written) BOOST_TEST(writer.post(numbered(written), when_full::wait));
  BOOST_TEST(!writer.post(numbered(999), when_full::drop));
  BOOST_TEST(reader.writer_waits());
  for (std::uint64_t read = 0; read < 50;) {
    while (const auto bytes = reader.take()) BOOST_REQUIRE(decode(*bytes)->ticket == read++);
    writer.flush();
  }
  BOOST_TEST(!reader.writer_waits());
  BOOST_TEST(!reader.take().has_value());
}

BOOST_AUTO_TEST_CASE(a_writer_that_overstates_its_count_is_not_believed) {
  const auto there = std::make_unique<mailbox>();
  const auto back = std::make_unique<mailbox>();
  there->head.written = 1'000'000;
  mailbox_edge reader{*back, *there};
  BOOST_TEST(!reader.take().has_value());
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(guard_words)

BOOST_AUTO_TEST_CASE(options_come_from_the_environment_or_say_which_variable_is_wrong) {
  ::setenv("CHORALE_PEER_TIMEOUT", "2.5", 1);
  BOOST_TEST((guard_options::from_environment().value().peer_timeout == 2500ms));
  ::setenv("CHORALE_PEER_TIMEOUT", "0", 1);
  BOOST_TEST((guard_options::from_environment().value().peer_timeout == 0ns));
  for (const char* bad : {"", "x", "1s", "-1", "nan", "1e9"}) {
    ::setenv("CHORALE_PEER_TIMEOUT", bad, 1);
    const auto r = guard_options::from_environment();
    BOOST_REQUIRE(!r.has_value());
    BOOST_TEST(r.error().message().find("CHORALE_PEER_TIMEOUT") != std::string::npos);
  }
  ::unsetenv("CHORALE_PEER_TIMEOUT");
  BOOST_TEST((guard_options::from_environment().value().peer_timeout == 30s));
}

BOOST_AUTO_TEST_CASE(messages_name_rank_signal_and_lane) {
  chorale::revoke r;
  r.cause = errc::peer_lost;
  r.culprit = 2;
  r.origin = 0;
  r.detail = SIGSEGV;
  const auto text = to_error(r).message();
  BOOST_TEST(text.find("rank 2") != std::string::npos);
  BOOST_TEST(text.find("signal 11") != std::string::npos);
  BOOST_TEST(text.find("noticed by rank 0") != std::string::npos);
  r.detail = death_by_terminate;
  BOOST_TEST(to_error(r).message().find("std::terminate") != std::string::npos);
  r.cause = errc::revoked;
  BOOST_TEST(to_error(r).message().find("rank 0 called reset()") != std::string::npos);
  r.scope = revoke_scope::lane;
  r.cause = errc::timed_out;
  r.lane = 17;
  BOOST_TEST(to_error(r).message().find("lane 17") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
