// all_reduce among ranks of one process: every algorithm, size and medium against a plain sum.
#include "rig.hpp"
#include <chorale/api/description.hpp>

#include <boost/test/unit_test.hpp>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <span>

using namespace chorale;
using namespace chorale::testing;

namespace {

struct job {
  std::vector<std::vector<float>> in;
  std::vector<std::vector<float>> out;
  bool in_place = false;
};

task<void> reduce_once(core& on, std::span<const float> in, std::span<float> out) {
  co_await place(on, all_reduce_of(in, out));
}

void check_case(rank_t n, std::size_t count, medium over, selection_settings settings, bool in_place,
                std::uint32_t seed) {
  BOOST_TEST_CONTEXT("ranks " << n << ", count " << count << ", " << name_of(over) << ", algorithm "
                              << name_of(settings.forced_for(collective_kind::all_reduce))
                              << (in_place ? ", in place" : "") << ", seed " << seed) {
    engine loop{engine_options{backend_kind::automatic, duration{0}}};
    ranks all{loop, n, over, settings};
    std::mt19937 random{seed};
    std::uniform_real_distribution<float> values{-1, 1};
    job work;
    std::vector<double> exact(count), magnitude(count);
    for (rank_t r = 0; r < n; ++r) {
      auto& in = work.in.emplace_back(count);
      for (std::size_t i = 0; i < count; ++i) {
        in[i] = values(random);
        exact[i] += static_cast<double>(in[i]);
        magnitude[i] += std::abs(static_cast<double>(in[i]));
      }
      work.out.emplace_back(count, std::nanf(""));
    }
    const auto original = work.in;
    auto body = [&](core& on, rank_t r) {
      auto& in = work.in[static_cast<std::size_t>(r)];
      auto& out = in_place ? in : work.out[static_cast<std::size_t>(r)];
      return reduce_once(on, in, out);
    };
    all.run(body);
    const auto& result = in_place ? work.in : work.out;
    for (rank_t r = 1; r < n && count != 0; ++r)
      BOOST_TEST(std::memcmp(result[0].data(), result[static_cast<std::size_t>(r)].data(),
                             count * sizeof(float)) == 0,
                 "rank " << r << " has another result than rank 0");
    if (!in_place) BOOST_TEST((work.in == original), "the input was written");
    for (std::size_t i = 0; i < count; ++i) {
      const double bound = n * 0x1p-24 * magnitude[i];
      const double off = std::abs(static_cast<double>(result[0][i]) - exact[i]);
      if (!(off <= bound)) {
        BOOST_ERROR("element " << i << " is " << result[0][i] << ", not " << exact[i]);
        break;
      }
    }
    if (settings.mode == reproducibility::deterministic ||
        settings.forced_for(collective_kind::all_reduce) == algorithm_kind::slice_owner) {
      for (std::size_t i = 0; i < count; ++i) {
        float fold = original[0][i];
        for (rank_t r = 1; r < n; ++r) fold += original[static_cast<std::size_t>(r)][i];
        if (std::memcmp(&fold, &result[0][i], sizeof fold) != 0) {
          BOOST_ERROR("element " << i << " is no left fold in rank order");
          break;
        }
      }
    }
  }
}

#ifdef CHORALE_SANITIZED
constexpr int random_cases = 20;
constexpr rank_t most_ranks = 3;
constexpr std::size_t large_bytes = 1u << 20;
#else
constexpr int random_cases = 300;
constexpr rank_t most_ranks = 5;
constexpr std::size_t large_bytes = 8u << 20;
#endif

constexpr algorithm_kind algorithms[] = {algorithm_kind::automatic, algorithm_kind::tiny,
                                         algorithm_kind::recursive_doubling, algorithm_kind::slice_owner,
                                         algorithm_kind::ring};

}  // namespace

BOOST_AUTO_TEST_SUITE(all_reduce)

BOOST_AUTO_TEST_CASE(a_few_sizes_on_every_algorithm_and_medium) {
  for (const medium over : {medium::shm, medium::tcp, medium::mixed})
    for (const algorithm_kind kind : algorithms)
      for (rank_t n = 1; n <= most_ranks; ++n)
        for (const std::size_t count : {0, 1, 7, 8, 9, 1000, 3000, 70000}) {
          selection_settings settings;
          settings.force(kind);
          check_case(n, static_cast<std::size_t>(count), over, settings, false, 1);
        }
}

BOOST_AUTO_TEST_CASE(random_calls) {
  const auto seed = static_cast<std::uint32_t>(std::random_device{}());
  BOOST_TEST_MESSAGE("seed " << seed);
  std::mt19937 random{seed};
  for (int i = 0; i < random_cases; ++i) {
    const auto pick = [&](auto... options) {
      const std::initializer_list<std::common_type_t<decltype(options)...>> list{options...};
      return *(list.begin() + random() % list.size());
    };
    selection_settings settings;
    settings.force(algorithms[random() % std::size(algorithms)]);
    if (random() % 3 == 0) {
      settings.mode = reproducibility::deterministic;
      settings.force(algorithm_kind::automatic);
    }
    const std::size_t count = pick(random() % 16, random() % 300, random() % 5000, random() % 200000);
    check_case(static_cast<rank_t>(1 + random() % 9), count, pick(medium::shm, medium::tcp, medium::mixed),
               settings, random() % 2 == 0, static_cast<std::uint32_t>(random()));
  }
}

BOOST_AUTO_TEST_CASE(large_messages_in_pieces) {
  for (const medium over : {medium::shm, medium::tcp})
    for (const algorithm_kind kind : {algorithm_kind::slice_owner, algorithm_kind::ring})
      for (const rank_t n : {2, 4}) {
        selection_settings settings;
        settings.force(kind);
        check_case(n, large_bytes / sizeof(float) + 13, over, settings, true, 5);
      }
}

BOOST_AUTO_TEST_CASE(a_call_that_is_known_takes_its_scalar_anew) {
  engine loop;
  ranks all{loop, 3, medium::shm};
  std::array<int, 3> wrong{};
  auto body = [&](core& on, rank_t r) -> task<void> {
    const std::array<float, 2> in{1, 2};
    std::array<float, 2> out{};
    for (int i = 1; i <= 20; ++i) {
      const auto factor = static_cast<float>(i);
      co_await place_checked(on, chorale::all_reduce(in, out, premul_sum(factor)).what);
      wrong[static_cast<std::size_t>(r)] += out[0] != 3 * factor || out[1] != 6 * factor;
    }
  };
  all.run(body);
  BOOST_TEST(wrong == (std::array<int, 3>{}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_root_that_broadcasts_in_place_writes_nothing) {
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const at = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  BOOST_REQUIRE(at != MAP_FAILED);
  const std::span<std::int32_t> roots{static_cast<std::int32_t*>(at), page / sizeof(std::int32_t)};
  std::iota(roots.begin(), roots.end(), 7);
  BOOST_REQUIRE(::mprotect(at, page, PROT_READ) == 0);
  for (const std::size_t count : {std::size_t{1}, std::size_t{8}, std::size_t{9}, roots.size()}) {
    engine loop;
    ranks all{loop, 3, medium::shm};
    std::array<bool, 3> right{};
    auto body = [&](core& on, rank_t r) -> task<void> {
      std::vector<std::int32_t> own(count);
      const std::span<std::int32_t> mine = r == 1 ? roots.first(count) : std::span{own};
      co_await place_checked(on, chorale::broadcast(mine, 1).what);
      right[static_cast<std::size_t>(r)] = std::ranges::equal(mine, roots.first(count));
    };
    all.run(body);
    BOOST_TEST((right[0] && right[1] && right[2]), "count " << count);
  }
  ::munmap(at, page);
}

BOOST_AUTO_TEST_CASE(a_root_that_runs_far_ahead_of_tiny_broadcasts) {
  // Regression: it runs out of lines, then of slots, then of budget; a line that went as a frame and was
  // handed over at once ended the call before the next rank's was written.
  constexpr std::int32_t calls = 20'000;
  for (rank_t n = 2; n <= 4; ++n) {
    engine loop;
    std::vector<std::int32_t> wrong(static_cast<std::size_t>(n));
    selection_settings settings;
    settings.all_lines = true;
    ranks all{loop, n, medium::shm, settings};
    auto body = [&](core& on, rank_t r) -> task<void> {
      for (std::int32_t i = 0; i < calls; ++i) {
        std::int32_t value = r == 1 ? i : -1;
        co_await place_checked(on, chorale::broadcast(std::span{&value, 1}, 1).what);
        wrong[static_cast<std::size_t>(r)] += value != i;
      }
    };
    all.run(body);
    BOOST_TEST(wrong == std::vector<std::int32_t>(static_cast<std::size_t>(n)),
               boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_SUITE_END()
