// The rules of a parameter server's shard: what counts, once, and what comes too late.
#include "parameter_server/shard.hpp"

#include <boost/test/unit_test.hpp>

#include <array>

namespace ps = parameter_server;

namespace {

constexpr std::array<float, 3> start{1.0F, 2.0F, 3.0F};
constexpr std::array<float, 3> ones{1.0F, 1.0F, 1.0F};

/// Rate one, no momentum: each version takes the mean gradient away.
ps::shard plain(std::size_t close_at, std::uint64_t versions = 100) {
  return {start, {close_at, versions, 1.0F, 0.0F}};
}

ps::pushing from(std::uint32_t worker, ps::joined as, std::uint64_t number, std::uint64_t version) {
  return {worker, 0, as.session, number, version};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(parameter_shard)

BOOST_AUTO_TEST_CASE(a_version_closes_at_k_and_tells_late_ones) {
  ps::shard s = plain(2);
  const auto a = s.join(1), b = s.join(2), c = s.join(3);
  BOOST_TEST((s.push(from(1, a, 1, 0), ones).outcome == ps::verdict::applied));
  BOOST_TEST(s.version() == 0U);
  const auto before = s.parameters();
  const std::array<float, 3> threes{3.0F, 3.0F, 3.0F};
  BOOST_TEST((s.push(from(2, b, 1, 0), threes).outcome == ps::verdict::applied));
  BOOST_TEST(s.version() == 1U);
  BOOST_TEST((*s.parameters())[0] == -1.0F);
  BOOST_TEST((*before)[0] == 1.0F);  // whoever still sends the old version is not disturbed
  const ps::pushed late = s.push(from(3, c, 1, 0), ones);
  BOOST_TEST((late.outcome == ps::verdict::late));
  BOOST_TEST(late.version == 1U);
  BOOST_TEST((*s.parameters())[0] == -1.0F);
}

BOOST_AUTO_TEST_CASE(a_push_sent_again_is_applied_once_also_in_a_later_version) {
  ps::shard s = plain(1);
  const auto a = s.join(1);
  BOOST_TEST((s.push(from(1, a, 1, 0), ones).outcome == ps::verdict::applied));
  for (int i = 0; i < 3; ++i) BOOST_TEST((s.push(from(1, a, 1, 0), ones).outcome == ps::verdict::again));
  BOOST_TEST((s.push(from(1, a, 1, 1), ones).outcome == ps::verdict::again));
  BOOST_TEST((*s.parameters())[0] == 0.0F);
  BOOST_TEST(s.ledger().size() == 1U);
  BOOST_TEST(s.records()[0].again == 4U);
}

BOOST_AUTO_TEST_CASE(a_worker_that_is_back_goes_on_and_its_former_self_is_not_heard) {
  ps::shard s = plain(2);
  const auto before = s.join(7);
  BOOST_TEST((s.push(from(7, before, 5, 0), ones).outcome == ps::verdict::applied));
  const auto after = s.join(7);
  BOOST_TEST(after.last_number == 5U);
  BOOST_TEST((s.push(from(7, before, 6, 0), ones).outcome == ps::verdict::superseded));
  // One contribution of a worker and version, whatever became of the process in between.
  BOOST_TEST((s.push(from(7, after, 6, 0), ones).outcome == ps::verdict::late));
  const auto b = s.join(8);
  BOOST_TEST((s.push(from(8, b, 1, 0), ones).outcome == ps::verdict::applied));
  BOOST_TEST((s.push(from(7, after, 7, 1), ones).outcome == ps::verdict::applied));
}

BOOST_AUTO_TEST_CASE(strangers_and_those_after_the_end_change_nothing) {
  ps::shard s = plain(1, 1);
  BOOST_TEST((s.push({9, 0, 0, 1, 0}, ones).outcome == ps::verdict::superseded));
  const auto a = s.join(1);
  BOOST_TEST((s.push(from(1, a, 1, 0), ones).outcome == ps::verdict::applied));
  BOOST_TEST(s.over());
  BOOST_TEST((s.push(from(1, a, 2, 1), ones).outcome == ps::verdict::late));
  BOOST_TEST((*s.parameters())[2] == 2.0F);
}

BOOST_AUTO_TEST_SUITE_END()
