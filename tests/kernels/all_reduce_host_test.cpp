// The GPU kernels' protocol, run on CPU threads: sums, counter roll-over, mismatch, abort, stale replays.
#include "host_machine.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <random>

using namespace chorale::kernels;
using namespace std::chrono_literals;

namespace {

group_limits small_limits(std::uint32_t size) {
  group_limits limits;
  limits.size = size;
  limits.ctas = 2;
  limits.ll_bytes = 4096;
  limits.ring_slots = 2;
  limits.ring_chunk = 256;
  return limits;
}

all_reduce_plan small_plan(algorithm way, std::uint64_t count, const group_limits& limits) {
  all_reduce_plan plan = way == algorithm::ring ? plan_ring(count, limits) : plan_packets(count, limits);
  if (way == algorithm::ring) plan.chunk = limits.ring_chunk / sizeof(float);
  if (way == algorithm::packets) plan.ctas = 2;
  return plan;
}

using buffers = std::vector<std::vector<float>>;

buffers random_inputs(std::uint32_t ranks, std::uint64_t count, unsigned seed) {
  std::mt19937 random{seed};
  std::uniform_real_distribution<float> value{-1e3f, 1e3f};
  buffers in(ranks, std::vector<float>(count + 1));
  for (auto& v : in)
    for (float& x : v) x = value(random);
  return in;
}

std::vector<float> expected_sum(const buffers& in, std::uint64_t offset, std::uint64_t count) {
  std::vector<float> sum(in[0].begin() + static_cast<std::ptrdiff_t>(offset),
                         in[0].begin() + static_cast<std::ptrdiff_t>(offset + count));
  for (std::size_t r = 1; r < in.size(); ++r)
    for (std::uint64_t i = 0; i < count; ++i) sum[i] += in[r][i + offset];
  return sum;
}

bool same_bits(const float* a, const float* b, std::uint64_t n) {
  return n == 0 || std::memcmp(a, b, n * sizeof(float)) == 0;
}

/// Runs one operation on every rank at once.
void run_all(host_group& group, std::uint32_t threads, const std::vector<all_reduce_args>& args,
             const std::vector<all_reduce_plan>& plans) {
  std::vector<std::jthread> ranks;
  for (std::size_t r = 0; r < args.size(); ++r)
    ranks.emplace_back([&, r] { launch_all_reduce(plans[r], threads, args[r]); });
  static_cast<void>(group);
}

enum class placement { separate, in_place, misaligned };

void check_sum(host_group& group, algorithm way, std::uint64_t count, placement where, unsigned seed) {
  const std::uint32_t n = group.limits().size;
  const std::uint64_t offset = where == placement::misaligned ? 1 : 0;
  buffers in = random_inputs(n, count, seed);
  buffers out(n, std::vector<float>(count + 1, -7.0f));
  const std::vector<float> sum = expected_sum(in, offset, count);
  const all_reduce_plan plan = small_plan(way, count, group.limits());
  std::vector<all_reduce_args> args;
  for (std::uint32_t r = 0; r < n; ++r) {
    float* target = where == placement::in_place ? in[r].data() : out[r].data() + offset;
    args.push_back(group.arguments(r, in[r].data() + offset, target, count, plan, 1));
  }
  run_all(group, way == algorithm::ring ? 4 : 2, args, std::vector(n, plan));
  for (std::uint32_t r = 0; r < n; ++r) {
    BOOST_TEST(same_bits(args[r].out, sum.data(), count), "rank " << r << " of " << n << ", count " << count);
    BOOST_TEST(group.block(r).stop == 0u);
    BOOST_TEST(group.mailbox(r).done == 1u);
    BOOST_TEST(group.block(r).entered == group.block(r).arrived);
    for (const cta_record& record : group.block(r).records)
      BOOST_REQUIRE(record.counter == group.block(r).records[0].counter);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(gpu_all_reduce_on_cpu)

BOOST_AUTO_TEST_CASE(sums_are_bitwise_those_of_the_rank_order_fold) {
  const unsigned seed = 20261130;
  BOOST_TEST_MESSAGE("seed " << seed);
  for (std::uint32_t n : {2u, 3u, 8u}) {
    host_group group{small_limits(n)};
    for (algorithm way : {algorithm::packets, algorithm::ring})
      for (std::uint64_t count : {0ull, 1ull, 2ull, 7ull, 64ull, 257ull, 700ull})
        for (placement where : {placement::separate, placement::in_place, placement::misaligned}) {
          if (n == 8 && count > 64) continue;  // two cores run 8 ranks x 4 CTAs
          check_sum(group, way, count, where, seed);
        }
  }
}

BOOST_AUTO_TEST_CASE(counters_roll_over_without_meeting_old_flags) {
  host_group group{small_limits(2), 7, (1ull << 32) - 3};
  for (unsigned step = 0; step < 6; ++step) {
    // Old values that equal a coming flag lie in all slots: the operation after the step of the upper part
    // looks for flag 2, and only the clearing at the step keeps it from taking them.
    if (step == 1)
      for (std::uint32_t r = 0; r < 2; ++r)
        for (std::uint64_t i = 0; i < 250; ++i)
          packet_slots(group.view(r), r, 1 - r, parity_of((1ull << 32) + 2))[i] = make_packet(1, 1, 2);
    check_sum(group, step % 2 == 0 ? algorithm::packets : algorithm::ring, 40 + 90 * step,
              placement::separate, step);
    check_sum(group, algorithm::packets, 500, placement::separate, 100 + step);
  }
  BOOST_TEST((group.block(0).records[0].counter >> 32) == 1u);
  BOOST_TEST(group.block(0).records[0].counter == group.block(1).records[0].counter);
}

BOOST_AUTO_TEST_CASE(different_counts_end_as_mismatch_on_both_and_use_no_data) {
  for (const auto& [mine, theirs] : {std::pair{40ull, 41ull}, {1ull, 900ull}, {0ull, 30ull}}) {
    host_group group{small_limits(2)};
    const std::uint64_t counts[2] = {mine, theirs};
    buffers in = random_inputs(2, 1000, 5);
    buffers out(2, std::vector<float>(1000, 1.0f));
    std::vector<all_reduce_args> args;
    std::vector<all_reduce_plan> plans;
    for (std::uint32_t r = 0; r < 2; ++r) {
      // the larger takes another algorithm and another grid
      plans.push_back(
          small_plan(counts[r] > 50 ? algorithm::ring : algorithm::packets, counts[r], group.limits()));
      args.push_back(group.arguments(r, in[r].data(), out[r].data(), counts[r], plans[r], 3));
    }
    run_all(group, 4, args, plans);
    for (std::uint32_t r = 0; r < 2; ++r) {
      const verdict v = unpack(group.mailbox(r).status);
      BOOST_TEST(v.cause == cause_mismatch);
      BOOST_TEST(v.culprit == static_cast<int>(1 - r));
      BOOST_TEST(group.mailbox(r).failed_from == 3u);
      BOOST_TEST(group.mailbox(r).done == 3u);
      for (std::uint64_t i = 0; i < counts[r]; ++i) BOOST_REQUIRE(std::isnan(out[r][i]));
      BOOST_TEST(out[r][counts[r]] == 1.0f);
    }
  }
}

BOOST_AUTO_TEST_CASE(different_operations_end_as_mismatch) {
  host_group group{small_limits(2)};
  buffers in = random_inputs(2, 64, 5);
  buffers out(2, std::vector<float>(65, 1.0f));
  const all_reduce_plan plan = small_plan(algorithm::packets, 64, group.limits());
  std::vector<all_reduce_args> args;
  for (std::uint32_t r = 0; r < 2; ++r) {
    args.push_back(group.arguments(r, in[r].data(), out[r].data(), 64, plan, 1));
    args[r].what.op = static_cast<std::uint8_t>(op_sum + r);
  }
  run_all(group, 2, args, {plan, plan});
  for (std::uint32_t r = 0; r < 2; ++r) {
    BOOST_TEST(unpack(group.mailbox(r).status).cause == cause_mismatch);
    BOOST_TEST(std::isnan(out[r][0]));
  }
}

BOOST_AUTO_TEST_CASE(an_abort_ends_a_waiting_kernel_with_nan_and_a_sticky_status) {
  for (algorithm way : {algorithm::packets, algorithm::ring}) {
    host_group group{small_limits(3)};
    const std::uint64_t count = 600;
    buffers in = random_inputs(3, count, 6);
    std::vector<float> out(count, 1.0f);
    const all_reduce_plan plan = small_plan(way, count, group.limits());
    const all_reduce_args args = group.arguments(0, in[0].data(), out.data(), count, plan, 9);
    std::jthread kernel{[&] { launch_all_reduce(plan, 4, args); }};
    std::this_thread::sleep_for(20ms);  // not synchronisation: the kernel cannot end before the abort anyway
    std::atomic_ref{group.mailbox(0).abort}.store(pack({6, 16, 2}));  // another generation's: ignored
    std::this_thread::sleep_for(5ms);
    BOOST_TEST(std::atomic_ref{group.mailbox(0).done}.load() == 0u);
    std::atomic_ref{group.mailbox(0).abort}.store(pack({7, 16, 2}));
    kernel.join();
    const verdict v = unpack(group.mailbox(0).status);
    BOOST_TEST(v.cause == 16);
    BOOST_TEST(v.culprit == 2);
    BOOST_TEST(group.mailbox(0).done == 9u);
    for (float x : out) BOOST_REQUIRE(std::isnan(x));

    // a stale replay ends at once, says nothing new, and touches no peer
    std::fill(out.begin(), out.end(), 1.0f);
    all_reduce_args stale = args;
    stale.launch = 0;
    launch_all_reduce(plan, 4, stale);
    for (float x : out) BOOST_REQUIRE(std::isnan(x));
    BOOST_TEST((unpack(group.mailbox(0).status) == v));
    BOOST_TEST(group.block(0).records[0].counter == 2u);
    BOOST_TEST(group.block(0).entered == group.block(0).arrived);
  }
}

BOOST_AUTO_TEST_SUITE_END()
