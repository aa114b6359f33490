// Windows: what operations do, in which order, against a plain reference, and how they end.
#include "../async/allocation_counter.hpp"
#include "window_rig.hpp"
#include <chorale/async/sleep.hpp>

#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <deque>
#include <random>

using namespace chorale;
using namespace chorale::testing;
using namespace std::chrono_literals;

namespace {

std::vector<std::uint8_t> pattern(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 dice{seed};
  std::vector<std::uint8_t> made(size);
  for (auto& b : made) b = static_cast<std::uint8_t>(dice());
  return made;
}

bool same(const std::byte* memory, const std::vector<std::uint8_t>& wanted) {
  return wanted.empty() || std::memcmp(memory, wanted.data(), wanted.size()) == 0;
}

/// Frames end at 65,472 bytes; messages become bulk beyond 8 KiB.
constexpr std::size_t sizes[] = {0, 1, 7, 64, 8192, 8193, 65471, 65472, 65473, 300001};
constexpr std::uint64_t room = 1 << 20;

task<void> one_of_each(windows& w, rank_t me, rank_t n, std::vector<std::string>& wrong) {
  const rank_t next = (me + 1) % n;
  const auto note = [&](bool holds, const std::string& what) {
    if (!holds) wrong.push_back("rank " + std::to_string(me) + ": " + what);
  };
  std::uint64_t step = 0;
  for (const std::size_t size : sizes) {
    const std::string named = std::to_string(size) + " bytes: ";
    const auto sent = pattern(size, static_cast<std::uint64_t>(me) * 1000 + size);
    const auto due = pattern(size, static_cast<std::uint64_t>((me + n - 1) % n) * 1000 + size);
    co_await put(w[me], next, 13, std::span{sent});
    co_await signal(w[me], next, 0);
    const std::uint64_t reached = co_await wait(w[me], 0, ++step);
    note(reached == step, named + "the counter");
    note(same(w.bytes_of(me) + 13, due), named + "what was put");
    std::vector<std::uint8_t> back(size, 0xee);
    co_await get(w[me], next, 13, std::span{back});
    note(back == sent, named + "what was got");
    // Nobody overwrites what its neighbour has not looked at yet.
    co_await signal(w[me], (me + n - 1) % n, 1);
    co_await wait(w[me], 1, step);
  }
}

struct everywhere {
  reach how;
  engine loop = engine_for(how.over);
};

task<void> add_up(windows& w, rank_t me, rank_t n) {
  std::vector<std::int32_t> ones(30000, me + 1);
  std::vector<window_started<void>> running;
  for (rank_t to = 0; to < n; ++to)
    for (int times = 0; times < 3; ++times)
      running.push_back(accumulate(w[me], to, 64, std::span<const std::int32_t>{ones}).start());
  for (auto& op : running) co_await std::move(op);
  const std::vector<float> halves(50, 0.5f);
  co_await accumulate(w[me], 0, 200000, std::span<const float>{halves});
  const std::vector<std::uint64_t> bit{std::uint64_t{1} << me};
  co_await accumulate(w[me], n - 1, 204800, std::span<const std::uint64_t>{bit}, reduction::bit_or);
  const std::vector<std::int8_t> small{static_cast<std::int8_t>(-me)};
  co_await accumulate(w[me], 0, 204801, std::span<const std::int8_t>{small}, reduction::min);
  for (rank_t to = 0; to < n; ++to) co_await signal(w[me], to, 2);
  co_await wait(w[me], 2, static_cast<std::uint64_t>(n));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(window_operations)

BOOST_AUTO_TEST_CASE(what_is_put_is_there_when_the_signal_is) {
  for (const reach how : every_reach) {
    BOOST_TEST_CONTEXT(how) {
      engine loop = engine_for(how.over);
      ranks all{loop, 3, how.over};
      windows w{all, how, room};
      std::vector<std::string> wrong;
      all.run([&](core&, rank_t r) { return one_of_each(w, r, 3, wrong); });
      for (const std::string& what : wrong) BOOST_ERROR(what);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_rank_may_be_its_own_target) {
  engine loop = engine_for(medium::shm);
  ranks all{loop, 1, medium::shm};
  windows w{all, {medium::shm, false}, room};
  std::vector<std::string> wrong;
  all.run([&](core&, rank_t r) { return one_of_each(w, r, 1, wrong); });
  BOOST_TEST(wrong.empty());
}

BOOST_AUTO_TEST_CASE(accumulates_of_all_ranks_add_up) {
  for (const reach how : every_reach) {
    BOOST_TEST_CONTEXT(how) {
      constexpr rank_t n = 4;
      engine loop = engine_for(how.over);
      ranks all{loop, n, how.over};
      windows w{all, how, room};
      all.run([&](core&, rank_t r) { return add_up(w, r, n); });
      for (rank_t r = 0; r < n; ++r) {
        const auto* sums = reinterpret_cast<const std::int32_t*>(w.bytes_of(r) + 64);
        BOOST_TEST(std::count(sums, sums + 30000, 30) == 30000);
        BOOST_TEST(sums[-1] == 0);
        BOOST_TEST(sums[30000] == 0);
      }
      BOOST_TEST(*reinterpret_cast<const float*>(w.bytes_of(0) + 200000) == 2.0f);
      BOOST_TEST(*reinterpret_cast<const std::uint64_t*>(w.bytes_of(n - 1) + 204800) == 15u);
      BOOST_TEST(*reinterpret_cast<const std::int8_t*>(w.bytes_of(0) + 204801) == -3);
    }
  }
}

// Random programs: each rank has bytes of its own in every part, which it puts and gets, and all accumulate
// into the rest.
namespace {

constexpr std::size_t own_bytes = 150000;
constexpr std::size_t shared_elements = 5000;

struct reference {
  explicit reference(rank_t n)
      : own(static_cast<std::size_t>(n) * static_cast<std::size_t>(n), std::vector<std::uint8_t>(own_bytes)),
        shared(static_cast<std::size_t>(n), std::vector<std::int32_t>(shared_elements)),
        counters(static_cast<std::size_t>(n)) {}
  std::vector<std::vector<std::uint8_t>> own;  // by target and origin
  std::vector<std::vector<std::int32_t>> shared;
  std::vector<std::array<std::uint64_t, 7>> counters;
};

struct random_operation {
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint8_t> wanted;  // of a get
  std::vector<std::int32_t> values;
  std::optional<window_started<void>> running;
};

class random_program {
 public:
  random_program(windows& w, reference& plain, rank_t me, rank_t n, std::uint64_t seed)
      : w_{w},
        plain_{plain},
        me_{me},
        n_{n},
        dice_{seed * 131 + static_cast<std::uint64_t>(me)},
        shared_at_{shared_at(n)} {}

  task<void> run() {
    for (int round = 0; round < 6; ++round) {
      std::deque<random_operation> batch(below(60));
      for (random_operation& each : batch) begin(each);
      if (!batch.empty() && below(2) == 0) {  // one of them in the middle first
        random_operation& early = batch[below(batch.size())];
        co_await *std::exchange(early.running, std::nullopt);
      }
      for (random_operation& each : batch) {
        if (each.running) co_await *std::move(each.running);
        if (each.bytes != each.wanted && !each.wanted.empty()) ++wrong;
      }
    }
    for (rank_t to = 0; to < n_; ++to) co_await signal(w_[me_], to, 7);
    co_await wait(w_[me_], 7, static_cast<std::uint64_t>(n_));
  }
  static std::size_t shared_at(rank_t n) { return (own_bytes * static_cast<std::size_t>(n) + 63) / 64 * 64; }
  int wrong = 0;

 private:
  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : dice_() % limit; }
  void begin(random_operation& o) {
    const auto to = static_cast<rank_t>(below(static_cast<std::size_t>(n_)));
    auto& theirs =
        plain_
            .own[static_cast<std::size_t>(to) * static_cast<std::size_t>(n_) + static_cast<std::size_t>(me_)];
    const std::size_t size = below(below(3) == 0 ? own_bytes : 300);
    const std::size_t at = below(own_bytes - size + 1);
    const std::uint64_t offset = own_bytes * static_cast<std::size_t>(me_) + at;
    const auto here = theirs.begin() + static_cast<std::ptrdiff_t>(at);
    switch (below(4)) {
      case 0:
        o.bytes = pattern(size, dice_());
        std::ranges::copy(o.bytes, here);
        o.running = put(w_[me_], to, offset, std::span<const std::uint8_t>{o.bytes}).start();
        return;
      case 1:
        o.wanted.assign(here, here + static_cast<std::ptrdiff_t>(size));
        o.bytes.resize(size);
        o.running = get(w_[me_], to, offset, std::span{o.bytes}).start();
        return;
      case 2: {
        const std::size_t first = below(shared_elements);
        o.values.resize(below(shared_elements - first + 1));
        for (std::size_t i = 0; i < o.values.size(); ++i) {
          o.values[i] = static_cast<std::int32_t>(dice_() & 0xffff);
          plain_.shared[static_cast<std::size_t>(to)][first + i] += o.values[i];
        }
        o.running =
            accumulate(w_[me_], to, shared_at_ + first * 4, std::span<const std::int32_t>{o.values}).start();
        return;
      }
      default: {
        const auto slot = static_cast<std::uint32_t>(below(7));
        const std::uint64_t add = below(1000);
        plain_.counters[static_cast<std::size_t>(to)][slot] += add;
        o.running = signal(w_[me_], to, slot, add).start();
      }
    }
  }

  windows& w_;
  reference& plain_;
  rank_t me_;
  rank_t n_;
  std::mt19937_64 dice_;
  std::size_t shared_at_;
};

void check_random_program(reach how, std::uint64_t seed) {
  const auto n = static_cast<rank_t>(2 + seed % 3);
  const std::size_t shared_at = random_program::shared_at(n);
  engine loop = engine_for(how.over);
  ranks all{loop, n, how.over, {}, seed};
  windows w{all, how, shared_at + shared_elements * 4};
  reference plain{n};
  std::vector<std::unique_ptr<random_program>> programs;
  for (rank_t r = 0; r < n; ++r) programs.push_back(std::make_unique<random_program>(w, plain, r, n, seed));
  all.run([&](core&, rank_t r) { return programs[static_cast<std::size_t>(r)]->run(); });
  for (rank_t r = 0; r < n; ++r) {
    const auto target = static_cast<std::size_t>(r);
    BOOST_TEST(programs[target]->wrong == 0, "gets of rank " << r << " gave other bytes");
    for (std::size_t from = 0; from < static_cast<std::size_t>(n); ++from)
      BOOST_TEST(
          same(w.bytes_of(r) + own_bytes * from, plain.own[target * static_cast<std::size_t>(n) + from]),
          "rank " << r << " has other bytes of rank " << from);
    BOOST_TEST(std::memcmp(w.bytes_of(r) + shared_at, plain.shared[target].data(), shared_elements * 4) == 0,
               "sums at rank " << r);
    for (std::size_t slot = 0; slot < 7; ++slot)
      BOOST_TEST(w[r]->part(r).counters[slot].value.load() == plain.counters[target][slot]);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(random_programs_do_what_a_plain_reference_does) {
  const char* given = std::getenv("CHORALE_TEST_SEED");
  const std::uint64_t first = given ? std::strtoull(given, nullptr, 10) : 1;
#if defined(CHORALE_SANITIZED)
  constexpr std::uint64_t seeds = 2;
#else
  constexpr std::uint64_t seeds = 8;
#endif
  for (const reach how : every_reach)
    for (std::uint64_t seed = first; seed < first + seeds; ++seed)
      BOOST_TEST_CONTEXT(how << ", CHORALE_TEST_SEED=" << seed) { check_random_program(how, seed); }
}

BOOST_AUTO_TEST_CASE(operations_of_known_kinds_take_nothing_from_the_heap) {
  for (const reach how : {reach{medium::shm, true}, reach{medium::shm, false}, reach{medium::tcp, false}}) {
    BOOST_TEST_CONTEXT(how) {
      engine loop = engine_for(how.over);
      ranks all{loop, 2, how.over};
      windows w{all, how, room};
      std::uint64_t taken = ~std::uint64_t{0};
      const auto body = [&](core&, rank_t me) -> task<void> {
        return [](windows& on, rank_t r, std::uint64_t& out) -> task<void> {
          const std::vector<float> mine(30000, 1);
          std::vector<float> back(30000);
          for (std::uint64_t step = 1; step <= 20; ++step) {
            const std::uint64_t before = heap_allocations();
            co_await put(on[r], 1 - r, 0, std::span<const float>{mine});
            co_await accumulate(on[r], 1 - r, 200000, std::span<const float>{mine});
            co_await signal(on[r], 1 - r, 0);
            co_await wait(on[r], 0, step);
            co_await get(on[r], 1 - r, 0, std::span{back});
            if (step > 5) out = heap_allocations() - before;
          }
        }(w, me, taken);
      };
      all.run(body);
      BOOST_TEST(taken == 0u);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
