// The GPU kernels' protocol, run on CPU threads: every collective, sums, roll-over, mismatch, abort, stale
// replays.
#include "collective_cases.hpp"
#include "host_machine.hpp"

#include <boost/test/unit_test.hpp>

#include <optional>

using namespace chorale;
using namespace chorale::kernels;
using namespace chorale::kernels_test;
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

exchange_plan small_plan(algorithm way, std::uint64_t bytes, const group_limits& limits) {
  exchange_plan plan = way == algorithm::ring ? plan_ring(bytes, limits) : plan_packets(bytes, limits);
  if (way == algorithm::ring) plan.chunk = limits.ring_chunk;
  if (way == algorithm::packets) plan.ctas = 2;
  return plan;
}

/// Runs one launch per rank at once.
void run_all(const std::vector<cuda::launch_arguments>& launches, std::uint32_t threads) {
  std::vector<std::jthread> ranks;
  for (const cuda::launch_arguments& l : launches)
    ranks.emplace_back([&l, threads] { launch_exchange(l.ctas, threads, l.args); });
}

void expect_clean(host_group& group) {
  for (std::uint32_t r = 0; r < group.limits().size; ++r) {
    BOOST_TEST(group.block(r).stop == 0u);
    BOOST_TEST(group.block(r).entered == group.block(r).arrived);
    for (std::uint32_t peer = 0; peer < group.limits().size; ++peer)
      for (std::uint32_t cta = 0; peer != r && cta < max_ctas; ++cta)
        BOOST_REQUIRE(group.counter(r, peer, cta) == group.counter(peer, r));
  }
}

/// One operation of all ranks, compared with what it should give, guard bytes included.
void check(host_group& group, const collective_case& what, std::optional<algorithm> way, unsigned seed) {
  const std::uint32_t n = group.limits().size;
  case_memory memory{what, static_cast<int>(n), seed};
  std::vector<cuda::launch_arguments> launches;
  std::uint32_t threads = 2;
  for (std::uint32_t r = 0; r < n; ++r) {
    auto call = what.describe(static_cast<int>(r), static_cast<int>(n), memory.arena(static_cast<int>(r)));
    BOOST_REQUIRE_MESSAGE(call.has_value(), (call ? std::string{} : call.error().message()));
    const auto right = cuda::check_exchange(*call, group.place(r));
    BOOST_REQUIRE_MESSAGE(right.has_value(), (right ? std::string{} : right.error().message()));
    exchange_plan plan;
    if (way) plan = small_plan(*way, call->largest, group.limits());
    launches.push_back(group.arguments(r, *call, way ? &plan : nullptr, 1));
    if (launches.back().args.by_ring != 0) threads = 4;
  }
  run_all(launches, threads);
  const std::string wrong = memory.first_wrong();
  BOOST_TEST(wrong.empty(), what.name() << " of " << n << " ranks: " << wrong);
  expect_clean(group);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(gpu_exchange_on_cpu)

BOOST_AUTO_TEST_CASE(every_collective_moves_every_byte) {
  const unsigned seed = 20261130;
  BOOST_TEST_MESSAGE("seed " << seed);
  for (std::uint32_t n : {2u, 3u, 5u}) {
    host_group group{small_limits(n)};
    unsigned round = 0;
    for (const collective_case& what : copying_cases(static_cast<int>(n)))
      for (algorithm way : {algorithm::packets, algorithm::ring}) {
        if (n == 5 && what.count > 300) continue;  // two cores run 5 ranks x 8 threads
        ++round;
        if (what.is_pairwise() && way == algorithm::ring) continue;
        check(group, what, what.is_pairwise() ? std::nullopt : std::optional{way}, seed + round);
      }
  }
}

BOOST_AUTO_TEST_CASE(messages_of_all_lengths_share_a_batch) {
  group_limits limits = small_limits(3);
  limits.ll_bytes = 300;  // longer ones go by the ring
  host_group group{limits};
  for (unsigned seed = 0; seed < 20; ++seed) check(group, random_messages(3, seed), {}, seed);
}

BOOST_AUTO_TEST_CASE(every_type_and_operation_folds_as_on_the_host) {
  const unsigned seed = 71;
  host_group group{small_limits(3)};
  for (const collective_case& what : folding_cases(3, 37))
    for (algorithm way : {algorithm::packets, algorithm::ring}) check(group, what, way, seed);
}

BOOST_AUTO_TEST_CASE(all_folding_collectives_in_all_sizes_and_places) {
  for (std::uint32_t n : {2u, 3u, 5u}) {
    host_group group{small_limits(n)};
    for (const collective_case& what : folding_shapes(static_cast<int>(n)))
      for (algorithm way : {algorithm::packets, algorithm::ring}) {
        if (n == 5 && what.count > 300) continue;
        check(group, what, way, n);
      }
  }
}

BOOST_AUTO_TEST_CASE(in_place_nothing_is_overwritten_before_it_was_pushed) {
  const collective_case what{
      cuda::exchange_kind::all_reduce, dtype::f32, reduction::sum, 0, 700, placement::in_place};
  host_group group{small_limits(2)};
  case_memory memory{what, 2, 4};
  const exchange_plan plan = small_plan(algorithm::ring, 0, group.limits());
  std::vector<cuda::launch_arguments> launches;
  for (std::uint32_t r = 0; r < 2; ++r)
    launches.push_back(group.arguments(
        r, what.describe(static_cast<int>(r), 2, memory.arena(static_cast<int>(r))).value(), &plan, 1));
  host_machine::slow_from = memory.arena(1);
  host_machine::slow_to = memory.arena(1) + what.plan(1, 2).total;
  run_all(launches, 4);
  host_machine::slow_to = nullptr;
  const std::string wrong = memory.first_wrong();
  BOOST_TEST(wrong.empty(), wrong);
}

BOOST_AUTO_TEST_CASE(among_three_and_more_each_rank_folds_a_share) {
  for (std::uint32_t n : {3u, 5u}) {
    host_group group{small_limits(n)};
    for (std::uint64_t count : {64ull, 1100ull, 2'777ull})
      for (placement where : {placement::separate, placement::in_place}) {
        collective_case what{cuda::exchange_kind::all_reduce, dtype::f32, reduction::sum, 0, count, where};
        case_memory memory{what, static_cast<int>(n), 9};
        std::vector<cuda::launch_arguments> launches;
        for (std::uint32_t r = 0; r < n; ++r) {
          exchange_plan plan = small_plan(algorithm::ring, 0, group.limits());
          plan.gathers = true;
          launches.push_back(group.arguments(
              r, *what.describe(static_cast<int>(r), static_cast<int>(n), memory.arena(static_cast<int>(r))),
              &plan, 1));
        }
        run_all(launches, 4);
        const std::string wrong = memory.first_wrong();
        BOOST_TEST(wrong.empty(), what.name() << " of " << n << " ranks: " << wrong);
        expect_clean(group);
      }
  }
}

BOOST_AUTO_TEST_CASE(counters_of_edges_roll_over_without_meeting_old_flags) {
  host_group group{small_limits(3), 7, (1ull << 32) - 3};
  const auto check_one = [&](cuda::exchange_kind kind, algorithm way, std::uint64_t count, rank_t root,
                             unsigned seed) {
    const reduction op = kind == cuda::exchange_kind::broadcast ? reduction::none : reduction::sum;
    check(group, {kind, dtype::f32, op, root, count, placement::separate}, way, seed);
  };
  for (unsigned step = 0; step < 8; ++step) {
    // Old values that equal a coming flag lie in all slots: the operation after the step of the upper part
    // looks for flag 2, and only the clearing at the step keeps it from taking them.
    if (step == 1)
      for (std::uint32_t r = 0; r < 3; ++r)
        for (std::uint32_t p = 0; p < 3; ++p)
          for (std::uint64_t i = 0; p != r && i < 250; ++i)
            packet_slots(group.arguments(r, cuda::barrier_call(group.place(r))).args, r, p,
                         parity_of((1ull << 32) + 2))[i] = make_packet(1, 1, 2);
    const algorithm way = step % 2 == 0 ? algorithm::packets : algorithm::ring;
    // edges step at different operations: a broadcast uses those of its root only
    check_one(cuda::exchange_kind::broadcast, way, 100 + step, static_cast<rank_t>(step % 3), step);
    check_one(cuda::exchange_kind::all_reduce, algorithm::packets, 500, 0, 100 + step);
  }
  for (const auto& [one, other] : {std::pair{0u, 1u}, {0u, 2u}, {1u, 2u}})
    BOOST_TEST((group.counter(one, other) >> 32) == 1u);
  // a broadcast does not use the edge between two that are not its root
  BOOST_TEST(group.counter(0, 1) != group.counter(1, 2));
}

BOOST_AUTO_TEST_CASE(ranks_that_disagree_end_as_mismatch_and_use_no_data) {
  const auto all_reduce = [](std::uint64_t count, dtype type = dtype::f32, reduction op = reduction::sum) {
    return collective_case{cuda::exchange_kind::all_reduce, type, op, 0, count, placement::separate};
  };
  const auto other = [](cuda::exchange_kind kind, std::uint64_t count, rank_t root = 0) {
    return collective_case{kind, dtype::f32, reduction::sum, root, count, placement::separate};
  };
  using k = cuda::exchange_kind;
  // what goes from 0 to 1 is agreed on, what comes back differs in length, or in type
  const auto there_and_back = [](std::uint64_t back, dtype type) {
    collective_case c{k::messages};
    c.batch = {{0, 1, 40, dtype::f32}, {1, 0, back, type}};
    return c;
  };
  const std::pair<collective_case, collective_case> pairs[] = {
      {there_and_back(8, dtype::f32), there_and_back(9, dtype::f32)},
      {there_and_back(8, dtype::f32), there_and_back(8, dtype::i32)},
      {all_reduce(40), all_reduce(41)},
      {all_reduce(1), all_reduce(900)},
      {all_reduce(0), all_reduce(30)},
      {all_reduce(64), all_reduce(64, dtype::i32)},
      {all_reduce(64), all_reduce(64, dtype::f32, reduction::max)},
      {all_reduce(64), other(k::all_gather, 64)},
      {other(k::broadcast, 64, 0), other(k::broadcast, 64, 1)},
      {other(k::all_gather_v, 12), other(k::all_gather_v, 13)},
      {other(k::barrier, 0), all_reduce(3)},
      {other(k::messages, 40), other(k::messages, 41)},
      {other(k::messages, 40), all_reduce(40)},
      {other(k::all_to_all_v, 40), other(k::all_to_all_v, 44)},
  };
  for (const auto& pair : pairs) {
    host_group group{small_limits(2)};
    std::vector<cuda::launch_arguments> launches;
    std::vector<std::unique_ptr<case_memory>> memories;
    for (std::uint32_t r = 0; r < 2; ++r) {
      const collective_case& what = r == 0 ? pair.first : pair.second;
      memories.push_back(std::make_unique<case_memory>(what, 2, 5));
      const auto call =
          what.describe(static_cast<int>(r), 2, memories[r]->arena(static_cast<int>(r))).value();
      // the larger takes another algorithm and another grid
      const exchange_plan plan =
          small_plan(what.count > 50 ? algorithm::ring : algorithm::packets, call.largest, group.limits());
      launches.push_back(group.arguments(r, call, what.is_pairwise() ? nullptr : &plan, 3));
    }
    run_all(launches, 4);
    for (std::uint32_t r = 0; r < 2; ++r) {
      const std::string told = pair.first.name() + " against " + pair.second.name();
      const verdict v = unpack(group.mailbox(r).status);
      BOOST_TEST(v.cause == cause_mismatch, told);
      BOOST_TEST(v.culprit == static_cast<int>(1 - r));
      BOOST_TEST(group.mailbox(r).failed_from == 3u);
      BOOST_TEST(group.mailbox(r).done == 3u);
      BOOST_TEST(memories[r]->is_poisoned(static_cast<int>(r), launches[r].args), told);
    }
  }
}

BOOST_AUTO_TEST_CASE(an_abort_ends_a_waiting_kernel_with_nan_and_a_sticky_status) {
  using k = cuda::exchange_kind;
  for (const auto& [kind, way] : {std::pair{k::all_reduce, algorithm::packets},
                                  {k::all_reduce, algorithm::ring},
                                  {k::all_gather, algorithm::ring},
                                  {k::reduce_scatter, algorithm::packets}}) {
    host_group group{small_limits(3)};
    const collective_case what{kind, dtype::f32, reduction::sum, 0, 500, placement::separate};
    case_memory memory{what, 3, 6};
    const cuda::exchange_call call = what.describe(0, 3, memory.arena(0)).value();
    const exchange_plan plan = small_plan(way, call.largest, group.limits());
    const cuda::launch_arguments first = group.arguments(0, call, &plan, 9);
    std::jthread kernel{[&] { launch_exchange(first.ctas, 4, first.args); }};
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
    BOOST_TEST(memory.is_poisoned(0, first.args));

    // a stale replay ends at once, says nothing new, and touches no peer
    memory.spoil_output(0);
    exchange_args stale = first.args;
    stale.launch = 0;
    launch_exchange(first.ctas, 4, stale);
    BOOST_TEST(memory.is_poisoned(0, first.args));
    BOOST_TEST((unpack(group.mailbox(0).status) == v));
    BOOST_TEST(group.counter(0, 1) == 2u);
    BOOST_TEST(group.block(0).entered == group.block(0).arrived);
  }
}

BOOST_AUTO_TEST_SUITE_END()
