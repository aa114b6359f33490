// A window between two threads with an engine each, as between two processes: what one puts the other sees
// when the counter says so, and who sleeps is woken. For the thread sanitizer.
#include "window_rig.hpp"

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <exception>
#include <thread>

using namespace chorale;
using namespace chorale::testing;

namespace {

constexpr std::uint64_t part_bytes = 64 * 1024;

/// What both threads set up before they start, and nobody changes afterwards.
struct shared_memory {
  shared_memory() {
    for (int r = 0; r < 2; ++r) {
      for (auto* list : {&segments, &parts}) {
        const std::size_t size =
            list == &segments ? shm_segment::bytes(2) : window_part::segment_bytes(part_bytes, 8);
        list->emplace_back(static_cast<std::byte*>(std::aligned_alloc(64, (size + 63) / 64 * 64)), std::free);
        std::memset(list->back().get(), 0, size);
      }
      views.push_back(shm_segment::initialise(segments.back().get(), 2));
    }
  }
  std::vector<std::unique_ptr<std::byte, void (*)(void*)>> segments;
  std::vector<std::unique_ptr<std::byte, void (*)(void*)>> parts;
  std::vector<shm_segment> views;
};

task<void> play(window_ptr on, rank_t me, std::uint64_t rounds) {
  const rank_t other = 1 - me;
  std::vector<std::uint64_t> row(512);
  const std::vector<std::uint32_t> ones(300, 1);
  const std::byte* const mine = on->part(me).memory;
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    std::ranges::fill(row, round * 2 + static_cast<std::uint64_t>(me));
    co_await put(on, other, 0, std::span<const std::uint64_t>{row});
    co_await accumulate(on, 0, 32768, std::span<const std::uint32_t>{ones});
    co_await signal(on, other, 0);
    co_await wait(on, 0, round);
    std::ranges::fill(row, round * 2 + static_cast<std::uint64_t>(other));
    if (std::memcmp(mine, row.data(), row.size() * 8) != 0) throw std::runtime_error{"other bytes were put"};
    co_await signal(on, other, 1);
    co_await wait(on, 1, round);
  }
}

void live(rank_t me, shared_memory& memory, engine& loop, int other_bell, std::uint64_t rounds) {
  const auto own = static_cast<std::uint32_t>(me);
  const std::uint32_t other = 1 - own;
  core_setup setup;
  setup.loop = &loop;
  setup.rank = me;
  setup.size = 2;
  setup.wires.resize(2);
  setup.lines.resize(2);
  auto wire = std::make_unique<shm_wire>(
      shm_wire_setup{memory.views[own], memory.views[other], own, other, other_bell});
  setup.lines[other] = wire.get();
  setup.wires[other] = std::move(wire);
  core inside{std::move(setup)};
  std::vector<window_part> parts;
  for (auto& part : memory.parts) parts.push_back(window_part::in(part.get(), part_bytes, 8));
  auto side = std::make_shared<window_side>(inside, **inside.open_lane(window_lane), std::move(parts),
                                            std::vector<segment>{});
  loop.run(play(side, me, rounds));
  side->close();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(window_threads)

BOOST_AUTO_TEST_CASE(two_threads_put_accumulate_signal_and_wake_each_other) {
#if defined(CHORALE_SANITIZED)
  constexpr std::uint64_t rounds = 300;
#else
  constexpr std::uint64_t rounds = 3000;
#endif
  shared_memory memory;
  engine first{engine_options{backend_kind::automatic, duration{0}}};
  engine second{engine_options{backend_kind::automatic, duration{0}}};
  std::exception_ptr wrong;
  std::thread other{[&] {
    try {
      live(1, memory, second, first.io().doorbell(), rounds);
    } catch (...) {
      wrong = std::current_exception();
    }
  }};
  BOOST_CHECK_NO_THROW(live(0, memory, first, second.io().doorbell(), rounds));
  other.join();
  BOOST_CHECK(!wrong);
  const auto* sums = reinterpret_cast<const std::uint32_t*>(
      window_part::in(memory.parts[0].get(), part_bytes, 8).memory + 32768);
  BOOST_TEST(std::count(sums, sums + 300, 2 * rounds) == 300);
}

BOOST_AUTO_TEST_SUITE_END()
