#include "all_reduce.hpp"

#include <chorale/chorale.hpp>
#include <chorale/collective/selection.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace chorale::bench {
namespace {

constexpr duration worth_measuring = std::chrono::milliseconds{250};

/// Sums of these are exact in f32, so that every algorithm must give the same bits.
float value_of(rank_t rank, std::size_t i) {
  return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 3) % 64);
}

float expected(rank_t ranks, std::size_t i) {
  float sum = 0;
  for (rank_t r = 0; r < ranks; ++r) sum += value_of(r, i);
  return sum;
}

double microseconds(duration d) { return static_cast<double>(d.count()) / 1e3; }

struct measurement {
  double time_us = 0;
  double p99_us = 0;
  std::uint64_t wrong = 0;
};

struct row {
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
  measurement out_of_place;
  measurement in_place;
};

class meter {
 public:
  meter(communicator& comm, const all_reduce_options& options) : comm_{comm}, options_{options} {
    const auto most = static_cast<std::size_t>(options.end / sizeof(float));
    in_.resize(most);
    out_.resize(most);
  }

  task<row> measure(std::uint64_t bytes) {
    row r;
    r.count = bytes / sizeof(float);
    r.bytes = r.count * sizeof(float);
    task<measurement> apart = one(r.count, false);
    r.out_of_place = co_await std::move(apart);
    task<measurement> in_place = one(r.count, true);
    r.in_place = co_await std::move(in_place);
    co_return r;
  }

 private:
  task<measurement> one(std::size_t count, bool in_place) {
    measurement m;
    fill(count);
    const std::span<float> to = in_place ? std::span{in_}.first(count) : std::span{out_}.first(count);
    const std::span<const float> from = std::span{in_}.first(count);
    if (options_.check) {
      std::fill_n(out_.begin(), count, std::nanf(""));
      co_await comm_.all_reduce(from, to);
      for (std::size_t i = 0; i < count; ++i) m.wrong += to[i] != expected(comm_.size(), i);
      task<float> all_wrong = total(static_cast<float>(m.wrong));
      m.wrong = static_cast<std::uint64_t>(co_await std::move(all_wrong));
      // Repeated in place, sums would run off to infinity: zeroes stay what they are and move as many bytes.
      if (in_place) std::fill_n(in_.begin(), count, 0.0F);
    }
    for (int i = 0; i < options_.warmup; ++i) co_await comm_.all_reduce(from, to);
    int iterations = options_.iterations;
    if (iterations == 0) {
      task<int> choosing = choose_iterations(from, to);
      iterations = co_await std::move(choosing);
    }
    samples_.clear();
    samples_.reserve(static_cast<std::size_t>(iterations));
    co_await comm_.barrier();
    const time_point begin = steady_now();
    time_point last = begin;
    for (int i = 0; i < iterations; ++i) {
      co_await comm_.all_reduce(from, to);
      const time_point now = steady_now();
      samples_.push_back(now - last);
      last = now;
    }
    const double mine = microseconds(last - begin) / iterations;
    task<float> sum = total(static_cast<float>(mine));
    m.time_us = static_cast<double>(co_await std::move(sum)) / comm_.size();
    const auto rank99 = static_cast<std::ptrdiff_t>(0.99 * static_cast<double>(samples_.size() - 1));
    std::nth_element(samples_.begin(), samples_.begin() + rank99, samples_.end());
    m.p99_us = microseconds(samples_[static_cast<std::size_t>(rank99)]);
    co_return m;
  }

  /// The slowest rank decides, so that all make the same number of calls.
  task<int> choose_iterations(std::span<const float> from, std::span<float> to) {
    const time_point begin = steady_now();
    for (int i = 0; i < 5; ++i) co_await comm_.all_reduce(from, to);
    task<float> sum = total(static_cast<float>((steady_now() - begin).count()) / 5);
    const auto per_call = std::max(1.0F, co_await std::move(sum) / static_cast<float>(comm_.size()));
    co_return static_cast<int>(
        std::clamp(static_cast<float>(worth_measuring.count()) / per_call, 20.0F, 20000.0F));
  }

  task<float> total(float mine) {
    float sum = mine;
    co_await comm_.all_reduce(std::span{&sum, 1});
    co_return sum;
  }

  void fill(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) in_[i] = value_of(comm_.rank(), i);
  }

  communicator& comm_;
  const all_reduce_options& options_;
  std::vector<float> in_;
  std::vector<float> out_;
  std::vector<duration> samples_;
};

class printer {
 public:
  printer(const communicator& comm, const all_reduce_options& options)
      : options_{options}, ranks_{comm.size()} {
    for (rank_t r = 0; r < ranks_; ++r)
      if (r != comm.rank())
        transport_ = transport_.empty() || transport_ == comm.transport_to(r)
                         ? std::string{comm.transport_to(r)}
                         : std::string{"mixed"};
    if (transport_.empty()) transport_ = "self";
  }

  [[nodiscard]] const std::string& transport() const noexcept { return transport_; }

  void head() const {
    if (options_.format == report_format::json) return;
    std::printf("# all_reduce of f32, sum, on %d rank%s over %s; warm-up %d calls, check %s\n", ranks_,
                ranks_ == 1 ? "" : "s", transport_.c_str(), options_.warmup, options_.check ? "on" : "off");
    std::printf(
        "#                                          out-of-place                                in-place\n");
    std::printf("# %10s %12s %10s %10s %8s %8s %6s  %10s %10s %8s %8s %6s\n", "size", "count", "time", "p99",
                "algbw", "busbw", "#wrong", "time", "p99", "algbw", "busbw", "#wrong");
    std::printf("# %10s %12s %10s %10s %8s %8s %6s  %10s %10s %8s %8s %6s\n", "(B)", "(elements)", "(us)",
                "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)", "(GB/s)", "(GB/s)", "");
  }

  void line(const row& r) const {
    if (options_.format == report_format::json) {
      json(r, r.out_of_place, false);
      json(r, r.in_place, true);
    } else {
      std::printf("  %10llu %12llu", static_cast<unsigned long long>(r.bytes),
                  static_cast<unsigned long long>(r.count));
      for (const measurement* m : {&r.out_of_place, &r.in_place})
        std::printf(" %10.2f %10.2f %8.3f %8.3f %6s ", m->time_us, m->p99_us, algbw(r, *m), busbw(r, *m),
                    options_.check ? std::to_string(m->wrong).c_str() : "N/A");
      std::printf("\n");
    }
    std::fflush(stdout);
  }

 private:
  [[nodiscard]] static double algbw(const row& r, const measurement& m) {
    return static_cast<double>(r.bytes) / m.time_us / 1e3;
  }
  [[nodiscard]] double busbw(const row& r, const measurement& m) const {
    return algbw(r, m) * 2 * (ranks_ - 1) / ranks_;
  }
  void json(const row& r, const measurement& m, bool in_place) const {
    nlohmann::ordered_json object;
    object["collective"] = "all_reduce";
    object["bytes"] = r.bytes;
    object["count"] = r.count;
    object["dtype"] = "f32";
    object["op"] = "sum";
    object["in_place"] = in_place;
    object["ranks"] = ranks_;
    object["transport"] = transport_;
    object["algorithm"] = options_.algorithm.empty() ? "auto" : options_.algorithm;
    object["time_us"] = m.time_us;
    object["p99_us"] = m.p99_us;
    object["algbw"] = algbw(r, m);
    object["busbw"] = busbw(r, m);
    object["wrong"] = options_.check ? nlohmann::ordered_json(m.wrong) : nlohmann::ordered_json(nullptr);
    std::printf("%s\n", object.dump().c_str());
  }

  const all_reduce_options& options_;
  rank_t ranks_;
  std::string transport_;
};

}  // namespace

std::vector<std::uint64_t> sizes_of(const all_reduce_options& o) {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t s = o.begin; s < o.end; s = o.step != 0 ? s + o.step : s * o.factor) sizes.push_back(s);
  sizes.push_back(o.end);
  return sizes;
}

task<int> bench_all_reduce(all_reduce_options options) {
  communicator_options settings;
  settings.algorithm = options.algorithm;
  task<communicator> joining = communicator::join(settings);
  communicator comm = co_await std::move(joining);
  const printer out{comm, options};
  if (comm.size() > 1 && !options.required_transport.empty() && out.transport() != options.required_transport)
    throw failure{
        error{errc::unsupported, "the ranks are joined by " + out.transport() + ", not by " +
                                     options.required_transport +
                                     "; start them on one host, in one network and pid namespace, for shm"}};
  if (comm.rank() == 0) out.head();
  meter measuring{comm, options};
  std::uint64_t wrong = 0;
  for (const std::uint64_t bytes : sizes_of(options)) {
    task<row> one = measuring.measure(bytes);
    const row r = co_await std::move(one);
    wrong += r.out_of_place.wrong + r.in_place.wrong;
    if (comm.rank() == 0) out.line(r);
  }
  co_await comm.barrier();
  if (comm.rank() == 0 && options.format == report_format::table && options.check)
    std::printf("# wrong values: %llu%s\n", static_cast<unsigned long long>(wrong), wrong == 0 ? ", OK" : "");
  co_return wrong == 0 ? 0 : 1;
}

}  // namespace chorale::bench
