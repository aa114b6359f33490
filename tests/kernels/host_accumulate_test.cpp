// Accumulates of several threads into the same elements: none is lost, and each is the collectives'
// operation.
#include "host_reference.hpp"
#include <chorale/kernels/host_accumulate.hpp>

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <thread>
#include <vector>

using namespace chorale;
using reference::code;

namespace {

constexpr int threads = 4;

/// Every thread adds `times` times; whole numbers that every type holds exactly.
void add_from_all_threads(dtype t, int times) {
  constexpr std::size_t count = 200;
  const std::size_t bytes = size_of(t);
  std::vector<std::uint64_t> target(count);  // aligned for any type
  const code zero = reference::is_integer(t) ? 0 : reference::nearest(t, 0.0);
  const code one = reference::is_integer(t) ? 1 : reference::nearest(t, 1.0);
  auto* const at = reinterpret_cast<std::byte*>(target.data());
  const auto zeroes = reference::bytes(t, std::vector<code>(count, zero));
  std::ranges::copy(zeroes, at);
  const auto ones = reference::bytes(t, std::vector<code>(count, one));
  const host_reduction combine = find_host_reduction(t, reduction::sum).value();
  std::atomic<int> ready{0};
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i)
    all.emplace_back([&] {
      ++ready;
      while (ready != threads) std::this_thread::yield();
      for (int k = 0; k < times; ++k) accumulate_atomically(at, ones.data(), count, bytes, combine);
    });
  for (auto& each : all) each.join();
  const double whole = threads * times;
  const code wanted =
      reference::is_integer(t) ? static_cast<code>(threads * times) : reference::nearest(t, whole);
  const std::string why = reference::difference(t, at, std::vector<code>(count, wanted));
  BOOST_TEST(why == "", name_of(t) << ": " << why);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(host_accumulate)

BOOST_AUTO_TEST_CASE(no_accumulate_of_any_thread_is_lost) {
  for (const dtype t : {dtype::i32, dtype::u32, dtype::i64, dtype::u64, dtype::f32, dtype::f64})
    add_from_all_threads(t, 2000);
  for (const dtype t : {dtype::i8, dtype::u8}) add_from_all_threads(t, 25);
  for (const dtype t : {dtype::f16, dtype::bf16}) add_from_all_threads(t, 32);
  for (const dtype t : {dtype::f8e4m3, dtype::f8e5m2}) add_from_all_threads(t, 2);
}

BOOST_AUTO_TEST_CASE(it_is_the_operation_of_the_collectives) {
  for (const dtype t : {dtype::i8, dtype::u64, dtype::f16, dtype::f32, dtype::f64, dtype::f8e5m2})
    for (const reduction op : {reduction::sum, reduction::prod, reduction::min, reduction::max}) {
      std::vector<code> left, right;
      for (code c = 0; c < 137; ++c) left.push_back(c * 7 & reference::all_ones(t));
      for (code c = 0; c < 137; ++c) right.push_back(~(c * 13) & reference::all_ones(t));
      std::vector<std::uint64_t> target(137);
      auto* const at = reinterpret_cast<std::byte*>(target.data());
      const auto l = reference::bytes(t, left), r = reference::bytes(t, right);
      std::ranges::copy(l, at);
      const host_reduction combine = find_host_reduction(t, op).value();
      accumulate_atomically(at, r.data(), left.size(), size_of(t), combine);
      std::vector<std::byte> wanted(l.size());
      combine(wanted.data(), l.data(), r.data(), left.size());
      BOOST_TEST(std::equal(wanted.begin(), wanted.end(), at), name_of(op) << " of " << name_of(t));
    }
}

BOOST_AUTO_TEST_SUITE_END()
