// Messages with tags and from anybody: who takes which, in what order, what is told, and how it ends.
#include "rig.hpp"
#include <chorale/api/description.hpp>
#include <chorale/api/receive_ticket.hpp>
#include <chorale/async/sleep.hpp>
#include <chorale/async/virtual_backend.hpp>
#include <chorale/async/with_environment.hpp>

#include <boost/test/unit_test.hpp>

#include <iostream>
#include <map>
#include <numeric>
#include <random>
#include <string>

using namespace chorale;
using namespace chorale::testing;
using namespace std::chrono_literals;

namespace {

using numbers = std::vector<std::int32_t>;

constexpr medium media[] = {medium::shm, medium::tcp, medium::simulated};

std::unique_ptr<engine> engine_for(medium over) {
  if (over == medium::simulated) return std::make_unique<engine>(std::make_unique<virtual_backend>());
  return std::make_unique<engine>(engine_options{backend_kind::automatic, duration{0}});
}

ticket place(core& on, const described_call& what, std::uint64_t key = default_lane, deadline limit = {}) {
  return place_checked(on, what.what, key, limit);
}
receive_ticket place_receive(core& on, const described_call& what, std::uint64_t key = default_lane,
                             deadline limit = {}) {
  return receive_ticket{place_checked(on, what.what, key, limit)};
}

task<error> outcome_of(ticket t) {
  as_result_of<ticket> awaited = as_result(std::move(t));
  auto r = co_await std::move(awaited);
  co_return r ? error{} : r.error();
}

/// Keeps a lane's key from ending with the call.
class kept_lane {
 public:
  kept_lane(core& on, std::uint64_t key) : on_{on}, lane_{*on.open_lane(key)} {}
  kept_lane(const kept_lane&) = delete;
  kept_lane& operator=(const kept_lane&) = delete;
  ~kept_lane() { on_.close_handle(*lane_); }
  [[nodiscard]] lane_state& operator*() const { return *lane_; }

 private:
  core& on_;
  lane_state* lane_;
};

numbers filled(std::size_t count, std::int32_t first) {
  numbers n(count);
  std::iota(n.begin(), n.end(), first);
  return n;
}

/// In a rank's body, where Boost's macros must not be.
void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error{"not so: " + what};
}

template <class Body>
void on_every_medium(rank_t n, Body body) {
  for (const medium over : media) BOOST_TEST_CONTEXT(name_of(over)) {
      const auto loop = engine_for(over);
      ranks all{*loop, n, over};
      all.run(body);
      for (rank_t r = 0; r < n; ++r)
        for (rank_t other = 0; other < n; ++other)
          if (other != r) BOOST_TEST(all[r].link_to(other).early_arrivals() == 0U);
    }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(tagged_messages)

BOOST_AUTO_TEST_CASE(tags_choose_and_each_keeps_its_order) {
  on_every_medium(2, [](core& on, rank_t r) -> task<void> {
    return [](core& c, rank_t me) -> task<void> {
      // Small ones, and ones that have to be asked for.
      for (const std::size_t count : {0U, 3U, 5000U, 300000U}) {
        numbers a = filled(count, 1), b = filled(count, 2), d = filled(count, 3);
        if (me == 0) {
          started first = place(c, send(a, 1, 7)).start();
          started second = place(c, send(b, 1, 9)).start();
          started third = place(c, send(d, 1, 7)).start();
          co_await std::move(first);
          co_await std::move(second);
          co_await std::move(third);
        } else {
          numbers x(count), y(count), z(count);
          const received nine = co_await place_receive(c, recv(x, 0, 9));
          const received one = co_await place_receive(c, recv(y, 0, 7));
          const received two = co_await place_receive(c, recv(z, 0, 7));
          expect(x == b && y == a && z == d, "what came, " + std::to_string(count));
          expect(nine.tag == 9 && one.tag == 7 && two.source == 0 && two.count == count &&
                     two.bytes == 4 * count,
                 "what is told");
        }
        co_await place(c, barrier());
      }
    }(on, r);
  });
}

BOOST_AUTO_TEST_CASE(a_receive_from_anybody_is_told_who_and_what) {
  on_every_medium(4, [](core& on, rank_t r) -> task<void> {
    return [](core& c, rank_t me) -> task<void> {
      for (const std::size_t count : {1U, 4000U, 100000U}) {
        if (me != 0) {
          const numbers mine = filled(count, me);
          co_await place(c, send(mine, 0, 100 + me));
          co_await place(c, send(mine, 0));
        } else {
          std::map<std::pair<rank_t, tag_t>, int> seen;
          for (int i = 0; i < 6; ++i) {
            numbers into(count + 10, -1);
            const received got = co_await place_receive(c, recv(into, any_source, any_tag));
            ++seen[{got.source, got.tag}];
            into.resize(count);
            expect(got.count == count && into == filled(count, got.source), "its bytes");
          }
          expect(seen.size() == 6, "every message once");
          for (rank_t other = 1; other < 4; ++other)
            expect(seen[{other, 100 + other}] == 1 && seen[{other, 0}] == 1, "both of each");
        }
        co_await place(c, barrier());
      }
    }(on, r);
  });
}

BOOST_AUTO_TEST_CASE(receives_without_a_tag_claim_theirs_and_any_takes_the_rest) {
  on_every_medium(2, [](core& on, rank_t r) -> task<void> {
    return [](core& c, rank_t me) -> task<void> {
      numbers one{1}, two{2}, three{3}, a(1), b(1), d(1);
      if (me == 0) {
        // Out of turn: the ticket counts, not the start.
        ticket first = place(c, send(one, 1));
        ticket second = place(c, send(two, 1));
        ticket third = place(c, send(three, 1));
        started late = std::move(third).start();
        started middle = std::move(second).start();
        co_await place(c, barrier(), 5);
        started early = std::move(first).start();
        co_await std::move(early);
        co_await std::move(middle);
        co_await std::move(late);
      } else {
        started_receive any = place_receive(c, recv(a, any_source)).start();
        started_receive another = place_receive(c, recv(b, any_source, any_tag)).start();
        started_receive named = place_receive(c, recv(d, 0)).start();
        co_await place(c, barrier(), 5);
        co_await std::move(named);
        co_await std::move(any);
        co_await std::move(another);
        expect(d == one && a == two && b == three, "the named one is first, then in order");
      }
      co_await place(c, barrier());
    }(on, r);
  });
}

BOOST_AUTO_TEST_CASE(room_for_more_is_fine_whoever_is_first) {
  on_every_medium(2, [](core& on, rank_t r) -> task<void> {
    return [](core& c, rank_t me) -> task<void> {
      const kept_lane side{c, 8};
      for (const tag_t tag : {0, 3})
        for (const std::size_t count : {0U, 10U, 2048U, 2049U, 100000U})
          for (const bool sender_first : {true, false}) {
            numbers data = filled(count, 5), into(200000, -1);
            if (!sender_first && me == 0) co_await place(c, barrier(), 8);
            std::optional<started> op;
            if (me == 0) op.emplace(place(c, send(data, 1, tag)).start());
            std::optional<started_receive> get;
            if (sender_first) co_await place(c, barrier(), 8);
            if (me == 1) get.emplace(place_receive(c, recv(into, 0, tag)).start());
            if (!sender_first && me == 1) co_await place(c, barrier(), 8);
            if (op) co_await std::move(*op);
            if (get) {
              const received got = co_await std::move(*get);
              expect(got.count == count && into[count] == -1, "how many came");
              into.resize(count);
              expect(into == data, "what came");
            }
            co_await place(c, barrier());
          }
    }(on, r);
  });
}

BOOST_AUTO_TEST_CASE(too_little_room_or_another_type_names_both) {
  for (const medium over : media)
    for (const tag_t tag : {0, 4})
      for (const std::size_t count : {5U, 50000U})
        for (const bool sender_first : {true, false})
          for (const bool other_type : {true, false})
            for (const bool any : {true, false})
              BOOST_TEST_CONTEXT(name_of(over) << ", tag " << tag << ", " << count << ", any " << any) {
                const auto loop = engine_for(over);
                ranks all{*loop, 2, over};
                std::vector<error> ended(2);
                numbers data = filled(count, 1), into(count - 1, -1);
                std::vector<float> wrong(count, -1);
                auto body = [&](core& on, rank_t r) -> task<void> {
                  return [](core& c, rank_t me, bool sends_first, described_call mine,
                            error& end) -> task<void> {
                    if (sends_first == (me == 1)) co_await place(c, barrier(), 8);
                    started op = place(c, mine).start();
                    if (sends_first == (me == 0)) co_await place(c, barrier(), 8);
                    auto outcome = co_await as_result(std::move(op));
                    if (!outcome) end = outcome.error();
                    // Who sent a short one may have been through: it learns at its next call.
                    if (!end) end = co_await outcome_of(place(c, barrier()));
                  }(on, r, sender_first,
                                        r == 0       ? send(data, 1, tag)
                                        : other_type ? recv(wrong, any ? any_source : 0, tag)
                                                     : recv(into, any ? any_source : 0, tag),
                                        ended[static_cast<std::size_t>(r)]);
                };
                all.run(body);
                for (const error& e : ended) {
                  BOOST_TEST((e == errc::mismatch || e == errc::revoked), e.message());
                  for (const char* part : {"rank 0 called send of ", "rank 1 called recv of up to "})
                    BOOST_TEST(e.message().find(part) != std::string::npos, e.message());
                }
                BOOST_TEST((ended[1] == errc::mismatch), ended[1].message());
                BOOST_TEST((into == numbers(count - 1, -1)), "nothing was written");
              }
}

BOOST_AUTO_TEST_CASE(rings_of_long_messages_and_oneself) {
  on_every_medium(3, [](core& on, rank_t r) -> task<void> {
    return [](core& c, rank_t me) -> task<void> {
#ifdef CHORALE_SANITIZED
      constexpr std::size_t longest = 600'000;
#else
      constexpr std::size_t longest = 4u << 20;  // 16 MiB: sixteen times a pair's ring
#endif
      for (const tag_t tag : {0, 11})
        for (const std::size_t count : {std::size_t{0}, std::size_t{5}, std::size_t{3000}, longest}) {
          const numbers mine = filled(count, me);
          numbers into(count, -1);
          const rank_t from = (me + 2) % 3;
          const received got = co_await place_receive(c, sendrecv(mine, (me + 1) % 3, into, from, tag));
          expect(into == filled(count, from) && got.source == from && got.tag == tag, "the ring");
          into.assign(count, -1);
          const received own =
              co_await place_receive(c, sendrecv(mine, me, into, tag == 0 ? me : any_source, tag * 2));
          expect(into == mine && own.source == me && own.count == count, "from oneself");
        }
      // Apart too: what one sends to oneself waits for its receive like any other message.
      numbers x{1}, y{2}, a(1), b(1);
      started first = place(c, send(x, me, 1)).start();
      started second = place(c, send(y, me, 2)).start();
      co_await place_receive(c, recv(b, me, 2));
      co_await place_receive(c, recv(a, me, 1));
      co_await std::move(first);
      co_await std::move(second);
      expect(a == x && b == y, "by tag");
      co_await place(c, barrier());
    }(on, r);
  });
}

BOOST_AUTO_TEST_CASE(the_link_to_oneself_is_there_for_whichever_half_comes_first) {
  for (const medium over : media) BOOST_TEST_CONTEXT(name_of(over)) {
      const auto loop = engine_for(over);
      ranks all{*loop, 1, over};
      error after;
      numbers into(3);
      const numbers mine = filled(3, 7);
      all.run([&](core& on, rank_t) -> task<void> {
        return [](core& c, const numbers& out, numbers& in, error& closed) -> task<void> {
          started first = place(c, recv(in, 0)).start();
          co_await place(c, send(out, 0));
          co_await std::move(first);
          c.close({});
          task<error> late = outcome_of(place(c, send(out, 0)));
          closed = co_await std::move(late);
          task<error> later = outcome_of(place(c, recv(in, 0)));
          if (!closed) co_return;
          closed = co_await std::move(later);
        }(on, mine, into, after);
      });
      BOOST_TEST(into == mine);
      BOOST_TEST((after == errc::revoked), after.message());
    }
}

BOOST_AUTO_TEST_CASE(a_flood_that_nobody_reads_is_bounded_and_in_nobodys_way) {
  on_every_medium(2, [](core& on, rank_t r) -> task<void> {
    return [](core& c, rank_t me) -> task<void> {
      const kept_lane flooded{c, 70}, beside{c, 71};
      constexpr int messages = 3000;  // of 1 KiB: six times what is kept without asking
      numbers data = filled(256, 1);
      std::vector<started> running;
      if (me == 0)
        for (int i = 0; i < messages; ++i) running.push_back(place(c, send(data, 1, 5), 70).start());
      for (int i = 0; i < 20; ++i) {
        std::vector<float> sum(i < 10 ? 20 : 50000, 1);
        co_await place(c, all_reduce(sum), 71);
        expect(sum.back() == 2, "a sum beside the flood");
      }
      if (me == 0)
        expect(std::ranges::count_if(running, [](const started& op) { return op.ready(); }) < 600,
               "sends wait once the budget is used");
      if (me == 1)
        for (int i = 0; i < messages; ++i) {
          numbers into(256);
          co_await place_receive(c, recv(into, any_source, any_tag), 70);
          expect(into == data, "message " + std::to_string(i));
        }
      for (started& op : running) co_await std::move(op);
      co_await place(c, barrier());
    }(on, r);
  });
}

BOOST_AUTO_TEST_CASE(more_sends_than_are_remembered_are_refused) {
  const auto loop = engine_for(medium::shm);
  ranks all{*loop, 2, medium::shm};
  auto body = [](core& on, rank_t r) -> task<void> {
    return [](core& c, rank_t me) -> task<void> {
      if (me == 1) co_return;
      numbers data(4000);
      call what = send(data, 1, 5).what;
      std::vector<ticket> tickets;
      int places = 0;
      const kept_lane lane{c, 70};
      for (; !c.refusal(*lane, what); ++places) {
        expect(places < 100'000, "an end");
        tickets.push_back(place(c, send(data, 1, 5), 70));
      }
      expect(c.refusal(*lane, what) == errc::too_many_messages, "which refusal");
      std::vector<started> running;
      for (ticket& t : tickets) running.push_back(std::move(t).start());
      c.leave();
      expect(!c.refusal(*lane, what), "ended sends are under way no more");
    }(on, r);
  };
  all.run(body);
}

BOOST_AUTO_TEST_CASE(a_receive_from_anybody_that_is_given_up_leaves_its_lane_alone) {
  on_every_medium(2, [](core& on, rank_t r) -> task<void> {
    return [](core& c, rank_t me) -> task<void> {
      numbers into(4, -1), data{1, 2, 3, 4};
      if (me == 1) {
        const error late =
            co_await outcome_of(place(c, recv(into, any_source, 3), default_lane, deadline{5ms}));
        expect(late == errc::timed_out, late.message());
        task<void> one = [](core& at, numbers& room) -> task<void> {
          co_await place_receive(at, recv(room, any_source, any_tag));
        }(c, into);
        task<result<void>> bounded = as_result(with_timeout(5ms, std::move(one)));
        auto stopped = co_await std::move(bounded);
        expect(!stopped && stopped.error() == errc::timed_out, "stopped");
      }
      co_await place(c, barrier());  // the same lane
      if (me == 0) co_await place(c, send(data, 1, 3));
      if (me == 1) {
        co_await place_receive(c, recv(into, any_source, 3));
        expect(into == data, "what came later");
      }
      co_await place(c, barrier());
    }(on, r);
  });
}

BOOST_AUTO_TEST_CASE(a_deadline_of_a_receive_that_names_its_sender_ends_the_lane) {
  for (const medium over : media) {
    const auto loop = engine_for(over);
    ranks all{*loop, 2, over};
    std::vector<error> ended(2);
    numbers data(50000), into(50000);
    auto body = [&](core& on, rank_t r) -> task<void> {
      return [](core& c, rank_t me, numbers& mine, error& end) -> task<void> {
        if (me == 1)
          end = co_await outcome_of(place(c, recv(mine, 0, 3), default_lane, deadline{5ms}));
        else
          end = co_await outcome_of(place(c, send(mine, 1, 4)));  // nobody takes this one
      }(on, r, r == 0 ? data : into, ended[static_cast<std::size_t>(r)]);
    };
    all.run(body);
    BOOST_TEST((ended[1] == errc::timed_out), ended[1].message());
    BOOST_TEST((ended[0] == errc::revoked), ended[0].message());
    BOOST_TEST(ended[0].culprit() == 1);
  }
}

BOOST_AUTO_TEST_CASE(a_receive_from_anybody_ends_when_all_have_left_and_no_sooner) {
  const auto loop = engine_for(medium::shm);
  ranks all{*loop, 3, medium::shm};
  auto body = [&](core& on, rank_t r) -> task<void> {
    return [](ranks& every, core& c, rank_t me) -> task<void> {
      numbers data{7}, into(1);
      if (me != 2) co_return;
      started_receive any = place_receive(c, recv(into, any_source, any_tag)).start();
      started_receive named = place_receive(c, recv(into, 0, 6)).start();
      c.on_left(0, 0);
      auto lost = co_await as_result(std::move(named));
      expect(!lost && lost.error() == errc::peer_left && lost.error().culprit() == 0, "the named one");
      expect(!any.ready(), "another may still send");
      co_await place(every[1], send(data, 2, 9));
      const received got = co_await std::move(any);
      expect(got.source == 1 && got.tag == 9 && into == data, "and did");
      started_receive last = place_receive(c, recv(into, any_source)).start();
      c.on_left(1, 0);
      auto none = co_await as_result(std::move(last));
      expect(!none && none.error() == errc::peer_left, "nobody is left");
      auto later = co_await as_result(place_receive(c, recv(into, any_source)));
      expect(!later && later.error() == errc::peer_left, "nor later");
    }(all, on, r);
  };
  all.run(body);
}

BOOST_AUTO_TEST_CASE(half_of_a_sendrecv_whose_other_half_is_lost_goes_on) {
  const auto loop = engine_for(medium::shm);
  ranks all{*loop, 3, medium::shm};
  auto body = [](core& on, rank_t r) -> task<void> {
    return [](core& c, rank_t me) -> task<void> {
      numbers mine = filled(100000, me), into(100000, -1);
      if (me == 0) co_return;
      c.on_left(0, 0);
      if (me == 1) {
        const error end = co_await outcome_of(place(c, sendrecv(mine, 2, into, 0)));
        expect(end == errc::peer_left && end.culprit() == 0, end.message());
      } else {
        const received got = co_await place_receive(c, recv(into, 1));
        expect(got.count == 100000 && into == filled(100000, 1), "it came whole");
      }
    }(on, r);
  };
  all.run(body);
}

BOOST_AUTO_TEST_CASE(random_programs_of_messages) {
  const auto seed = std::random_device{}();
  std::cout << "messages: seed " << seed << '\n';
  std::mt19937 dice{seed};
  struct message {
    rank_t from, to;
    tag_t tag;
    std::uint64_t lane;
    std::size_t count;
    std::int32_t value;
  };
#ifdef CHORALE_SANITIZED
  constexpr int rounds = 10;
#else
  constexpr int rounds = 60;
#endif
  for (int round = 0; round < rounds; ++round) {
    const auto n = static_cast<rank_t>(1 + dice() % 5);
    std::vector<message> all(40);
    for (std::size_t i = 0; i < all.size(); ++i) {
      static constexpr std::size_t counts[] = {0, 1, 100, 2048, 2049, 30000};
      all[i] = {static_cast<rank_t>(dice() % n),
                static_cast<rank_t>(dice() % n),
                static_cast<tag_t>(dice() % 4),
                20 + dice() % 2,
                counts[dice() % 6],
                static_cast<std::int32_t>(1000 * i)};
    }
    const auto shuffled = static_cast<unsigned>(dice());
    const medium over = media[dice() % 3];
    const auto loop = engine_for(over);
    ranks every{*loop, n, over};
    auto body = [&](core& on, rank_t r) -> task<void> {
      return [](core& c, rank_t me, const std::vector<message>& program, unsigned order) -> task<void> {
        const kept_lane one{c, 20}, two{c, 21};
        std::vector<numbers> buffers;
        std::vector<started> sends;
        std::vector<started_receive> receives;
        std::vector<const message*> wanted;
        buffers.reserve(2 * program.size());
        std::mt19937 local{order + static_cast<unsigned>(me)};
        for (const message& m : program) {
          if (m.from == me)
            sends.push_back(
                place(c, send(buffers.emplace_back(filled(m.count, m.value)), m.to, m.tag), m.lane).start());
          if (m.to == me) wanted.push_back(&m);
          if (local() % 3 == 0) co_await yield{};
        }
        // Receives in any order; what one of a sender, lane and tag gets is told by their order among
        // themselves.
        std::ranges::shuffle(wanted, local);
        std::map<std::tuple<rank_t, std::uint64_t, tag_t>, std::vector<const message*>> expected;
        for (const message& m : program)
          if (m.to == me) expected[{m.from, m.lane, m.tag}].push_back(&m);
        std::vector<std::pair<const message*, numbers*>> pairs;
        for (const message* w : wanted) {
          auto& queue = expected[{w->from, w->lane, w->tag}];
          const message* due = queue.front();
          queue.erase(queue.begin());
          numbers& into = buffers.emplace_back(30001 + local() % 5, -1);
          receives.push_back(place_receive(c, recv(into, w->from, w->tag), w->lane).start());
          pairs.emplace_back(due, &into);
          if (local() % 3 == 0) co_await yield{};
        }
        for (std::size_t i = 0; i < receives.size(); ++i) {
          const received got = co_await std::move(receives[i]);
          const auto& [due, into] = pairs[i];
          expect(got.source == due->from && got.tag == due->tag && got.count == due->count, "what is told");
          expect((*into)[due->count] == -1, "nothing beyond it");
          into->resize(due->count);
          expect(*into == filled(due->count, due->value), "its bytes");
        }
        for (started& op : sends) co_await std::move(op);
        co_await place(c, barrier());
      }(on, r, all, shuffled);
    };
    every.run(body);
  }
}

BOOST_AUTO_TEST_SUITE_END()
