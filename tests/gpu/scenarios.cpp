#include "scenarios.hpp"

#include "ranks_group.hpp"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

namespace chorale::gpu_test {
namespace {

using clock = std::chrono::steady_clock;
using cuda::completion;
using cuda::device_group;

double milliseconds_since(clock::time_point start) {
  return std::chrono::duration<double, std::milli>(clock::now() - start).count();
}

/// Values whose sums round, some of them subnormal; any function of (rank, i) will do.
float value_of(int rank, std::uint64_t i, std::uint32_t salt) {
  std::uint32_t h =
      static_cast<std::uint32_t>(i) * 2654435761u + static_cast<std::uint32_t>(rank) * 40503u + salt * 97u;
  h ^= h >> 15;
  h *= 2246822519u;
  h ^= h >> 13;
  if (h % 64 == 0) return static_cast<float>(h >> 8) * 1e-44f;
  return (static_cast<float>(h >> 8) - 8388608.0f) * 1.1920929e-4f;
}

/// An exchange of a rank with itself.
class lonely_exchange final : public rank_exchange {
 public:
  result<std::vector<std::byte>> all_gather_bytes(std::span<const std::byte> mine) override {
    return std::vector<std::byte>{mine.begin(), mine.end()};
  }
  result<std::vector<int>> all_gather_fds(int) override { return std::vector<int>{-1}; }
  result<void> barrier() override { return {}; }
};

enum class placement { separate, in_place, misaligned };
constexpr const char* placement_names[] = {"separate", "in place", "misaligned"};

/// Buffers for sums up to some size, and one checked sum after another on them.
class sum_checker {
 public:
  sum_checker(verdicts& v, device_group& group, std::size_t most)
      : v_{v}, group_{group}, in_{most + 8}, out_{most + 8}, host_(most + 8), got_(most + 8) {}

  void check(std::size_t count, placement where, std::uint32_t salt) {
    const int rank = group_.config().rank;
    const std::size_t offset = where == placement::misaligned ? 1 : 0;
    const std::string what = std::to_string(count * 4) + " B, " + placement_names[static_cast<int>(where)] +
                             ", op " + std::to_string(salt);
    for (std::size_t i = 0; i < count; ++i) host_[i] = value_of(rank, i, salt);
    in_.write(offset, host_.data(), count, on_);
    out_.fill_bytes(0xab, on_);
    const device_floats& target = where == placement::in_place ? in_ : out_;
    auto launched = group_.all_reduce(in_.data() + offset, target.data() + offset, count, on_.get());
    if (!launched) return v_.expect(false, what + ": " + launched.error().message());
    await(group_, *launched);
    const result<void> outcome = group_.outcome(*launched);
    if (!outcome) return v_.expect(false, what + ": " + outcome.error().message());
    on_.synchronize();
    target.read(0, got_.data(), count + 8, on_);
    compare(count, offset, salt, what);
    if (where != placement::in_place) expect_guard(offset + count, count + 8, what);
  }
  [[nodiscard]] const work_stream& stream() const { return on_; }

 private:
  void compare(std::size_t count, std::size_t offset, std::uint32_t salt, const std::string& what) {
    for (std::size_t i = 0; i < count; ++i) {
      float sum = value_of(0, i, salt);
      for (int r = 1; r < group_.config().size; ++r) sum += value_of(r, i, salt);
      if (std::memcmp(&sum, &got_[i + offset], sizeof sum) == 0) continue;
      v_.expect(false, what + ": element " + std::to_string(i) + " is " + std::to_string(got_[i + offset]) +
                           " instead of " + std::to_string(sum));
      return;
    }
  }
  void expect_guard(std::size_t from, std::size_t to, const std::string& what) {
    for (std::size_t i = from; i < to; ++i) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &got_[i], sizeof bits);
      if (bits != 0xabababab) return v_.expect(false, what + ": wrote beyond the end");
    }
  }
  verdicts& v_;
  device_group& group_;
  work_stream on_;
  device_floats in_, out_;
  std::vector<float> host_, got_;
};

int sums(const rank_setting& s) {
  verdicts v{s};
  const device here{s.device};
  hub_exchange exchange{s.groups[0], s.rank};
  auto group = make_group(s, 0, exchange, s.size);
  const auto& limits = group->limits();
  if (s.rank == 0)
    std::printf("  limits: packets to %u B, lines to %u B, ring of %u x %u B on %u CTAs\n", limits.ll_bytes,
                limits.ll128_bytes, limits.ring_slots, limits.ring_chunk, limits.ctas);
  std::vector<std::size_t> counts{0, 1, 2, 3, 251, 1024, 4095, 4096, 4097, 8192, 25000, 65536, 262145};
  if (!s.small) {
    // the borders of the algorithms, then sizes of the ring with odd ends
    for (std::size_t n : {524288u, 4194303u, 4194304u, 4194305u, 5242882u, 16777216u, 67108864u})
      counts.push_back(n);
  } else {
    counts.push_back(limits.ll128_bytes / 4 + 7);
  }
  sum_checker checker{v, *group, counts.back()};
  std::uint32_t salt = 0;
  for (std::size_t count : counts)
    for (placement where : {placement::separate, placement::in_place, placement::misaligned}) {
      if (count > 20'000'000 && where == placement::misaligned) continue;
      checker.check(count, where, ++salt);
    }
  v.expect(group->status().has_value(), "the status stays clean");
  return v.code();
}

/// Sums of sums, enqueued back to back: a chunk that was read before it had come would be wrong from then on.
/// After the first, every one doubles all elements, which is exact.
int storm(const rank_setting& s) {
  verdicts v{s};
  const device here{s.device};
  hub_exchange exchange{s.groups[0], s.rank};
  auto group = make_group(s, 0, exchange, s.size);
  const std::size_t counts[] = {6'000'000, 16'777'216, 33'554'437};
  constexpr int doublings = 100;
  const int rounds = s.small ? 1 : 40;
  const work_stream on;
  const device_floats even{counts[2]}, odd{counts[2]};
  std::vector<float> values(counts[2]), got(counts[2]);
  for (int round = 0; round < rounds; ++round) {
    const std::size_t count = counts[static_cast<std::size_t>(round) % std::size(counts)];
    const auto salt = static_cast<std::uint32_t>(5000 + round);
    const bool in_place = round % 4 == 3;
    for (std::size_t i = 0; i < count; ++i) values[i] = value_of(s.rank, i, salt);
    even.write(0, values.data(), count, on);
    for (int k = 0; k <= doublings; ++k) {
      const device_floats& from = in_place || k % 2 == 0 ? even : odd;
      const device_floats& to = in_place || k % 2 != 0 ? even : odd;
      static_cast<void>(
          group->all_reduce(from.data(), to.data(), count, on.get(), cuda::notify::nobody).value());
    }
    on.synchronize();
    (in_place ? even : odd).read(0, got.data(), count, on);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i)
      wrong += got[i] == std::ldexp(value_of(0, i, salt) + value_of(1, i, salt), doublings) ? 0 : 1;
    v.expect(wrong == 0, std::to_string(wrong) + " wrong elements of " + std::to_string(count) + ", round " +
                             std::to_string(round));
  }
  v.expect(group->status().has_value(), "the status stays clean");
  return v.code();
}

int roll_over(const rank_setting& s) {
  verdicts v{s};
  const device here{s.device};
  hub_exchange exchange{s.groups[0], s.rank};
  auto group = make_group(s, 0, exchange, s.size, (std::uint64_t{1} << 32) - 3 - 3);  // the proofs take three
  sum_checker checker{v, *group, 6'000'000};
  std::uint32_t salt = 1000;
  for (int round = 0; round < 4; ++round)
    for (std::size_t count : {2u, 4096u, 30'000u, 6'000'000u, 1u})
      checker.check(count, placement::separate, ++salt);
  return v.code();
}

int mismatch(const rank_setting& s) {
  verdicts v{s};
  const device here{s.device};
  const std::pair<std::size_t, std::size_t> pairs[] = {
      {64, 65}, {10, 1'000'000}, {100'000, 6'000'000}, {0, 5}};
  for (std::size_t k = 0; k < std::size(pairs); ++k) {
    hub_exchange exchange{s.groups[k], s.rank};
    auto group = make_group(s, k, exchange, s.size);
    const std::size_t count = s.rank == 0 ? pairs[k].first : pairs[k].second;
    const std::string what =
        "counts " + std::to_string(pairs[k].first) + " and " + std::to_string(pairs[k].second);
    const work_stream on;
    const device_floats in{count}, out{count};
    in.fill_bytes(0, on);
    out.fill_bytes(0, on);
    auto launched = group->all_reduce(in.data(), out.data(), count, on.get());
    if (!launched) {
      v.expect(false, launched.error().message());
      continue;
    }
    await(*group, *launched);
    const result<void> outcome = group->outcome(*launched);
    v.expect(!outcome && outcome.error() == errc::mismatch, what + " end as mismatch");
    if (!outcome) v.expect(outcome.error().culprit() == 1 - s.rank, what + " name the other rank");
    std::vector<float> got(count);
    out.read(0, got.data(), count, on);
    std::size_t numbers = 0;
    for (float x : got) numbers += std::isnan(x) ? 0 : 1;
    v.expect(numbers == 0, what + ": the output is all NaN");
    const auto later = group->all_reduce(in.data(), out.data(), count, on.get());
    v.expect(!later && later.error() == errc::revoked, what + ": the group is revoked afterwards");
    exchange.barrier().value();
  }
  return v.code();
}

int replays(const rank_setting& s) {
  verdicts v{s};
  const device here{s.device};
  hub_exchange exchange{s.groups[0], s.rank};
  auto group = make_group(s, 0, exchange, s.size, (std::uint64_t{1} << 32) - 20'000);
  const std::size_t counts[] = {2, 4096, 50'000, 4'500'000};
  const work_stream on;
  std::vector<std::unique_ptr<device_floats>> in, out;
  for (std::size_t k = 0; k < std::size(counts); ++k) {
    in.push_back(std::make_unique<device_floats>(counts[k]));
    out.push_back(std::make_unique<device_floats>(counts[k]));
    std::vector<float> values(counts[k]);
    for (std::size_t i = 0; i < counts[k]; ++i)
      values[i] = value_of(s.rank, i, static_cast<std::uint32_t>(k));
    in[k]->write(0, values.data(), counts[k], on);
  }
  // 10,000 replays pass the step of the counter's upper part: 4 operations each, begun 20,000 below
  const captured_graph graph{
      on, [&] {
        for (std::size_t k = 0; k < std::size(counts); ++k) {
          const completion c = group->all_reduce(in[k]->data(), out[k]->data(), counts[k], on.get()).value();
          v.expect(c.sequence == 0, "captured operations have no completion");
        }
      }};
  const int times = s.small ? 20 : 10'000;
  for (int i = 0; i < times; ++i) graph.launch(on);
  on.synchronize();
  v.expect(group->status().has_value(), "the status stays clean");
  for (std::size_t k = 0; k < std::size(counts); ++k) {
    std::vector<float> got(counts[k]);
    out[k]->read(0, got.data(), counts[k], on);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < counts[k]; ++i)
      wrong += got[i] == value_of(0, i, static_cast<std::uint32_t>(k)) +
                             value_of(1, i, static_cast<std::uint32_t>(k))
                   ? 0
                   : 1;
    v.expect(wrong == 0, std::to_string(wrong) + " wrong elements of " + std::to_string(counts[k]) +
                             " after the replays");
  }
  sum_checker checker{v, *group, 1000};
  checker.check(1000, placement::separate, 77);  // a plain launch after replays
  return v.code();
}

/// Rank 1 never calls: rank 0's kernel is aborted; then stale replays, before and after the group is gone.
int abort_and_stale_replays(const rank_setting& s) {
  verdicts v{s};
  const device here{s.device};
  hub_exchange exchange{s.groups[0], s.rank};
  auto group = make_group(s, 0, exchange, s.size);
  if (s.rank != 0) {
    exchange.barrier().value();
    return v.code();
  }
  for (std::size_t count : {std::size_t{6'000'000}}) {
    const work_stream on;
    const device_floats in{count}, out{count};
    in.fill_bytes(0, on);
    out.fill_bytes(0, on);
    const captured_graph graph{
        on, [&] { static_cast<void>(group->all_reduce(in.data(), out.data(), count, on.get()).value()); }};
    auto launched = group->all_reduce(in.data(), out.data(), count, on.get()).value();
    std::this_thread::sleep_for(std::chrono::milliseconds{50});  // nothing to wait for: rank 1 never comes
    v.expect(!group->is_done(launched), "the kernel waits for its peer");
    const auto start = clock::now();
    group->abort(errc::timed_out, 1);
    await(*group, launched);
    std::printf("  abort to the end of a waiting kernel: %.3f ms\n", milliseconds_since(start));
    v.expect(milliseconds_since(start) < 20, "an abort ends the kernel within 20 ms");
    v.expect(group->outcome(launched).error() == errc::timed_out, "the cause arrives");
    const auto all_nan = [&] {
      std::vector<float> got(count);
      out.read(0, got.data(), count, on);
      std::size_t numbers = 0;
      for (float x : got) numbers += std::isnan(x) ? 0 : 1;
      return numbers == 0;
    };
    v.expect(all_nan(), "the aborted output is all NaN");
    for (bool with_group : {true, false}) {
      if (!with_group) group.reset();
      out.fill_bytes(0, on);
      const auto replay = clock::now();
      graph.launch(on);
      on.synchronize();
      v.expect(milliseconds_since(replay) < 20, "a stale replay ends at once");
      v.expect(all_nan(), "a stale replay leaves NaN");
    }
  }
  exchange.barrier().value();
  return v.code();
}

/// Rank 1 is killed in the middle of large operations; the parent's word lets rank 0 abort.
int peer_killed(const rank_setting& s) {
  verdicts v{s};
  const device here{s.device};
  const std::size_t count = 32u << 20;
  const bool second_life = s.groups.size() == 1;  // the parent gives a respawned rank only the last group
  if (!second_life) {
    hub_exchange exchange{s.groups[0], s.rank};
    auto group = make_group(s, 0, exchange, s.size);
    const work_stream on;
    const device_floats in{count}, out{count};
    in.fill_bytes(0, on);
    exchange.barrier().value();
    if (s.rank == 1) {  // until killed
      for (std::uint64_t k = 0;; ++k) {
        static_cast<void>(group->all_reduce(in.data(), out.data(), count, on.get()).value());
        if (k % 8 == 7) on.synchronize();
      }
    }
    completion last;
    // the driver queues about a thousand: when the last is launched, most are still to run
    for (int k = 0; k < 2000; ++k) last = group->all_reduce(in.data(), out.data(), count, on.get()).value();
    char word = 'r';
    const bool told = ::write(s.control, &word, 1) == 1 && ::read(s.control, &word, 1) == 1;
    v.expect(!group->is_done(last), "operations were under way when the peer was killed");
    const auto start = clock::now();
    const std::uint64_t done_before = *last.flag;
    group->abort(errc::peer_lost, 1);
    completion running = last;
    running.sequence = done_before + 1;
    await(*group, running);
    const double took = milliseconds_since(start);
    std::printf("  peer killed: kernel %llu ended %.3f ms after the abort word\n",
                static_cast<unsigned long long>(running.sequence), took);
    v.expect(told, "the parent spoke");
    v.expect(took < 20, "the running kernel ends within 20 ms");
    on.synchronize();
    v.expect(group->outcome(last).error() == errc::peer_lost, "the last operation ended with peer_lost");
    std::vector<float> got(1024);
    out.read(count - 1024, got.data(), 1024, on);
    v.expect(std::isnan(got[0]) && std::isnan(got[1023]), "its output is NaN");
    group.reset();

    lonely_exchange alone;
    auto single = make_group(s, 1, alone, 1);
    sum_checker checker{v, *single, 5000};
    for (std::uint32_t k = 0; k < 1000; ++k) checker.check(1 + k * 5, placement::separate, k);
  }
  hub_exchange exchange{s.groups.back(), s.rank};
  auto group = make_group(s, 2, exchange, s.size);
  sum_checker checker{v, *group, 100'000};
  for (std::uint32_t k = 0; k < 1000; ++k)
    checker.check(1 + k * 97 % 99'000, k % 2 == 0 ? placement::separate : placement::in_place, k);
  return v.code();
}

}  // namespace

const std::vector<scenario>& all_scenarios() {
  static const std::vector<scenario> list{
      {"sums", sums, false},
      {"storm", storm, false},
      {"roll_over", roll_over, false},
      {"mismatch", mismatch, false},
      {"replays", replays, false},
      {"abort_and_stale_replays", abort_and_stale_replays, false},
      {"peer_killed", peer_killed, true},
  };
  static const std::vector<scenario> all = [] {
    std::vector<scenario> joined = list;
    for (const scenario& s : collective_scenarios()) joined.push_back(s);
    return joined;
  }();
  return all;
}

}  // namespace chorale::gpu_test
