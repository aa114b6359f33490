// Exchanges among host mates: bytes, descriptors, barriers, shared memory.
#include "support.hpp"
#include <chorale/async/io.hpp>
#include <chorale/async/with_environment.hpp>
#include <chorale/transport/bootstrap/segment.hpp>

#include <boost/test/unit_test.hpp>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

namespace chorale::testing {
namespace {

template <class F>
void on_mates(rank_t size, F body) {
  bootstrap_all(size, fresh_unix_root(), nullptr, [&](engine& loop, rank_t, result<world> outcome) {
    world w = std::move(outcome).value();
    host_exchange among{w};
    loop.run(body(among, w));
  });
  BOOST_TEST(true, "every rank found what it had to");
}

// Ranks are threads: what one finds wrong is thrown there and fails the test here.
void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error{what};
}

BOOST_AUTO_TEST_SUITE(exchanges)

BOOST_AUTO_TEST_CASE(bytes_of_every_size_reach_everybody) {
  on_mates(4, [](host_exchange& among, world& w) -> task<void> {
    // Beyond any socket buffer as well: sends and receives overlap.
    for (const std::size_t base : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{3} << 20}) {
      const std::vector<std::byte> mine(base * static_cast<std::size_t>(w.rank + 1), std::byte(w.rank));
      auto gathering = among.all_gather_bytes(mine);
      const auto all = co_await std::move(gathering);
      const auto& got = all.value();
      require(got.size() == 4, "four contributions");
      for (std::size_t r = 0; r < 4; ++r)
        require(got[r] == std::vector<std::byte>(base * (r + 1), std::byte(r)), "contribution");
    }
  });
}

BOOST_AUTO_TEST_CASE(only_mates_take_part) {
  bootstrap_all(
      5, fresh_unix_root(), [](bootstrap_config& c) { c.host_id = c.rank % 2 ? "odd" : "even"; },
      [](engine& loop, rank_t rank, result<world> outcome) {
        world w = std::move(outcome).value();
        host_exchange among{w};
        require(among.mates() == (rank % 2 ? std::vector<rank_t>{1, 3} : std::vector<rank_t>{0, 2, 4}),
                "mates");
        require(among.mates()[among.position()] == rank, "position");
        require(loop.run(among.barrier()).has_value(), "barrier");
      });
}

BOOST_AUTO_TEST_CASE(segments_are_shared_sealed_and_zeroed) {
  on_mates(3, [](host_exchange& among, world& w) -> task<void> {
    auto exchanging = exchange_segments(among, 4096U * static_cast<std::size_t>(w.rank + 1));
    auto segments = co_await std::move(exchanging);
    auto& all = segments.value();
    for (std::size_t i = 0; i < all.size(); ++i) {
      require(all[i].size() == 4096U * (i + 1), "size");
      require(::fcntl(all[i].fd(), F_ADD_SEALS, F_SEAL_WRITE) != 0, "sealed against sealing");
      require(::ftruncate(all[i].fd(), 1) != 0, "sealed against shrinking");
      require(all[i].data()[all[i].size() - 1] == std::byte{0}, "zeroed");
    }
    all[among.position()].data()[static_cast<std::size_t>(w.rank)] = std::byte(w.rank + 1);
    auto meeting = among.barrier();
    (void)(co_await std::move(meeting));
    for (std::size_t i = 0; i < all.size(); ++i) require(all[i].data()[i] == std::byte(i + 1), "shared");
  });
}

BOOST_AUTO_TEST_CASE(one_segment_for_all) {
  on_mates(3, [](host_exchange& among, world& w) -> task<void> {
    auto sharing = share_segment(among, 8192);
    const auto made = co_await std::move(sharing);
    const auto& shared = made.value();
    shared.data()[w.rank] = std::byte{9};
    auto meeting = among.barrier();
    (void)(co_await std::move(meeting));
    for (int r = 0; r < 3; ++r) require(shared.data()[r] == std::byte{9}, "one memory");
  });
}

BOOST_AUTO_TEST_CASE(different_sizes_of_a_common_segment_are_a_mismatch) {
  std::atomic<int> told{0};
  on_mates(2, [&](host_exchange& among, world& w) -> task<void> {
    auto sharing = share_segment(among, w.rank == 0 ? 4096 : 8192);
    const auto made = co_await std::move(sharing);
    if (!made && made.error().code() == errc::mismatch) ++told;
  });
  BOOST_TEST(told == 2);
}

BOOST_AUTO_TEST_CASE(doorbells_ring_at_the_neighbour) {
  on_mates(3, [](host_exchange& among, world& w) -> task<void> {
    const unique_fd own{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    auto exchanging = exchange_doorbells(among, own.get());
    const auto bells = co_await std::move(exchanging);
    const std::uint64_t one = 1;
    const auto next = static_cast<std::size_t>((w.rank + 1) % 3);
    require(::write(bells.value()[next].get(), &one, sizeof one) == sizeof one, "ring");
    const auto rung = co_await poll_fd(own.get(), POLLIN);
    require(rung.has_value(), "rung");
  });
}

BOOST_AUTO_TEST_CASE(different_calls_are_a_mismatch) {
  std::atomic<int> told{0};
  on_mates(2, [&](host_exchange& among, world& w) -> task<void> {
    errc code = errc::ok;
    if (w.rank == 0) {
      auto meeting = among.barrier();
      const auto met = co_await std::move(meeting);
      if (!met) code = met.error().code();
    } else {
      auto gathering = among.all_gather_bytes({});
      const auto got = co_await std::move(gathering);
      if (!got) code = got.error().code();
    }
    if (code == errc::mismatch) ++told;
  });
  BOOST_TEST(told == 2);
}

BOOST_AUTO_TEST_CASE(a_mate_that_ends_is_named) {
  on_mates(3, [](host_exchange& among, world& w) -> task<void> {
    if (w.rank == 1) co_return;
    auto meeting = with_timeout(std::chrono::seconds{5}, among.barrier());
    const auto met = co_await std::move(meeting);
    require(!met && met.error().code() == errc::link_lost && met.error().culprit() == 1, "names rank 1");
  });
}

BOOST_AUTO_TEST_CASE(an_unsealed_or_shorter_memory_is_not_mapped) {
  unique_fd unsealed{::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  BOOST_TEST_REQUIRE(::ftruncate(unsealed.get(), 4096) == 0);
  BOOST_TEST(!segment::map(unique_fd{::dup(unsealed.get())}, 4096).has_value());
  const auto sealed = segment::create(4096);
  BOOST_TEST(!segment::map(unique_fd{::dup(sealed.value().fd())}, 8192).has_value());
  BOOST_TEST(segment::map(unique_fd{::dup(sealed.value().fd())}, 4096).has_value());
  BOOST_TEST(!segment::create(0).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace chorale::testing
