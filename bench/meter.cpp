#include "meter.hpp"

#include <algorithm>

namespace chorale::bench {
namespace {

double microseconds(duration d) { return static_cast<double>(d.count()) / 1e3; }

void grow(plain_buffer& buffer, std::size_t bytes) {
  if (buffer.size() < bytes) buffer = plain_buffer{bytes};
}

void fill(plain_buffer& buffer, std::byte value) { std::fill_n(buffer.data(), buffer.size(), value); }

}  // namespace

void meter::set(const subject& about) {
  about_ = about;
  const std::size_t element = size_of(about.type);
  first_.what = call_of(about, comm_.rank(), comm_.size());
  second_.what = about.is_exchange() ? call_of(about, comm_.rank(), comm_.size(), half::receiving) : call{};
  const std::size_t in_bytes = first_.what.in_count * element;
  const std::size_t out_bytes = output_count(about, comm_.rank(), comm_.size()) * element;
  grow(in_, about.in_place ? std::max(in_bytes, out_bytes) : in_bytes);
  grow(out_, about.in_place ? 0 : out_bytes);
  first_.what.in = in_.data();
  first_.what.out = second_.what.out = out_.data();
  if (!about.in_place) return;
  const buffer_shape shape = shape_of(first_.what, comm_.rank(), comm_.size());
  // At other ranks than the root, a share has no larger buffer that it is a part of.
  const bool parts = shape.reads && shape.writes;
  first_.what.in = in_.data() + (parts ? shape.in_begins * element : 0);
  first_.what.out = in_.data() + (parts ? shape.out_begins * element : 0);
}

task<void> meter::call_once() {
  if (about_.is_exchange()) {
    started sending = comm_.place(first_).start();
    co_await comm_.place(second_);
    co_await std::move(sending);
  } else {
    co_await comm_.place(first_);
  }
}

task<std::uint64_t> meter::check() {
  const call& receiving = about_.is_exchange() ? second_.what : first_.what;
  const pattern expected{about_.type, first_.what.op, comm_.size()};
  const std::byte never_a_result{0xff};
  fill(in_, never_a_result);
  fill(out_, never_a_result);
  expected.fill(const_cast<std::byte*>(first_.what.in), first_.what.in_count, comm_.rank());
  task<void> once = call_once();
  co_await std::move(once);
  const place at = place_of(about_, comm_.rank(), comm_.size());
  std::uint64_t wrong = expected.count_wrong(*about_.what, at, receiving.out, receiving.out_count);
  fill(in_, std::byte{0});
  fill(out_, std::byte{0});
  co_await comm_.all_reduce(std::span{&wrong, 1});
  co_return wrong;
}

task<timing> meter::time(int iterations, int warmup) {
  auto* const input = const_cast<std::byte*>(first_.what.in);
  const std::size_t bytes = first_.what.in_count * size_of(about_.type);
  const bool exchange = about_.is_exchange();
  samples_.clear();
  samples_.reserve(static_cast<std::size_t>(iterations));
  duration all{0};
  co_await comm_.barrier();
  for (int i = -warmup; i < iterations; ++i) {
    rewrite(input, bytes);
    const time_point begin = steady_now();
    if (exchange) {
      started sending = comm_.place(first_).start();
      co_await comm_.place(second_);
      co_await std::move(sending);
    } else {
      co_await comm_.place(first_);
    }
    const duration took = steady_now() - begin;
    if (i < 0) continue;
    samples_.push_back(took);
    all += took;
  }
  timing measured;
  task<double> comparing = slowest(microseconds(all) / iterations);
  measured.time_us = co_await std::move(comparing);
  const auto rank99 = static_cast<std::ptrdiff_t>(0.99 * static_cast<double>(samples_.size() - 1));
  std::nth_element(samples_.begin(), samples_.begin() + rank99, samples_.end());
  measured.p99_us = microseconds(samples_[static_cast<std::size_t>(rank99)]);
  co_return measured;
}

task<int> meter::choose_iterations(duration budget, int least) {
  constexpr int tries = 3;
  constexpr double most = 20000;
  task<timing> trying = time(tries, 1);
  const timing tried = co_await std::move(trying);
  const double fitting = microseconds(budget) / std::max(tried.time_us, 0.01);
  co_return static_cast<int>(std::clamp(fitting, static_cast<double>(least), most));
}

task<double> meter::slowest(double mine) {
  double most = mine;
  co_await comm_.all_reduce(std::span{&most, 1}, max);
  co_return most;
}

}  // namespace chorale::bench
