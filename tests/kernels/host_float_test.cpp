// Conversions of the 16- and 8-bit floats: every code, every boundary between codes, constants.
#include "host_reference.hpp"
#include <chorale/kernels/element.hpp>
#include <chorale/kernels/host_fold.hpp>

#include <boost/test/unit_test.hpp>

#include <random>

using namespace chorale;
using reference::code;

namespace {

// At compile time.
static_assert(f16{1.5f}.bits == 0x3e00 && static_cast<float>(f16{-2.25f}) == -2.25f);
static_assert(f16{65519.0f}.bits == 0x7bff && f16{65520.0f}.bits == 0x7c00 && f16{-1e30f}.bits == 0xfc00);
static_assert(f16{0x1p-24f}.bits == 1 && f16{0x1p-25f}.bits == 0 && f16{0x1.8p-24f}.bits == 2);
static_assert(bf16{1.0f}.bits == 0x3f80 && bf16{0x1.01p0f}.bits == 0x3f80 && bf16{0x1.03p0f}.bits == 0x3f82);
static_assert(f8e4m3{448.0f}.bits == 0x7e && f8e4m3{1000.0f}.bits == 0x7e && f8e5m2{-1e30f}.bits == 0xfb);
static_assert(f8e4m3{std::numeric_limits<float>::infinity()}.bits == 0x7e);
static_assert(bf16{-std::numeric_limits<float>::quiet_NaN()}.bits == not_a_number<bf16_format>.bits);
static_assert(dtype_of<f16> == dtype::f16 && dtype_of<bf16> == dtype::bf16 && element<f8e4m3> &&
              element<f8e5m2>);

template <class T>
float scalar_value(code c) {
  return static_cast<float>(T::from_bits(static_cast<typename T::code_type>(c)));
}
float scalar_value(dtype t, code c) {
  switch (t) {
    case dtype::f16:
      return scalar_value<f16>(c);
    case dtype::bf16:
      return scalar_value<bf16>(c);
    case dtype::f8e4m3:
      return scalar_value<f8e4m3>(c);
    default:
      return scalar_value<f8e5m2>(c);
  }
}
code scalar_code(dtype t, float x) {
  switch (t) {
    case dtype::f16:
      return f16{x}.bits;
    case dtype::bf16:
      return bf16{x}.bits;
    case dtype::f8e4m3:
      return f8e4m3{x}.bits;
    default:
      return f8e5m2{x}.bits;
  }
}

/// Floats where rounding is decided: all values, the middles between neighbours, one step around both, and a
/// sample of everything else.
std::vector<float> hard_floats(dtype t) {
  std::vector<float> found;
  const auto around = [&](float x) {
    for (float y : {x, std::nextafter(x, 0.0f), std::nextafter(x, 1e38f)})
      found.push_back(y), found.push_back(-y);
  };
  const code last = reference::nan_code(t);
  for (code c = 0; c < last; ++c) {
    const double here = reference::value(t, c), next = reference::value(t, c + 1);
    if (!std::isfinite(here)) continue;
    around(static_cast<float>(here));
    if (std::isfinite(next)) around(static_cast<float>((here + next) / 2));
  }
  const std::uint32_t stride = 4099;
  for (std::uint32_t bits = 0; bits < 0xffffffffu - stride; bits += stride)
    found.push_back(reference::as_float(bits));
  for (float x : {65519.99f, 65520.0f, 3.3895e38f, 3.4e38f, 464.0f, 465.0f, 61440.0f, 1e30f}) around(x);
  for (std::uint32_t bits : {0x7f800000u, 0xff800000u, 0x7f800001u, 0x7fc00000u, 0xffffffffu, 0x00000001u})
    found.push_back(reference::as_float(bits));
  return found;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(host_floats)

BOOST_AUTO_TEST_CASE(every_code_has_its_value_and_comes_back) {
  for (dtype t : reference::small_floats) {
    std::size_t wrong = 0;
    for (code c = 0; c <= reference::all_ones(t); ++c) {
      const float x = scalar_value(t, c);
      const double wanted = reference::value(t, c);
      const bool same =
          std::isnan(wanted) ? std::isnan(x) : (x == wanted && std::signbit(x) == std::signbit(wanted));
      const code back = scalar_code(t, x);
      // The 8-bit conversion saturates, also what was an infinity.
      const code home = std::isnan(wanted)   ? reference::nan_code(t)
                        : std::isinf(wanted) ? reference::nearest(t, wanted)
                                             : c;
      if (!same || back != home) ++wrong;
    }
    BOOST_TEST(wrong == 0u, wrong << " codes of " << name_of(t));
  }
}

BOOST_AUTO_TEST_CASE(narrowing_rounds_to_nearest_even_in_every_instruction_set) {
  for (dtype t : reference::small_floats) {
    const std::vector<float> in = hard_floats(t);
    std::vector<code> wanted(in.size());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < in.size(); ++i) {
      wanted[i] = reference::nearest(t, static_cast<double>(in[i]));
      if (scalar_code(t, in[i]) != wanted[i]) ++wrong;
    }
    BOOST_TEST(wrong == 0u, wrong << " of " << in.size() << " floats as " << name_of(t));
    for (auto set : reference::sets()) {
      std::vector<std::byte> out(in.size() * size_of(t));
      find_host_folding(t, reduction::sum, set)
          .value()
          .round(out.data(), reinterpret_cast<const std::byte*>(in.data()), in.size());
      const std::string why = reference::difference(t, out.data(), wanted);
      BOOST_TEST(why == "", name_of(t) << " " << name_of(set) << ": " << why);
    }
  }
}

BOOST_AUTO_TEST_CASE(widening_is_exact_in_every_instruction_set) {
  for (dtype t : reference::small_floats) {
    std::vector<code> codes(reference::all_ones(t) + 1);
    for (code c = 0; c < codes.size(); ++c) codes[c] = c;
    const auto in = reference::bytes(t, codes);
    for (auto set : reference::sets()) {
      std::vector<float> out(codes.size());
      find_host_folding(t, reduction::sum, set)
          .value()
          .begin(reinterpret_cast<std::byte*>(out.data()), in.data(), codes.size());
      std::size_t wrong = 0;
      for (code c = 0; c < codes.size(); ++c) {
        const double wanted = reference::value(t, c);
        if (std::isnan(wanted) ? !std::isnan(out[c])
                               : out[c] != wanted || std::signbit(out[c]) != std::signbit(wanted))
          ++wrong;
      }
      BOOST_TEST(wrong == 0u, wrong << " codes of " << name_of(t) << " " << name_of(set));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
