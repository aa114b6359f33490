// Who goes on after a failure: one decision, published once.
#include "support.hpp"
#include <chorale/async/with_environment.hpp>

#include <boost/test/unit_test.hpp>
#include <sys/socket.h>

#include <atomic>
#include <latch>
#include <mutex>
#include <random>
#include <set>

namespace chorale::testing {
namespace {

using std::chrono::milliseconds;

struct decision {
  rank_t origin;
  rank_t rank;
  rank_t size;
  std::uint64_t epoch;
  std::uint64_t nonce;
  bool connected;
};

bool fully_connected(const world& w) {
  for (const peer& p : w.peers)
    if (p.rank != w.rank && !p.mate && p.data.empty()) return false;
  return true;
}

decision describe(const world& w) { return {w.origin, w.rank, w.size, w.epoch, w.nonce, fully_connected(w)}; }

class decisions {
 public:
  void add(const decision& d) {
    const std::lock_guard lock{guard_};
    all_.push_back(d);
  }
  // All survivors are in one epoch with one nonce, ranked in the order of the launch.
  void check(std::size_t survivors, std::uint64_t epoch) {
    BOOST_TEST_REQUIRE(all_.size() == survivors);
    std::sort(all_.begin(), all_.end(),
              [](const decision& a, const decision& b) { return a.origin < b.origin; });
    for (std::size_t i = 0; i < all_.size(); ++i) {
      BOOST_TEST(all_[i].rank == static_cast<rank_t>(i));
      BOOST_TEST(all_[i].size == static_cast<rank_t>(survivors));
      BOOST_TEST(all_[i].epoch == epoch);
      BOOST_TEST(all_[i].nonce == all_[0].nonce);
      BOOST_TEST(all_[i].connected);
    }
  }

 private:
  std::mutex guard_;
  std::vector<decision> all_;
};

// Ends as a killed process does: the connection closes without a goodbye.
void die(world& w) { ::shutdown(w.rendezvous.fd(), SHUT_RDWR); }

BOOST_AUTO_TEST_SUITE(resets)

BOOST_AUTO_TEST_CASE(survivors_agree_and_are_connected) {
  for (const rank_t victim : {0, 2, 3}) {
    decider place{4};
    std::latch connected{4};
    decisions made;
    run_ranks(4, [&](rank_t rank) {
      engine loop;
      world w = loop.run(bootstrap(place.config(rank, 4))).value();
      connected.arrive_and_wait();
      if (rank == victim) return die(w);
      const error loss = loop.run(w.rendezvous.first_loss(w.epoch));
      if (loss.code() != errc::peer_lost || loss.culprit() != victim) throw std::logic_error{loss.message()};
      const world next = loop.run(reset_world(std::move(w), {victim})).value();
      made.add(describe(next));
    });
    made.check(3, 2);
  }
}

BOOST_AUTO_TEST_CASE(a_reset_does_not_wait_out_the_grace_when_all_have_spoken) {
  decider place{3};
  std::latch connected{3};
  std::atomic<std::int64_t> slowest{0};
  run_ranks(3, [&](rank_t rank) {
    engine loop;
    world w = loop.run(bootstrap(place.config(rank, 3))).value();
    connected.arrive_and_wait();
    if (rank == 1) return die(w);
    (void)loop.run(w.rendezvous.first_loss(w.epoch));
    const time_point asked = steady_now();
    (void)loop.run(reset_world(std::move(w), {1})).value();
    const auto took = std::chrono::duration_cast<milliseconds>(steady_now() - asked).count();
    if (took > slowest) slowest = took;
  });
  BOOST_TEST_MESSAGE("reset of 3 ranks: " << slowest << " ms");
  BOOST_TEST(slowest < 250);
}

BOOST_AUTO_TEST_CASE(who_is_absent_is_excluded_and_told_later) {
  decider place{3};
  decisions made;
  std::string said;
  std::atomic<int> waiting{2};
  std::mutex guard;
  run_ranks(3, [&](rank_t rank) {
    engine loop;
    world w = loop.run(bootstrap(place.config(rank, 3))).value();
    if (rank != 2) {
      made.add(describe(loop.run(reset_world(std::move(w), {2})).value()));
      --waiting;
      waiting.notify_all();
      return;
    }
    for (int left = waiting; left != 0; left = waiting) waiting.wait(left);
    const auto late = loop.run(reset_world(std::move(w), {}));
    const std::lock_guard lock{guard};
    if (!late && late.error().code() == errc::excluded) said = late.error().message();
  });
  made.check(2, 2);
  BOOST_TEST((said.find("epoch 2 began without rank 2") != std::string::npos));
}

BOOST_AUTO_TEST_CASE(believed_dead_but_asking_is_alive) {
  decider place{3};
  decisions made;
  run_ranks(3, [&](rank_t rank) {
    engine loop;
    world w = loop.run(bootstrap(place.config(rank, 3))).value();
    made.add(describe(loop.run(reset_world(std::move(w), {(rank + 1) % 3})).value()));
  });
  made.check(3, 2);
}

BOOST_AUTO_TEST_CASE(resets_follow_each_other_down_to_one) {
  decider place{5};
  std::latch connected{5};
  std::atomic<int> wrong{0};
  run_ranks(5, [&](rank_t rank) {
    engine loop;
    world w = loop.run(bootstrap(place.config(rank, 5))).value();
    connected.arrive_and_wait();
    // The highest rank of each epoch ends.
    while (w.rank != w.size - 1) {
      const rank_t last = w.size - 1;
      (void)loop.run(w.rendezvous.first_loss(w.epoch));
      w = loop.run(reset_world(std::move(w), {last})).value();
      // An epoch whose last rank ended while the others still connected is skipped.
      if (w.size > last || w.epoch != static_cast<std::uint64_t>(6 - w.size) || w.origin != rank ||
          !fully_connected(w))
        ++wrong;
    }
    if (w.size > 1) die(w);
  });
  BOOST_TEST(wrong == 0);
}

BOOST_AUTO_TEST_CASE(a_goodbye_is_no_loss_and_no_member) {
  decider place{3};
  decisions made;
  run_ranks(3, [&](rank_t rank) {
    engine loop;
    world w = loop.run(bootstrap(place.config(rank, 3))).value();
    if (rank == 0) return;  // leaves in good order
    made.add(describe(loop.run(reset_world(std::move(w), {})).value()));
  });
  made.check(2, 2);
}

BOOST_AUTO_TEST_CASE(without_its_decider_a_reset_fails) {
  decider place{2};
  std::atomic<int> joined{0};
  std::atomic<int> told{0};
  run_ranks(3, [&](rank_t rank) {
    if (rank == 2) {
      for (int n = joined; n != 2; n = joined) joined.wait(n);
      return place.end();
    }
    engine loop;
    world w = loop.run(bootstrap(place.config(rank, 2))).value();
    ++joined;
    joined.notify_all();
    const error gone = loop.run(w.rendezvous.first_loss(w.epoch));
    const auto next = loop.run(reset_world(std::move(w), {}));
    if (gone.code() == errc::no_decider && !next && next.error().code() == errc::no_decider) ++told;
  });
  BOOST_TEST(told == 2);
}

BOOST_AUTO_TEST_CASE(random_deaths_leave_one_answer) {
  std::random_device device;
  const unsigned seed = device();
  BOOST_TEST_MESSAGE("seed " << seed);
  std::mt19937 random{seed};
  for (int round = 0; round < 4; ++round) {
    const auto size = static_cast<rank_t>(3 + random() % 5);
    std::set<rank_t> victims;
    while (victims.empty()) {
      for (rank_t r = 0; r < size; ++r)
        if (random() % 3 == 0 && victims.size() + 1 < static_cast<std::size_t>(size)) victims.insert(r);
    }
    decider place{size};
    std::latch connected{size};
    decisions made;
    run_ranks(size, [&](rank_t rank) {
      engine loop;
      world w = loop.run(bootstrap(place.config(rank, size))).value();
      connected.arrive_and_wait();
      if (victims.contains(rank)) return die(w);
      (void)loop.run(w.rendezvous.first_loss(w.epoch));
      made.add(describe(loop.run(reset_world(std::move(w), {})).value()));
    });
    made.check(static_cast<std::size_t>(size) - victims.size(), 2);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace chorale::testing
