// Calls on device memory, from what the application writes to what the device group is asked for.
#include "device_cases.hpp"
#include <chorale/api/communicator.hpp>
#include <chorale/collective/device_call.hpp>

#include <boost/test/unit_test.hpp>

#include <span>
#include <type_traits>

namespace {

namespace ch = chorale;
using ch::kernels_test::collective_case;
using ch::kernels_test::describe_with_spans;

ch::result<ch::cuda::exchange_call> exchange_of(const std::vector<ch::described_call>& calls,
                                                ch::cuda::place_in_group at) {
  if (calls.size() == 1) return ch::device_exchange(calls[0].what, at);
  std::vector<ch::call> all;
  for (const ch::described_call& each : calls) all.push_back(each.what);
  return ch::device_messages(all, at);
}

/// Nothing moves to or from where no bytes are, so addresses count only elsewhere.
bool same(const ch::cuda::extent& a, const ch::cuda::extent& b) {
  return a.bytes == b.bytes && (a.bytes == 0 || a.data == b.data);
}
bool same(const ch::cuda::exchange_call& a, const ch::cuda::exchange_call& b) {
  bool extents = true;
  for (std::size_t r = 0; r < a.send.size(); ++r)
    extents = extents && same(a.send[r], b.send[r]) && same(a.receive[r], b.receive[r]);
  return extents && a.kind == b.kind && a.type == b.type && a.op == b.op && a.root == b.root &&
         a.peers == b.peers && a.folds == b.folds &&
         (a.op != ch::reduction::premul_sum || a.scalar == b.scalar) && a.count == b.count &&
         a.hash == b.hash && a.send_types == b.send_types && a.receive_types == b.receive_types &&
         a.largest == b.largest;
}

BOOST_AUTO_TEST_SUITE(device_calls)

BOOST_AUTO_TEST_CASE(every_collective_asks_for_the_exchange_of_its_name) {
  for (const int n : {1, 2, 3, 8}) {
    std::vector<collective_case> cases = ch::kernels_test::copying_cases(n);
    for (const auto& more : {ch::kernels_test::folding_shapes(n), ch::kernels_test::folding_cases(n, 9)})
      cases.insert(cases.end(), more.begin(), more.end());
    for (const collective_case& what : cases)
      for (ch::rank_t r = 0; r < n; ++r) {
        if (what.kind == ch::cuda::exchange_kind::messages && n == 1) continue;  // to itself
        std::vector<std::max_align_t> memory(what.plan(r, n).total / sizeof(std::max_align_t) + 1);
        auto* arena = reinterpret_cast<std::byte*>(memory.data());
        const auto wanted = what.describe(r, n, arena);
        const auto made = exchange_of(describe_with_spans(what, r, n, arena), {r, n});
        BOOST_REQUIRE_MESSAGE(made.has_value(), what.name() << ": " << (made ? "" : made.error().message()));
        BOOST_TEST(same(*made, wanted.value()), what.name() << ", rank " << r << " of " << n);
      }
  }
}

ch::error refusal(const ch::described_call& described) {
  auto made = ch::device_exchange(described.what, {0, 3});
  return made ? ch::error{} : std::move(made).error();
}
void expect(const ch::error& e, ch::errc code, std::string_view text) {
  BOOST_TEST((e == code), e.message());
  BOOST_TEST(e.message().find(text) != std::string::npos, e.message());
}

BOOST_AUTO_TEST_CASE(what_is_wrong_is_refused_with_a_reason) {
  using ch::errc;
  std::vector<float> memory(300);
  const ch::device_span all{memory.data(), 90};
  const ch::device_span one{memory.data() + 100, 30};
  expect(refusal(ch::all_gather(one, all.subspan(0, 89))), errc::invalid_argument, "89");
  expect(refusal(ch::broadcast(one, 3)), errc::invalid_argument, "root 3");
  expect(refusal(ch::all_reduce(all, all.subspan(10, 80))), errc::invalid_argument, "elements");
  expect(refusal(ch::all_to_all(all.subspan(0, 89), ch::device_span{memory.data() + 100, 89})),
         errc::invalid_argument, "equal share");
  expect(refusal(ch::all_reduce(ch::device_span<float>{nullptr, 3})), errc::invalid_argument, "null");
  expect(refusal(ch::scan(all)), errc::unsupported, "device memory");
  expect(refusal(ch::all_reduce(all, ch::premul_sum(2.0))), errc::invalid_argument, "one type");
  expect(refusal(ch::send(one, 0)), errc::invalid_argument, "itself");
  expect(refusal(ch::send(one, 1, 4)), errc::unsupported, "with a tag");
  expect(refusal(ch::recv(one, ch::any_source)), errc::unsupported, "from anybody");
  expect(refusal(ch::all_reduce(std::span{memory})), errc::invalid_argument, "device_span");

  const std::vector<ch::call> mixed{ch::send(one, 1).what, ch::barrier().what};
  const auto made = ch::device_messages(mixed, {0, 3});
  BOOST_REQUIRE(!made);
  expect(made.error(), errc::unsupported, "sends and receives");
}

BOOST_AUTO_TEST_CASE(device_memory_never_reaches_the_host_path) {
  std::vector<float> memory(8);
  const auto refused = ch::validate(ch::all_reduce(ch::device_span{memory.data(), 8}).what, 0, 1);
  BOOST_REQUIRE(!refused);
  expect(refused.error(), ch::errc::invalid_argument, "chorale::on(stream)");
}

// Who can be asked for what, as the compiler sees it.
static_assert(ch::buffer<ch::device_span<float>> && ch::buffer<ch::device_span<const float>>);
static_assert(ch::writable_buffer<ch::device_span<float>> &&
              !ch::writable_buffer<ch::device_span<const float>>);
static_assert(!ch::output_for<std::span<float>, ch::device_span<float>>);
static_assert(!ch::output_for<ch::device_span<double>, ch::device_span<float>>);
static_assert(ch::output_for<ch::device_span<float>, ch::device_span<const float>>);
static_assert(!std::ranges::range<ch::device_span<float>>, "nobody walks a GPU's memory by mistake");

BOOST_AUTO_TEST_CASE(a_stream_and_a_deadline_follow_in_any_order) {
  using arguments =
      ch::detail::call_arguments<ch::device_span<float>&, const ch::reduction&, ch::on, ch::deadline>;
  BOOST_TEST(arguments::count_before_extras() == 2U);
  BOOST_TEST(arguments::index_of<ch::on>() == 2U);
  BOOST_TEST(arguments::index_of<ch::deadline>() == 3U);
  BOOST_TEST(!arguments::has_token);
  using turned = ch::detail::call_arguments<ch::device_span<float>&, ch::deadline, ch::on>;
  BOOST_TEST(turned::index_of<ch::on>() == 2U);
  BOOST_TEST(turned::index_of<ch::deadline>() == 1U);
  BOOST_TEST(!(ch::detail::call_arguments<std::span<float>, ch::deadline>::has<ch::on>));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
