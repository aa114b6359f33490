// Messages between two ranks, barriers, and lanes used in different orders.
#include "rig.hpp"

#include <boost/test/unit_test.hpp>

#include <numeric>
#include <random>

using namespace chorale;
using namespace chorale::testing;

namespace {

constexpr medium media[] = {medium::shm, medium::tcp};
engine_options no_spin{backend_kind::automatic, duration{0}};

}  // namespace

BOOST_AUTO_TEST_SUITE(messages)

BOOST_AUTO_TEST_CASE(every_size_both_ways_at_once) {
  for (const medium over : media)
    for (const std::size_t count : {0, 1, 8, 9, 2047, 2048, 2049, 100000, 1000000}) {
      engine loop{no_spin};
      ranks all{loop, 2, over};
      std::vector<std::vector<float>> out(2, std::vector<float>(count)), in(2, std::vector<float>(count, -1));
      for (auto& v : out) std::iota(v.begin(), v.end(), &v == &out[0] ? 0.0F : 1000.0F);
      auto body = [&](core& on, rank_t r) -> task<void> {
        return [](core& c, rank_t peer, std::span<float> from, std::span<float> into) -> task<void> {
          started sending = place(c, message_of(from, peer, true)).start();
          started receiving = place(c, message_of(into, peer, false)).start();
          co_await std::move(receiving);
          co_await std::move(sending);
        }(on, 1 - r, out[static_cast<std::size_t>(r)], in[static_cast<std::size_t>(r)]);
      };
      all.run(body);
      BOOST_TEST((in[0] == out[1]));
      BOOST_TEST((in[1] == out[0]));
    }
}

BOOST_AUTO_TEST_CASE(messages_that_come_long_before_their_receives) {
  for (const medium over : media) {
    engine loop{no_spin};
    ranks all{loop, 2, over};
    constexpr int messages = 400;
    std::vector<std::vector<float>> sent, got;
    for (int i = 0; i < messages; ++i) {
      const std::size_t count = static_cast<std::size_t>(i) * 37 % 3000;
      sent.emplace_back(count, static_cast<float>(i));
      got.emplace_back(count, -1.0F);
    }
    auto body = [&](core& on, rank_t r) -> task<void> {
      return [](core& c, rank_t rank, std::vector<std::vector<float>>& from,
                std::vector<std::vector<float>>& into) -> task<void> {
        std::vector<started> running;
        if (rank == 0)
          for (auto& m : from) running.push_back(place(c, message_of(m, 1, true)).start());
        co_await place(c, barrier_call());
        if (rank == 1)
          for (auto& m : into) running.push_back(place(c, message_of(m, 0, false)).start());
        for (auto& op : running) co_await std::move(op);
      }(on, r, sent, got);
    };
    all.run(body);
    BOOST_TEST((sent == got));
  }
}

BOOST_AUTO_TEST_CASE(barriers_hold_everybody) {
  for (const medium over : media)
    for (const rank_t n : {1, 2, 3, 7}) {
      engine loop{no_spin};
      ranks all{loop, n, over};
      int arrived = 0;
      bool early = false;
      auto body = [&](core& on, rank_t) -> task<void> {
        return [](core& c, rank_t everybody, int& count, bool& too_early) -> task<void> {
          for (int round = 1; round <= 50; ++round) {
            ++count;
            co_await place(c, barrier_call());
            too_early = too_early || count < round * everybody;
            co_await place(c, barrier_call());
          }
        }(on, n, arrived, early);
      };
      all.run(body);
      BOOST_TEST(!early);
    }
}

BOOST_AUTO_TEST_CASE(lanes_in_opposite_orders_with_large_messages) {
  for (const medium over : media) {
    engine loop{no_spin};
    const rank_t n = 3;
    ranks all{loop, n, over};
#ifdef CHORALE_SANITIZED
    constexpr std::size_t lanes = 5, count = 1u << 19;  // 2 MiB: twice a pair's ring
#else
    constexpr std::size_t lanes = 20, count = 1u << 20;  // 4 MiB: four times a pair's ring
#endif
    std::vector<std::vector<std::vector<float>>> data(
        n, std::vector<std::vector<float>>(lanes, std::vector<float>(count, 1)));
    auto body = [&](core& on, rank_t r) -> task<void> {
      return [](core& c, rank_t rank, std::vector<std::vector<float>>& mine) -> task<void> {
        std::vector<std::size_t> order(mine.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::shuffle(order.begin(), order.end(), std::mt19937{static_cast<std::uint32_t>(rank)});
        std::vector<started> running;
        for (const std::size_t i : order)
          running.push_back(place(c, all_reduce_of(mine[i], mine[i]), 100 + i).start());
        for (auto& op : running) co_await std::move(op);
      }(on, r, data[static_cast<std::size_t>(r)]);
    };
    all.run(body);
    for (const auto& of_rank : data)
      for (const auto& v : of_rank) BOOST_TEST((v == std::vector<float>(count, static_cast<float>(n))));
  }
}

BOOST_AUTO_TEST_CASE(thousands_of_keys_one_after_another) {
  engine loop{no_spin};
  ranks all{loop, 2, medium::shm};
  auto body = [&](core& on, rank_t) -> task<void> {
    return [](core& c) -> task<void> {
      for (std::uint64_t key = 1; key <= 20000; ++key) {
        float x = static_cast<float>(key);
        co_await place(c, all_reduce_of(std::span{&x, 1}, std::span{&x, 1}), key);
        if (x != 2 * static_cast<float>(key)) throw std::runtime_error{"a wrong sum"};
      }
    }(on);
  };
  all.run(body);
}

BOOST_AUTO_TEST_SUITE_END()
