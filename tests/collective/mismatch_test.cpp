// Ranks that call different things: every difference of every collective ends with both calls in the text,
// also where no message of either would ever show it.
#include "rig.hpp"
#include <chorale/api/description.hpp>
#include <chorale/async/virtual_backend.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <functional>
#include <string>

using namespace chorale;
using namespace chorale::testing;

namespace {

constexpr rank_t n = 3;
constexpr rank_t odd = 1;  // the rank that calls something else

struct memory {
  std::array<float, 64> in{};
  std::array<float, 64> out{};
  [[nodiscard]] std::span<const float> from(std::size_t count) const { return std::span{in}.first(count); }
  [[nodiscard]] std::span<float> to(std::size_t count) { return std::span{out}.first(count); }
};

using described = std::function<described_call(memory&, rank_t)>;

struct difference {
  const char* name;
  described usual;
  described other;
  std::vector<std::string> words;  ///< of both calls, in every text
};

void take_right(void*, std::byte*, const std::byte*, const std::byte*, std::size_t) noexcept {}

std::vector<difference> differences() {
  const auto counts = [](std::uint64_t a, std::uint64_t b, std::uint64_t c) {
    return std::vector<std::uint64_t>{a, b, c};
  };
  return {
      {"count",
       [](memory& m, rank_t) { return all_reduce(m.from(8), m.to(8)); },
       [](memory& m, rank_t) { return all_reduce(m.from(9), m.to(9)); },
       {"8 × f32", "9 × f32"}},
      {"kind",
       [](memory& m, rank_t) { return all_reduce(m.from(8), m.to(8)); },
       [](memory& m, rank_t) { return scan(m.from(8), m.to(8)); },
       {"all_reduce", "scan"}},
      {"type",
       [](memory& m, rank_t) { return all_reduce(m.from(8), m.to(8)); },
       [](memory& m, rank_t) {
         return all_reduce(std::span{reinterpret_cast<const std::int32_t*>(m.in.data()), 8},
                           std::span{reinterpret_cast<std::int32_t*>(m.out.data()), 8});
       },
       {"f32", "i32"}},
      {"operation",
       [](memory& m, rank_t) { return all_reduce(m.from(8), m.to(8), sum); },
       [](memory& m, rank_t) { return all_reduce(m.from(8), m.to(8), chorale::max); },
       {"sum", "max"}},
      {"user's function",
       [](memory& m, rank_t) { return all_reduce(m.from(8), m.to(8), user_reduction{"one", take_right}); },
       [](memory& m, rank_t) { return all_reduce(m.from(8), m.to(8), user_reduction{"two", take_right}); },
       {"user #"}},
      {"root of a reduce",
       [](memory& m, rank_t) { return chorale::reduce(m.from(8), m.to(8), 0); },
       [](memory& m, rank_t) { return chorale::reduce(m.from(8), m.to(8), 1); },
       {"root 0", "root 1"}},
      {"root of a broadcast",
       [](memory& m, rank_t) { return broadcast(m.to(8), 0); },
       [](memory& m, rank_t) { return broadcast(m.to(8), 1); },
       {"root 0", "root 1"}},
      {"root of a broadcast, far from its sender",
       [](memory& m, rank_t) { return broadcast(m.to(8), 2); },
       [](memory& m, rank_t) { return broadcast(m.to(8), 0); },
       {"root 2", "root 0"}},
      {"root of a gather",
       [](memory& m, rank_t) { return gather(m.from(2), m.to(6), 0); },
       [](memory& m, rank_t) { return gather(m.from(2), m.to(6), 2); },
       {"root 0", "root 2"}},
      {"root of a gather that only receivers see",
       [](memory& m, rank_t) { return gather(m.from(2), m.to(6), 0); },
       [](memory& m, rank_t) { return gather(m.from(2), m.to(6), 1); },
       {"root 0", "root 1"}},
      {"root of a scatter",
       [](memory& m, rank_t) { return scatter(m.from(6), m.to(2), 0); },
       [](memory& m, rank_t) { return scatter(m.from(6), m.to(2), 2); },
       {"root 0", "root 2"}},
      {"share of an all_gather",
       [](memory& m, rank_t) { return all_gather(m.from(2), m.to(6)); },
       [](memory& m, rank_t) { return all_gather(m.from(3), m.to(9)); },
       {"2 × f32 a rank", "3 × f32 a rank"}},
      {"share of a reduce_scatter",
       [](memory& m, rank_t) { return reduce_scatter(m.from(6), m.to(2)); },
       [](memory& m, rank_t) { return reduce_scatter(m.from(9), m.to(3)); },
       {"2 × f32", "3 × f32"}},
      {"share of an all_to_all",
       [](memory& m, rank_t) { return all_to_all(m.from(6), m.to(6)); },
       [](memory& m, rank_t) { return all_to_all(m.from(9), m.to(9)); },
       {"6 × f32", "9 × f32"}},
      {"scan",
       [](memory& m, rank_t) { return scan(m.from(6), m.to(6)); },
       [](memory& m, rank_t) { return exscan(m.from(6), m.to(6)); },
       {"scan", "exscan"}},
      {"counts of an all_gather_v",
       [=](memory& m, rank_t r) {
         const auto c = counts(1, 2, 3);
         return all_gather_v(m.from(c[static_cast<std::size_t>(r)]), m.to(6), c);
       },
       [=](memory& m, rank_t) { return all_gather_v(m.from(1), m.to(6), counts(2, 1, 3)); },
       {"counts #"}},
      {"counts of an all_gather_v where one is silent",
       [=](memory& m, rank_t r) {
         const auto c = counts(1, 0, 3);
         return all_gather_v(m.from(c[static_cast<std::size_t>(r)]), m.to(4), c);
       },
       [=](memory& m, rank_t) { return all_gather_v(m.from(0), m.to(4), counts(0, 0, 4)); },
       {"counts #"}},
      {"counts of a gather_v",
       [=](memory& m, rank_t r) {
         const auto c = counts(1, 0, 3);
         return gather_v(m.from(c[static_cast<std::size_t>(r)]), m.to(4), c, 0);
       },
       [=](memory& m, rank_t) { return gather_v(m.from(2), m.to(4), counts(1, 2, 1), 0); },
       {"counts #"}},
      {"counts of a scatter_v",
       [=](memory& m, rank_t r) {
         const auto c = counts(1, 0, 3);
         return scatter_v(m.from(4), m.to(c[static_cast<std::size_t>(r)]), c, 0);
       },
       [=](memory& m, rank_t) { return scatter_v(m.from(4), m.to(2), counts(1, 2, 1), 0); },
       {"counts #"}},
      {"counts of a reduce_scatter_v",
       [=](memory& m, rank_t r) {
         const auto c = counts(1, 2, 3);
         return reduce_scatter_v(m.from(6), m.to(c[static_cast<std::size_t>(r)]), c);
       },
       [=](memory& m, rank_t) { return reduce_scatter_v(m.from(6), m.to(1), counts(2, 1, 3)); },
       {"counts #"}},
      {"what a pair exchanges",
       [=](memory& m, rank_t) { return all_to_all_v(m.from(6), m.to(6), counts(2, 2, 2), counts(2, 2, 2)); },
       [=](memory& m, rank_t) { return all_to_all_v(m.from(6), m.to(7), counts(2, 2, 2), counts(2, 2, 3)); },
       {"2 × f32 to the higher rank", "3 to the lower"}},
      {"whether a pair exchanges anything",
       [=](memory& m, rank_t r) {
         const auto c = r == 2 ? counts(2, 0, 2) : counts(2, 2, 2);
         return all_to_all_v(m.from(r == 2 ? 4 : 6), m.to(r == 2 ? 4 : 6), c, c);
       },
       [=](memory& m, rank_t) { return all_to_all_v(m.from(4), m.to(6), counts(2, 2, 0), counts(2, 2, 2)); },
       {"0 × f32 to the higher rank and 0 to the lower", "2 to the lower"}},
      {"barrier",
       [](memory&, rank_t) { return barrier(); },
       [](memory& m, rank_t) { return broadcast(m.to(8), 0); },
       {"barrier", "broadcast"}},
      {"nothing",
       [](memory& m, rank_t) { return broadcast(m.to(0), 0); },
       [](memory& m, rank_t) { return broadcast(m.to(8), 0); },
       {"0 × f32", "8 × f32"}},
  };
}

task<void> call_one(core& on, rank_t r, memory& m, const difference& d, error& outcome) {
  const described& mine = r == odd ? d.other : d.usual;
  ticket placed = place_checked(on, mine(m, r).what);
  auto result = co_await as_result(std::move(placed));
  if (!result) {
    outcome = result.error();
    co_return;
  }
  // A sender may have been done before anybody could disagree: it learns at its next call.
  ticket after = place_checked(on, barrier().what);
  auto next = co_await as_result(std::move(after));
  if (!next) outcome = next.error();
}

void check(const difference& d, medium over, engine& loop) {
  BOOST_TEST_CONTEXT(d.name << ", " << name_of(over)) {
    std::array<memory, n> memories;
    std::array<error, n> outcomes;
    {
      ranks all{loop, n, over};
      auto body = [&](core& on, rank_t r) {
        const auto self = static_cast<std::size_t>(r);
        return call_one(on, r, memories[self], d, outcomes[self]);
      };
      all.run(body);
    }
    for (const error& e : outcomes) {
      BOOST_TEST(!!e, "somebody has not noticed");
      if (!e) continue;
      const std::string text = e.message();
      const bool names_the_odd_one =
          text.find("rank 1 called") != std::string::npos || text.find("where rank 1") != std::string::npos;
      BOOST_TEST((e == errc::mismatch || e == errc::revoked), text);
      BOOST_TEST(text.find("mismatch") != std::string::npos, text);
      BOOST_TEST(names_the_odd_one, text);
      for (const std::string& word : d.words)
        BOOST_TEST(e.message().find(word) != std::string::npos, "no \"" << word << "\" in " << e.message());
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(mismatches)

BOOST_AUTO_TEST_CASE(every_difference_is_told) {
  for (const difference& d : differences()) {
    engine virtual_loop{std::make_unique<virtual_backend>()};
    check(d, medium::simulated, virtual_loop);
    engine loop{engine_options{backend_kind::automatic, duration{0}}};
    check(d, medium::shm, loop);
    check(d, medium::tcp, loop);
    engine spinning{engine_options{.spin = std::chrono::microseconds{20}}};  // looks before it suspends
    check(d, medium::shm, spinning);
  }
}

BOOST_AUTO_TEST_SUITE_END()
