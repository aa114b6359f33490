// Every collective on GPUs: types, operations, sizes with odd ends, places; back to back; in graphs.
#include "device_arena.hpp"
#include "ranks_group.hpp"

#include <cmath>

namespace chorale::gpu_test {
namespace {

using cuda::device_group;
using cuda::exchange_call;
using cuda::exchange_kind;
using kernels_test::arena_plan;
using kernels_test::collective_case;
using kernels_test::placement;

/// One case on this rank: its arena on the device, what all arenas held, and the comparison afterwards.
class case_on_device {
 public:
  case_on_device(const collective_case& what, const device_group& group, unsigned seed, const work_stream& on)
      : what_{what},
        rank_{group.config().rank},
        size_{group.config().size},
        arena_{what.plan(rank_, size_).total} {
    for (rank_t r = 0; r < size_; ++r) before_.push_back(what.initial(r, size_, seed));
    arena_.write(before_[static_cast<std::size_t>(rank_)], on);
  }
  [[nodiscard]] result<exchange_call> call() const { return what_.describe(rank_, size_, arena_.data()); }
  [[nodiscard]] std::string name() const { return what_.name(); }

  void expect(verdicts& v, const work_stream& on) const {
    const kernels_test::bytes expected = what_.expected(rank_, size_, before_);
    const kernels_test::bytes got = arena_.read(expected.size(), on);
    const std::string wrong = difference(what_, rank_, size_, expected, got);
    if (!wrong.empty()) v.expect(false, wrong);
  }

 private:
  collective_case what_;
  rank_t rank_;
  int size_;
  device_arena arena_;
  std::vector<kernels_test::bytes> before_;
};

void check(verdicts& v, device_group& group, const collective_case& what, unsigned seed,
           const work_stream& on) {
  const case_on_device one{what, group, seed, on};
  auto launched = group.exchange(one.call(), on.get());
  if (!launched) return v.expect(false, what.name() + ": " + launched.error().message());
  await(group, *launched);
  const result<void> outcome = group.outcome(*launched);
  if (!outcome) return v.expect(false, what.name() + ": " + outcome.error().message());
  on.synchronize();
  one.expect(v, on);
}

int check_all(const rank_setting& s, const std::vector<collective_case>& cases) {
  verdicts v{s};
  const device here{s.device};
  hub_exchange exchange{s.groups[0], s.rank};
  auto group = make_group(s, 0, exchange, s.size);
  const work_stream on;
  unsigned seed = 1;
  for (const collective_case& what : cases) {
    check(v, *group, what, ++seed, on);
    if (v.code() != 0 && !group->status()) break;
  }
  v.expect(group->status().has_value(), "the status stays clean");
  if (s.rank == 0) std::printf("  %zu cases\n", cases.size());
  return v.code();
}

int copies(const rank_setting& s) {
  std::vector<std::uint64_t> counts{0, 1, 7, 64, 4097, 20'002};
  if (!s.small) counts.insert(counts.end(), {300'001, 2'000'006});
  std::vector<collective_case> cases = kernels_test::copying_cases(s.size, counts);
  if (!s.small)  // the ring's
    for (const collective_case& what : kernels_test::copying_cases(s.size, {9'000'001, 9'000'002}))
      if (what.where != placement::in_place) cases.push_back(what);
  return check_all(s, cases);
}

int folds(const rank_setting& s) {
  std::vector<collective_case> cases = kernels_test::folding_cases(s.size, 37);
  for (const collective_case& what : kernels_test::folding_cases(s.size, s.small ? 9'001 : 70'001))
    cases.push_back(what);
  const auto shapes = kernels_test::folding_shapes(
      s.size, s.small ? std::vector<std::uint64_t>{0, 1, 7, 64, 10'001}
                      : std::vector<std::uint64_t>{0, 1, 7, 64, 10'001, 300'002, 9'000'001, 5'000'002});
  cases.insert(cases.end(), shapes.begin(), shapes.end());
  if (!s.small)  // every type by the ring
    for (const collective_case& what : kernels_test::folding_cases(s.size, 2'500'003))
      if (size_of(what.type) >= 8 || what.op == reduction::sum || what.op == reduction::max) {
        cases.push_back(what);
        if (size_of(cases.back().type) < 8) cases.back().count = 20'000'003 / size_of(what.type);
      }
  return check_all(s, cases);
}

/// Sizes in which three and more ranks fold a share each and gather the shares.
int shares(const rank_setting& s) {
  std::vector<collective_case> cases;
  for (std::uint64_t count : {200'001ull, 700'000ull, 5'000'003ull})
    for (placement where : {placement::separate, placement::in_place})
      for (dtype type : {dtype::f32, dtype::bf16})
        cases.push_back({exchange_kind::all_reduce, type, reduction::sum, 0, count, where});
  return check_all(s, cases);
}

int messages(const rank_setting& s) {
  std::vector<collective_case> cases;
  for (unsigned seed = 0; seed < (s.small ? 10u : 60u); ++seed)
    cases.push_back(kernels_test::random_messages(s.size, seed,
                                                  seed % 3 == 0   ? 1
                                                  : seed % 3 == 1 ? 301
                                                  : s.small       ? 301
                                                                  : 9'001));
  return check_all(s, cases);
}

/// Doubling sums and swaps of their results, enqueued back to back: a chunk that was read before it had come
/// would be wrong from then on.
int copy_storm(const rank_setting& s) {
  verdicts v{s};
  const device here{s.device};
  hub_exchange exchange{s.groups[0], s.rank};
  auto group = make_group(s, 0, exchange, s.size);
  const work_stream on;
  const std::size_t counts[] = {5'000'001, 17'000'000, 1'000'003};
  const int rounds = s.small ? 1 : 12;
  const device_floats a{counts[1]}, b{counts[1]};
  std::vector<float> values(counts[1]), got(counts[1]);
  const auto value = [](rank_t r, std::size_t i) {
    return static_cast<float>((i * 13 + static_cast<std::size_t>(r) * 7) % 251);
  };
  for (int round = 0; round < rounds; ++round) {
    const std::size_t count = counts[static_cast<std::size_t>(round) % std::size(counts)];
    for (std::size_t i = 0; i < count; ++i) values[i] = value(s.rank, i);
    a.write(0, values.data(), count, on);
    constexpr int doublings = 60;
    const auto run = [&](const result<exchange_call>& c) {
      static_cast<void>(group->exchange(c, on.get(), cuda::notify::nobody).value());
    };
    for (int k = 0; k < doublings; ++k) {
      const rank_t next = (s.rank + 1) % s.size;
      const rank_t previous = (s.rank + s.size - 1) % s.size;
      run(cuda::all_reduce_call(group->place(), a.data(), b.data(), count, {}));
      const cuda::message shift[] = {cuda::send_to(next, b.data(), count, dtype::f32),
                                     cuda::receive_from(previous, a.data(), count, dtype::f32)};
      run(cuda::messages_call(group->place(), shift));
    }
    on.synchronize();
    a.read(0, got.data(), count, on);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (rank_t r = 0; r < s.size; ++r) sum += value(r, i);
      for (int k = 1; k < doublings; ++k) sum *= static_cast<float>(s.size);
      wrong += got[i] == sum ? 0 : 1;
    }
    v.expect(wrong == 0, std::to_string(wrong) + " wrong elements of " + std::to_string(count) + ", round " +
                             std::to_string(round));
  }
  v.expect(group->status().has_value(), "the status stays clean");
  return v.code();
}

/// Graphs of different collectives, replayed across the step of the counters' upper parts.
int mixed_replays(const rank_setting& s) {
  verdicts v{s};
  const device here{s.device};
  hub_exchange exchange{s.groups[0], s.rank};
  auto group = make_group(s, 0, exchange, s.size, (std::uint64_t{1} << 32) - 20'000);
  const work_stream on;
  using k = exchange_kind;
  std::vector<collective_case> cases;
  for (std::uint64_t count : {3ull, 5'000ull, 150'001ull})
    for (k kind : {k::all_gather, k::all_to_all, k::broadcast, k::messages, k::all_reduce, k::reduce_scatter,
                   k::reduce, k::gather_v, k::scatter, k::barrier}) {
      const bool folds = kind == k::all_reduce || kind == k::reduce || kind == k::reduce_scatter;
      cases.push_back(
          {kind, count == 5'000 ? dtype::bf16 : dtype::f32, folds ? reduction::sum : reduction::none,
           static_cast<rank_t>(count % static_cast<std::uint64_t>(s.size)), count, placement::separate});
    }
  cases.push_back({k::all_gather, dtype::f32, reduction::none, 0, 5'000'003, placement::separate});
  cases.push_back({k::reduce_scatter, dtype::f32, reduction::sum, 0, 5'000'003, placement::separate});
  std::vector<std::unique_ptr<case_on_device>> memories;
  for (const collective_case& what : cases)
    memories.push_back(std::make_unique<case_on_device>(what, *group, 3, on));
  const captured_graph graph{on, [&] {
                               for (const auto& m : memories)
                                 static_cast<void>(group->exchange(m->call(), on.get()).value());
                             }};
  const int times = s.small ? 20 : 10'000;
  for (int i = 0; i < times; ++i) graph.launch(on);
  on.synchronize();
  v.expect(group->status().has_value(), "the status stays clean");
  for (const auto& m : memories) m->expect(v, on);
  check(v, *group, cases[5], 9, on);  // a plain launch after replays
  return v.code();
}

int mismatches(const rank_setting& s) {
  verdicts v{s};
  const device here{s.device};
  using k = exchange_kind;
  const auto one = [](k kind, std::uint64_t count, rank_t root = 0) {
    return collective_case{kind, dtype::f32, reduction::sum, root, count, placement::separate};
  };
  const std::pair<collective_case, collective_case> pairs[] = {
      {one(k::all_gather, 5'000'000), one(k::all_gather, 8)},
      {one(k::broadcast, 64, 0), one(k::broadcast, 64, 1)},
      {one(k::messages, 100'000), one(k::messages, 100'001)},
      {one(k::reduce_scatter, 70'000), one(k::all_to_all, 70'000)}};
  for (std::size_t p = 0; p < std::size(pairs); ++p) {
    hub_exchange exchange{s.groups[p], s.rank};
    auto group = make_group(s, p, exchange, s.size);
    const work_stream on;
    const collective_case& what = s.rank == 0 ? pairs[p].first : pairs[p].second;
    const std::string told = pairs[p].first.name() + " against " + pairs[p].second.name();
    const case_on_device memory{what, *group, 5, on};
    auto launched = group->exchange(memory.call(), on.get());
    if (!launched) {
      v.expect(false, launched.error().message());
      continue;
    }
    await(*group, *launched);
    const result<void> outcome = group->outcome(*launched);
    v.expect(!outcome && outcome.error() == errc::mismatch, told + " ends as mismatch");
    if (!outcome && s.size == 2)
      v.expect(outcome.error().culprit() == 1 - s.rank, told + " names the other rank");
    exchange.barrier().value();
  }
  return v.code();
}

}  // namespace

const std::vector<scenario>& collective_scenarios() {
  static const std::vector<scenario> list{
      {"copies", copies, false},         {"folds", folds, false},
      {"shares", shares, false},         {"messages", messages, false},
      {"copy_storm", copy_storm, false}, {"mixed_replays", mixed_replays, false},
      {"mismatches", mismatches, false},
  };
  return list;
}

}  // namespace chorale::gpu_test
