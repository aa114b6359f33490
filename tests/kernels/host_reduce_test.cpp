// Every reduction of every type, in every instruction set, against the reference.
#include "host_reference.hpp"
#include <chorale/kernels/host_reduce.hpp>

#include <boost/test/unit_test.hpp>

#include <random>

using namespace chorale;
using reference::code;

namespace {

#if defined(CHORALE_SANITIZED)
constexpr std::size_t partner_stride = 7;  // sanitizer builds are not optimised
#else
constexpr std::size_t partner_stride = 1;
#endif

constexpr reduction arithmetic[] = {reduction::sum, reduction::prod, reduction::min, reduction::max};

void check(dtype t, reduction op, const std::vector<code>& left, const std::vector<code>& right) {
  std::vector<code> wanted(left.size());
  for (std::size_t i = 0; i < left.size(); ++i) wanted[i] = reference::combined(t, op, left[i], right[i]);
  const auto l = reference::bytes(t, left), r = reference::bytes(t, right);
  for (auto set : reference::sets()) {
    std::vector<std::byte> out(l.size());
    find_host_reduction(t, op, set).value()(out.data(), l.data(), r.data(), left.size());
    const std::string why = reference::difference(t, out.data(), wanted);
    BOOST_TEST(why == "", name_of(op) << " of " << name_of(t) << " " << name_of(set) << ": " << why);
  }
}

/// Codes at which 16-bit floats turn: zeros, subnormals, ones, neighbours, largest, infinities, NaNs.
std::vector<code> hard_partners(dtype t) {
  const code sign = code{1} << (reference::width(t) - 1);
  const code one = reference::nearest(t, 1.0), infinity = reference::nearest(t, 1e300);
  std::vector<code> found;
  for (code c :
       {code{0}, code{1}, reference::nearest(t, 0x1p-14), one - 1, one, one + 1, reference::nearest(t, 1.5),
        reference::nearest(t, 3.0), reference::nearest(t, 1000.5), infinity - 1, infinity, infinity + 1,
        reference::nearest(t, 0x1p-120), reference::nan_code(t)})
    found.push_back(c), found.push_back(c | sign);
  return found;
}

/// Random codes with a share of the type's corners.
std::vector<code> sample(dtype t, std::size_t count, std::mt19937_64& random) {
  std::vector<code> made(count);
  const code ones = reference::all_ones(t), top = ones ^ (ones >> 1);
  std::vector<code> corners{0, 1, ones, top, top - 1, top + 1, top | 1};
  if (!reference::is_integer(t)) {
    const auto s = reference::shape_of(t);
    const code infinity = ((code{1} << s.exponent_bits) - 1) << s.mantissa_bits;
    for (code c : {infinity - 1, infinity, infinity + 1, code{1} << s.mantissa_bits})
      corners.push_back(c), corners.push_back(c | top);
  }
  for (code& c : made) {
    const std::uint64_t draw = random();
    c = draw % 4 == 0 ? corners[(draw >> 8) % corners.size()] : random() & ones;
  }
  return made;
}

const std::vector<reduction>& operations_of(dtype t) {
  static const std::vector<reduction> of_floats{reduction::sum, reduction::prod, reduction::min,
                                                reduction::max, reduction::avg,  reduction::premul_sum};
  static const std::vector<reduction> of_integers{
      reduction::sum,        reduction::prod,    reduction::min,    reduction::max,    reduction::avg,
      reduction::premul_sum, reduction::bit_and, reduction::bit_or, reduction::bit_xor};
  return reference::is_integer(t) ? of_integers : of_floats;
}

constexpr std::uint64_t seed = 20261130;

}  // namespace

BOOST_AUTO_TEST_SUITE(host_reductions)

BOOST_AUTO_TEST_CASE(all_pairs_of_8_bit_codes) {
  std::vector<code> left(65536), right(65536);
  for (code i = 0; i < 65536; ++i) left[i] = i & 0xff, right[i] = i >> 8;
  for (dtype t : {dtype::f8e4m3, dtype::f8e5m2, dtype::i8, dtype::u8})
    for (reduction op : operations_of(t)) check(t, op, left, right);
}

BOOST_AUTO_TEST_CASE(all_16_bit_codes_with_hard_partners) {
  std::vector<code> all(65536);
  for (code i = 0; i < 65536; ++i) all[i] = i;
  for (dtype t : {dtype::f16, dtype::bf16}) {
    const auto partners = hard_partners(t);
    for (std::size_t p = 0; p < partners.size(); p += partner_stride) {
      const std::vector<code> other(65536, partners[p]);
      for (reduction op : arithmetic) check(t, op, p % 2 ? all : other, p % 2 ? other : all);
    }
  }
}

BOOST_AUTO_TEST_CASE(samples_of_every_type_and_operation) {
  std::mt19937_64 random{seed};
  BOOST_TEST_MESSAGE("seed " << seed);
  for (dtype t : reference::types) {
    const auto left = sample(t, 20000 / partner_stride, random), right = sample(t, left.size(), random);
    for (reduction op : operations_of(t)) check(t, op, left, right);
  }
}

BOOST_AUTO_TEST_CASE(any_length_any_start_in_place_and_nothing_else_written) {
  std::mt19937_64 random{seed + 1};
  BOOST_TEST_MESSAGE("seed " << seed + 1);
  const std::size_t longest = 150, guard = 72;
  for (dtype t : reference::types) {
    const std::size_t each = size_of(t);
    const auto left = sample(t, longest, random), right = sample(t, longest, random);
    const auto l = reference::bytes(t, left), r = reference::bytes(t, right);
    for (reduction op : {reduction::sum, reduction::max}) {
      std::vector<code> wanted(longest);
      for (std::size_t i = 0; i < longest; ++i) wanted[i] = reference::combined(t, op, left[i], right[i]);
      for (auto set : reference::sets()) {
        const host_reduction reduce = find_host_reduction(t, op, set).value();
        for (std::size_t count = 0; count <= longest; count += partner_stride) {
          for (int form = 0; form < 3; ++form) {  // out of place, out = left, out = right
            const std::size_t start = guard + (count * 5 + static_cast<std::size_t>(form)) % 9 * each;
            std::vector<std::byte> a(longest * each + 2 * guard + 9 * each, std::byte{0x5a}), b = a, c = a;
            std::byte *x = a.data() + start, *y = b.data() + start + each, *z = c.data() + guard;
            std::memcpy(x, l.data(), count * each);
            std::memcpy(y, r.data(), count * each);
            std::byte* out = form == 0 ? z : form == 1 ? x : y;
            std::vector<std::byte>& holder = form == 0 ? c : form == 1 ? a : b;
            reduce(out, x, y, count);
            const std::string why = reference::difference(
                t, out, {wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(count)});
            const auto untouched = static_cast<std::size_t>(
                std::count(holder.begin(), holder.begin() + (out - holder.data()), std::byte{0x5a}) +
                std::count(holder.begin() + (out - holder.data()) + static_cast<std::ptrdiff_t>(count * each),
                           holder.end(), std::byte{0x5a}));
            if (why.empty() && untouched == holder.size() - count * each) continue;
            BOOST_ERROR(name_of(op) << " of " << count << " " << name_of(t) << " " << name_of(set) << " form "
                                    << form << ": " << (why.empty() ? "wrote beyond its output" : why));
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(minimum_and_maximum_order_zeros_and_carry_nans) {
  for (dtype t : reference::floats) {
    const code minus_zero = reference::all_ones(t) ^ reference::nan_code(t);
    const code nan = reference::nan_code(t), other_nan = nan | minus_zero;
    const std::vector<code> left{0, minus_zero, 0, other_nan, 1, other_nan},
        right{minus_zero, 0, 0, 1, nan, nan};
    const auto l = reference::bytes(t, left), r = reference::bytes(t, right);
    for (auto set : reference::sets()) {
      std::vector<std::byte> least(l.size()), greatest(l.size());
      find_host_reduction(t, reduction::min, set).value()(least.data(), l.data(), r.data(), left.size());
      find_host_reduction(t, reduction::max, set).value()(greatest.data(), l.data(), r.data(), left.size());
      BOOST_TEST(reference::difference(t, least.data(), {minus_zero, minus_zero, 0, nan, nan, nan}) == "");
      BOOST_TEST(reference::difference(t, greatest.data(), {0, 0, 0, nan, nan, nan}) == "");
    }
  }
}

BOOST_AUTO_TEST_CASE(integers_wrap) {
  const auto one = [](dtype t, reduction op, code a, code b) {
    const auto l = reference::bytes(t, {a}), r = reference::bytes(t, {b});
    std::vector<std::byte> out(l.size());
    find_host_reduction(t, op).value()(out.data(), l.data(), r.data(), 1);
    return reference::element(t, out.data(), 0);
  };
  BOOST_TEST(one(dtype::i8, reduction::sum, 127, 1) == 0x80u);
  BOOST_TEST(one(dtype::u8, reduction::sum, 255, 2) == 1u);
  BOOST_TEST(one(dtype::i32, reduction::sum, 0x7fffffff, 1) == 0x80000000u);
  BOOST_TEST(one(dtype::i32, reduction::prod, 0x80000000, 0xffffffff) == 0x80000000u);
  BOOST_TEST(one(dtype::i64, reduction::prod, 1ull << 62, 6) == 1ull << 63);
  BOOST_TEST(one(dtype::u64, reduction::sum, ~0ull, 1) == 0u);
  BOOST_TEST(one(dtype::i8, reduction::min, 0x80, 0x7f) == 0x80u);
  BOOST_TEST(one(dtype::u8, reduction::min, 0x80, 0x7f) == 0x7fu);
}

BOOST_AUTO_TEST_CASE(what_has_no_kernel_says_why) {
  const auto refusal = [](dtype t, reduction op) {
    const auto found = find_host_reduction(t, op);
    BOOST_REQUIRE(!found);
    BOOST_TEST((found.error().code() == errc::unsupported));
    return found.error().detail();
  };
  BOOST_TEST(refusal(dtype::f32, reduction::bit_xor).find("bit_xor of f32") != std::string::npos);
  BOOST_TEST(refusal(dtype::bf16, reduction::bit_and).find("integers") != std::string::npos);
  BOOST_TEST(refusal(dtype::f32, reduction::user).find("give it to the call") != std::string::npos);
  BOOST_TEST(refusal(dtype::none, reduction::sum).find("no element type") != std::string::npos);
  BOOST_TEST(refusal(dtype::f32, reduction::none).find("no reduction") != std::string::npos);
  BOOST_TEST(refusal(dtype{77}, reduction{78}).find("unknown") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
