// Folds in a wider accumulator, averages, scaling.
#include "host_reference.hpp"
#include <chorale/kernels/element.hpp>
#include <chorale/kernels/host_fold.hpp>
#include <chorale/kernels/host_scale.hpp>

#include <boost/test/unit_test.hpp>

#include <random>

using namespace chorale;
using reference::code;

namespace {

constexpr std::uint64_t seed = 1130;

std::vector<std::vector<code>> contributions(dtype t, std::size_t ranks, std::size_t count, double spread) {
  std::mt19937_64 random{seed + static_cast<std::uint64_t>(t)};
  std::uniform_real_distribution<double> draw{-spread, spread};
  std::vector<std::vector<code>> made(ranks, std::vector<code>(count));
  for (auto& of_rank : made)
    for (code& c : of_rank)
      c = reference::is_integer(t) ? random() & reference::all_ones(t) : reference::rounded(t, draw(random));
  return made;
}

/// The fold as a rank runs it: the output is the last input's memory.
std::vector<std::byte> folded(dtype t, reduction op, instruction_set set,
                              const std::vector<std::vector<code>>& parts, bool average) {
  const host_folding folding = find_host_folding(t, op, set).value();
  const std::size_t count = parts[0].size(), last = parts.size() - 1;
  std::vector<std::byte> acc(count * folding.accumulator_bytes), inout = reference::bytes(t, parts[last]);
  const auto ranks = static_cast<std::uint32_t>(parts.size());
  folding.begin(acc.data(), reference::bytes(t, parts[0]).data(), count);
  if (last == 0) {
    average ? folding.round_divided(inout.data(), acc.data(), count, ranks)
            : folding.round(inout.data(), acc.data(), count);
    return inout;
  }
  for (std::size_t r = 1; r < last; ++r)
    folding.fold(acc.data(), acc.data(), reference::bytes(t, parts[r]).data(), count);
  average ? folding.finish_divided(inout.data(), acc.data(), inout.data(), count, ranks)
          : folding.finish(inout.data(), acc.data(), inout.data(), count);
  return inout;
}

/// The same by the reference: f32 steps for small floats, whole combinations for others.
std::vector<code> expected(dtype t, reduction op, const std::vector<std::vector<code>>& parts, bool average) {
  const bool widened =
      size_of(t) < 4 && !reference::is_integer(t) && op != reduction::min && op != reduction::max;
  const dtype steps = widened ? dtype::f32 : t;
  std::vector<code> out(parts[0].size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto widen = [&](code c) {
      return widened ? reference::rounded(dtype::f32, reference::value(t, c)) : c;
    };
    code acc = widen(parts[0][i]);
    for (std::size_t r = 1; r < parts.size(); ++r)
      acc = reference::combined(steps, op, acc, widen(parts[r][i]));
    if (average)
      acc = reference::rounded(steps, reference::value(steps, acc) / static_cast<double>(parts.size()));
    out[i] = widened ? reference::nearest(t, reference::value(dtype::f32, acc)) : acc;
  }
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(host_foldings)

BOOST_AUTO_TEST_CASE(left_folds_of_every_type) {
  for (dtype t : reference::types)
    for (std::size_t ranks : {1u, 2u, 3u, 8u})
      for (reduction op : {reduction::sum, reduction::prod, reduction::min, reduction::max}) {
        const auto parts = contributions(t, ranks, 203, op == reduction::prod ? 2.0 : 100.0);
        const auto wanted = expected(t, op, parts, false);
        for (auto set : reference::sets()) {
          const auto got = folded(t, op, set, parts, false);
          const std::string why = reference::difference(t, got.data(), wanted);
          BOOST_TEST(why == "", name_of(op) << " of " << ranks << " " << name_of(t) << " " << name_of(set)
                                            << ": " << why);
        }
      }
}

BOOST_AUTO_TEST_CASE(folds_in_f32_err_by_one_rounding_of_the_type) {
  for (dtype t : reference::small_floats) {
    const auto shape = reference::shape_of(t);
    const double unit = std::ldexp(1.0, -shape.mantissa_bits - 1), unit32 = std::ldexp(1.0, -24);
    const double subnormal =
        std::ldexp(1.0, 1 - (1 << (shape.exponent_bits - 1)) + 1 - shape.mantissa_bits - 1);
    const std::size_t ranks = 64, count = 500;
    const auto parts = contributions(t, ranks, count, 3.0);
    for (auto set : reference::sets()) {
      const auto got = folded(t, reduction::sum, set, parts, false);
      std::size_t beyond = 0;
      for (std::size_t i = 0; i < count; ++i) {
        double exact = 0, sizes = 0;
        for (const auto& part : parts)
          exact += reference::value(t, part[i]), sizes += std::fabs(reference::value(t, part[i]));
        const double drift = static_cast<double>(ranks - 1) * unit32 * sizes * (1 + 1e-4);
        const double error = std::fabs(reference::value(t, reference::element(t, got.data(), i)) - exact);
        if (error > unit * (std::fabs(exact) + drift) + drift + subnormal) ++beyond;
      }
      BOOST_TEST(beyond == 0u, beyond << " elements of " << name_of(t) << " " << name_of(set));
    }
  }
}

BOOST_AUTO_TEST_CASE(averages_divide_before_they_round) {
  for (dtype t : reference::floats)
    for (std::size_t ranks : {1u, 2u, 3u, 7u}) {
      const auto parts = contributions(t, ranks, 97, 300.0);
      const auto wanted = expected(t, reduction::avg, parts, true);
      for (auto set : reference::sets()) {
        const auto got = folded(t, reduction::avg, set, parts, true);
        const std::string why = reference::difference(t, got.data(), wanted);
        BOOST_TEST(why == "", ranks << " " << name_of(t) << " " << name_of(set) << ": " << why);
      }
    }
  // Sums that the type could not hold.
  for (auto [t, large] : {std::pair{dtype::f16, 60000.0},
                          {dtype::bf16, 3e38 / 4},
                          {dtype::f8e4m3, 448.0},
                          {dtype::f8e5m2, 57344.0}}) {
    const code c = reference::nearest(t, large);
    const std::vector<std::vector<code>> parts(4, std::vector<code>(70, c));
    for (auto set : reference::sets())
      BOOST_TEST(reference::difference(t, folded(t, reduction::avg, set, parts, true).data(), parts[0]) == "",
                 name_of(t) << " " << name_of(set));
  }
  BOOST_TEST(!find_host_folding(dtype::f16, reduction::sum).value().finish_divided);
  BOOST_TEST(!find_host_folding(dtype::f32, reduction::max).value().round_divided);
}

BOOST_AUTO_TEST_CASE(accumulators) {
  BOOST_TEST(find_host_folding(dtype::f16, reduction::sum).value().accumulator_bytes == 4u);
  BOOST_TEST(find_host_folding(dtype::f8e4m3, reduction::prod).value().accumulator_bytes == 4u);
  BOOST_TEST(find_host_folding(dtype::f16, reduction::max).value().accumulator_bytes == 2u);
  BOOST_TEST(find_host_folding(dtype::i8, reduction::sum).value().accumulator_bytes == 1u);
  BOOST_TEST(find_host_folding(dtype::f64, reduction::avg).value().accumulator_bytes == 8u);
  const auto refused = find_host_folding(dtype::f16, reduction::bit_or);
  BOOST_REQUIRE(!refused);
  BOOST_TEST((refused.error().code() == errc::unsupported));
}

BOOST_AUTO_TEST_CASE(division_rounds_floats_once_and_truncates_integers) {
  for (dtype t : reference::floats)
    for (std::uint32_t ranks : {1u, 3u, 10u, 4096u}) {
      const auto in = contributions(t, 1, 131, 400.0)[0];
      std::vector<code> wanted(in.size());
      for (std::size_t i = 0; i < in.size(); ++i)
        wanted[i] = reference::rounded(t, reference::value(t, in[i]) / ranks);
      for (auto set : reference::sets()) {
        auto inout = reference::bytes(t, in);
        find_host_division(t, set).value()(inout.data(), in.size(), ranks);
        const std::string why = reference::difference(t, inout.data(), wanted);
        BOOST_TEST(why == "", name_of(t) << " / " << ranks << " " << name_of(set) << ": " << why);
      }
    }
  const auto quotient = [](dtype t, code c, std::uint32_t ranks) {
    auto inout = reference::bytes(t, {c});
    find_host_division(t).value()(inout.data(), 1, ranks);
    return reference::element(t, inout.data(), 0);
  };
  BOOST_TEST(quotient(dtype::i8, 0xf9, 2) == 0xfdu);  // -7 / 2 = -3
  BOOST_TEST(quotient(dtype::u8, 0xf9, 2) == 124u);
  BOOST_TEST(quotient(dtype::i8, 0x80, 4000000000u) == 0u);
  BOOST_TEST(quotient(dtype::i32, 0x80000000u, 1) == 0x80000000u);
  BOOST_TEST(quotient(dtype::u32, 0xffffffffu, 3) == 0x55555555u);
  BOOST_TEST(quotient(dtype::i64, 1ull << 63, 2) == 0xc000000000000000u);
  BOOST_TEST(quotient(dtype::u64, ~0ull, 2) == ~0ull / 2);
}

BOOST_AUTO_TEST_CASE(scaling_multiplies_by_one_element) {
  for (dtype t : reference::types) {
    const auto in = contributions(t, 2, 77, 20.0);
    const code factor = in[1][0];
    std::vector<code> wanted(in[0].size());
    for (std::size_t i = 0; i < wanted.size(); ++i)
      wanted[i] = reference::combined(t, reduction::prod, in[0][i], factor);
    for (auto set : reference::sets()) {
      const auto source = reference::bytes(t, in[0]), scalar = reference::bytes(t, {factor});
      auto inout = source;
      std::vector<std::byte> out(source.size());
      find_host_scaling(t, set).value()(out.data(), source.data(), wanted.size(), scalar.data());
      find_host_scaling(t, set).value()(inout.data(), inout.data(), wanted.size(), scalar.data());
      BOOST_TEST(reference::difference(t, out.data(), wanted) == "", name_of(t) << " " << name_of(set));
      BOOST_TEST((out == inout));
    }
  }
  BOOST_TEST(!find_host_scaling(dtype::none));
  BOOST_TEST(!find_host_division(dtype::none));
}

BOOST_AUTO_TEST_SUITE_END()
