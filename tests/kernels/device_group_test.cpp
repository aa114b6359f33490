// Device groups over a fake driver: creation by all ranks together, launches, failures, what is freed.
#include "collective_cases.hpp"
#include "fake_cuda.hpp"
#include <chorale/kernels/device_group.hpp>

#include <boost/test/unit_test.hpp>

#include <barrier>
#include <cmath>
#include <functional>
#include <optional>

using namespace chorale;
using namespace chorale::cuda;

namespace {

/// An exchange between threads.
class thread_exchange {
 public:
  explicit thread_exchange(int size)
      : meet_{size}, bytes_(static_cast<std::size_t>(size)), fds_(static_cast<std::size_t>(size)) {}

  class rank final : public rank_exchange {
   public:
    rank(thread_exchange& all, int index) : all_{all}, index_{static_cast<std::size_t>(index)} {}
    result<std::vector<std::byte>> all_gather_bytes(std::span<const std::byte> mine) override {
      all_.bytes_[index_].assign(mine.begin(), mine.end());
      all_.meet_.arrive_and_wait();
      std::vector<std::byte> joined;
      for (const auto& part : all_.bytes_) joined.insert(joined.end(), part.begin(), part.end());
      all_.meet_.arrive_and_wait();
      return joined;
    }
    result<std::vector<int>> all_gather_fds(int mine) override {
      all_.fds_[index_] = mine;
      all_.meet_.arrive_and_wait();
      std::vector<int> copies;
      for (std::size_t r = 0; r < all_.fds_.size(); ++r)
        copies.push_back(r == index_ ? -1 : ::dup(all_.fds_[r]));
      all_.meet_.arrive_and_wait();
      return copies;
    }
    result<void> barrier() override {
      all_.meet_.arrive_and_wait();
      return {};
    }

   private:
    thread_exchange& all_;
    std::size_t index_;
  };

 private:
  std::barrier<> meet_;
  std::vector<std::vector<std::byte>> bytes_;
  std::vector<int> fds_;
};

device_group_config small_config(const cuda_driver& driver, int rank, int size) {
  device_group_config config;
  config.rank = rank;
  config.size = size;
  config.device = rank;
  config.generation = 5;
  config.max_ctas = 2;
  config.scratch_bytes = 4 << 20;
  config.packet_bytes = 1024;
  config.driver = &driver;
  return config;
}

using outcome = result<std::unique_ptr<device_group>>;
using per_rank = std::function<void(int, device_group_config&)>;

/// Creates a group on `size` threads; `adjust` may change a rank's configuration.
std::vector<outcome> create_all(const cuda_driver& driver, int size, const per_rank& adjust = {}) {
  thread_exchange exchange{size};
  std::vector<std::optional<outcome>> made(static_cast<std::size_t>(size));
  {
    std::vector<std::jthread> ranks;
    for (int r = 0; r < size; ++r)
      ranks.emplace_back([&, r] {
        thread_exchange::rank here{exchange, r};
        device_group_config config = small_config(driver, r, size);
        if (adjust) adjust(r, config);
        made[static_cast<std::size_t>(r)].emplace(device_group::create(config, here));
      });
  }
  std::vector<outcome> all;
  for (auto& m : made) all.push_back(*std::move(m));
  return all;
}

void expect_all_fail(const std::vector<outcome>& all, errc code, rank_t culprit, const char* part) {
  for (const outcome& o : all) {
    BOOST_REQUIRE(!o);
    BOOST_TEST((o.error() == code), o.error().message());
    BOOST_TEST(o.error().culprit() == culprit);
    BOOST_TEST(o.error().detail().find(part) != std::string::npos, o.error().message());
  }
}

struct fresh_fake {
  fresh_fake() {
    fake::faults = {};
    fake::calls.clear();
  }
  cuda_driver driver = make_fake_driver();
};

/// Runs one sum on every rank of a made group.
std::vector<std::vector<float>> sum_on_all(const cuda_driver& driver, std::vector<outcome>& all,
                                           std::size_t count) {
  std::vector<std::vector<float>> out(all.size(), std::vector<float>(count, -1.0f));
  std::vector<std::jthread> ranks;
  for (std::size_t r = 0; r < all.size(); ++r)
    ranks.emplace_back([&, r] {
      const std::vector<float> in(count, static_cast<float>(r + 1));
      stream on = nullptr;
      driver.stream_create(&on, 0);
      auto launched = (*all[r])->all_reduce(in.data(), out[r].data(), count, on);
      while (launched && !(*all[r])->is_done(*launched)) std::this_thread::yield();
      driver.stream_synchronize(on);
      driver.stream_destroy(on);
    });
  ranks.clear();
  return out;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(device_groups, fresh_fake)

BOOST_AUTO_TEST_CASE(ranks_create_prove_and_sum) {
  auto all = create_all(driver, 2);
  for (const outcome& o : all) BOOST_REQUIRE_MESSAGE(o.has_value(), (o ? "" : o.error().message()));
  BOOST_TEST((*all[0])->limits().ll128_bytes == 0u);  // no sm_90: lines are off
  for (std::size_t count : {0u, 1u, 200u, 3000u})
    for (const auto& out : sum_on_all(driver, all, count))
      for (float x : out) BOOST_REQUIRE(x == 3.0f);
  for (const outcome& o : all) BOOST_TEST((*o)->status().has_value());
}

BOOST_AUTO_TEST_CASE(limits_are_the_least_of_all_ranks) {
  auto all = create_all(driver, 2, [](int rank, device_group_config& c) {
    if (rank == 1) c.packet_bytes = 512;
  });
  for (const outcome& o : all) {
    BOOST_REQUIRE(o.has_value());
    BOOST_TEST((*o)->limits().ll_bytes == 512u);
  }
}

BOOST_AUTO_TEST_CASE(one_ranks_trouble_is_everybodys_error_and_names_it) {
  fake::faults.no_memory_export_on = 1;
  expect_all_fail(create_all(driver, 3), errc::unsupported, 1, "memory export");
  fake::faults = {};
  fake::faults.no_memory_on = 2;
  expect_all_fail(create_all(driver, 3), errc::out_of_memory, 2, "cuMemCreate");
}

BOOST_AUTO_TEST_CASE(a_number_of_ctas_that_cannot_be_is_everybodys_error) {
  for (const std::uint32_t ctas : {0u, kernels::max_ctas + 1})
    expect_all_fail(create_all(driver, 2,
                               [ctas](int rank, device_group_config& c) {
                                 if (rank == 1) c.max_ctas = ctas;
                               }),
                    errc::invalid_argument, 1, "CHORALE_MAX_CTAS");
}

BOOST_AUTO_TEST_CASE(ranks_of_one_gpu_and_of_other_epochs_are_refused) {
  fake::faults.one_gpu = true;
  expect_all_fail(create_all(driver, 2), errc::unsupported, 1, "same GPU");
  fake::faults = {};
  const auto epochs = create_all(driver, 2, [](int rank, device_group_config& c) { c.generation += rank; });
  for (const outcome& o : epochs) BOOST_TEST((!o && o.error() == errc::protocol_error));
}

BOOST_AUTO_TEST_CASE(the_proof_finds_memory_that_does_not_hold_data) {
  fake::faults.wrong_data = true;
  for (const outcome& o : create_all(driver, 2)) BOOST_TEST((!o && o.error() == errc::gpu_error));
}

BOOST_AUTO_TEST_CASE(bad_arguments_are_refused_with_advice) {
  auto all = create_all(driver, 1);
  BOOST_REQUIRE(all[0].has_value());
  device_group& g = **all[0];
  stream on = nullptr;
  driver.stream_create(&on, 0);
  alignas(16) float data[64] = {};
  const auto code = [](const result<completion>& r) { return r ? errc::ok : r.error().code(); };
  BOOST_TEST((code(g.all_reduce(nullptr, data, 4, on)) == errc::invalid_argument));
  BOOST_TEST((code(g.all_reduce(data, data + 1, 8, on)) == errc::invalid_argument));
  const auto* odd = reinterpret_cast<const float*>(reinterpret_cast<const char*>(data) + 2);
  BOOST_TEST((code(g.all_reduce(odd, data + 32, 4, on)) == errc::invalid_argument));
  BOOST_TEST((code(g.all_reduce(data, data + 32, 32, on)) == errc::ok));
  driver.stream_synchronize(on);
  driver.stream_destroy(on);
}

BOOST_AUTO_TEST_CASE(every_bad_exchange_is_refused_with_advice) {
  auto all = create_all(driver, 3);
  BOOST_REQUIRE(all[1].has_value());
  device_group& g = **all[1];  // rank 1: nothing here may reach a launch, or it would wait for ever
  stream on = nullptr;
  driver.stream_create(&on, 0);
  alignas(16) std::byte data[1024] = {};
  const place_in_group at = g.place();
  const auto expect = [&](const result<exchange_call>& call, errc code, const char* part) {
    const auto r = g.exchange(call, on);
    BOOST_REQUIRE(!r);
    BOOST_TEST((r.error() == code), r.error().message());
    BOOST_TEST(r.error().detail().find(part) != std::string::npos, r.error().message());
  };
  const auto bad = errc::invalid_argument;
  const std::uint64_t counts[3] = {4, 5, 6};
  expect(all_gather_call(at, nullptr, data, 4, dtype::f32), bad, "null");
  expect(all_gather_call(at, data + 600, nullptr, 4, dtype::f32), bad, "null");
  expect(all_gather_call(at, data + 2, data + 512, 4, dtype::f32), bad, "aligned to its elements of 4 bytes");
  expect(all_gather_call(at, data + 600, data + 513, 4, dtype::u32), bad, "aligned");
  expect(all_gather_call(at, data, data, 4, dtype::f32), bad, "overlap");  // rank 1's place is the second
  expect(all_to_all_call(at, data, data, 4, dtype::f32), bad, "overlap");
  expect(reduce_scatter_call(at, data, data, 4, {}), bad, "overlap");
  expect(all_reduce_call(at, data, data + 16, 8, {}), bad, "overlap");
  expect(all_reduce_call(at, data, data + 512, 8, {dtype::f32, reduction::bit_and}), errc::unsupported,
         "integers");
  expect(all_reduce_call(at, data, data + 512, 8, {dtype::f32, reduction::user}), errc::unsupported,
         "host memory");
  expect(all_reduce_call(at, data, data + 512, 8, {dtype::f32, reduction::none}), bad, "no reduction");
  expect(all_reduce_call(at, data, data + 512, 8, {dtype::none, reduction::sum}), bad, "no element type");
  expect(all_reduce_call(at, data, data + 512, ~std::uint64_t{0} / 4, {}), bad, "too large");
  expect(broadcast_call(at, data, data, 4, dtype::f32, 3), bad, "root 3");
  expect(reduce_call(at, data, data, 4, {}, -1), bad, "root -1");
  expect(all_gather_v_call(at, data, data + 512, std::span{counts, 2}, dtype::f32), bad,
         "2 counts for 3 ranks");
  const std::uint64_t huge[3] = {1, ~std::uint64_t{0}, 1};
  expect(gather_v_call(at, data, data + 512, huge, dtype::f32, 0), bad, "too large");
  const std::uint64_t other[3] = {4, 6, 6};
  expect(all_to_all_v_call(at, data, counts, data + 512, other, dtype::f32), bad, "itself");
  const auto messages = [&](std::initializer_list<message> batch) {
    return messages_call(at, std::span{batch});
  };
  expect(messages({send_to(3, data, 4, dtype::f32)}), bad, "not a rank");
  expect(messages({send_to(0, data, 4, dtype::f32), send_to(0, data + 64, 4, dtype::f32)}), bad,
         "another message");
  expect(messages({send_to(1, data, 4, dtype::f32)}), bad, "to itself");
  expect(messages({send_to(0, data + 1, 4, dtype::f32)}), bad, "not aligned");
  expect(messages({send_to(0, data, 4, dtype::none)}), bad, "no element type");
  expect(messages({send_to(0, nullptr, 4, dtype::f32)}), bad, "null");
  expect(messages({send_to(0, data, 8, dtype::f32), receive_from(2, data + 16, 8, dtype::f32)}), bad,
         "overlap");
  expect(messages({receive_from(0, data, 8, dtype::f32), receive_from(2, data + 16, 8, dtype::f32)}), bad,
         "overlapping memory");
  BOOST_TEST(g.status().has_value());
  driver.stream_destroy(on);
}

BOOST_AUTO_TEST_CASE(every_collective_runs_through_the_group) {
  using kernels_test::case_memory;
  using kernels_test::collective_case;
  constexpr int n = 3;
  auto all = create_all(driver, n);
  std::vector<collective_case> cases = kernels_test::copying_cases(n, {5, 300});
  for (const auto& more : {kernels_test::folding_shapes(n, {5, 300}), kernels_test::folding_cases(n, 9)})
    cases.insert(cases.end(), more.begin(), more.end());
  for (unsigned seed = 0; seed < 5; ++seed) cases.push_back(kernels_test::random_messages(n, seed));
  std::vector<stream> streams(n);
  for (stream& s : streams) driver.stream_create(&s, 0);
  for (const collective_case& what : cases) {
    case_memory memory{what, n, 3};
    for (int r = 0; r < n; ++r) {
      const auto index = static_cast<std::size_t>(r);
      auto done = (*all[index])->exchange(what.describe(r, n, memory.arena(r)), streams[index]);
      BOOST_REQUIRE_MESSAGE(done.has_value(), what.name() << ": " << (done ? "" : done.error().message()));
    }
    for (stream s : streams) driver.stream_synchronize(s);
    const std::string wrong = memory.first_wrong();
    BOOST_TEST(wrong.empty(), what.name() << ": " << wrong);
  }
  for (const outcome& o : all) BOOST_TEST((*o)->status().has_value());
  for (stream s : streams) driver.stream_destroy(s);
}

BOOST_AUTO_TEST_CASE(only_a_change_of_stream_costs_an_event) {
  auto all = create_all(driver, 1);
  BOOST_REQUIRE(all[0].has_value());
  fake::calls.clear();
  stream a = nullptr;
  stream b = nullptr;
  driver.stream_create(&a, 0);
  driver.stream_create(&b, 0);
  float x[4] = {1, 2, 3, 4};
  const auto run = [&](stream on) {
    BOOST_TEST((*all[0])->all_reduce(x, x, 4, on).has_value());
    driver.stream_synchronize(on);
  };
  // creation's own stream is another one, then `a` stays
  run(a);
  const std::size_t first = fake::calls.size();
  static_cast<void>((*all[0])->all_reduce(x, x, 4, a).value());
  driver.stream_synchronize(a);
  BOOST_TEST(fake::calls.size() == first);
  run(b);
  BOOST_TEST(
      (std::vector<std::string>{fake::calls.begin() + static_cast<std::ptrdiff_t>(first),
                                fake::calls.end()} == std::vector<std::string>{"record", "wait", "record"}));
  driver.stream_destroy(a);
  driver.stream_destroy(b);
}

BOOST_AUTO_TEST_CASE(an_abort_reaches_a_waiting_launch_and_revokes_the_group) {
  auto all = create_all(driver, 2);
  for (const outcome& o : all) BOOST_REQUIRE(o.has_value());
  stream on = nullptr;
  driver.stream_create(&on, 0);
  std::vector<float> in(100, 1.0f), out(100, 1.0f);
  auto launched = (*all[0])->all_reduce(in.data(), out.data(), in.size(), on);
  BOOST_REQUIRE(launched.has_value());
  (*all[0])->abort(errc::peer_lost, 1);
  (*all[0])->abort(errc::timed_out, 0);  // the first cause stays
  driver.stream_synchronize(on);
  BOOST_TEST((*all[0])->is_done(*launched));
  const auto ended = (*all[0])->outcome(*launched);
  BOOST_REQUIRE(!ended);
  BOOST_TEST((ended.error() == errc::peer_lost));
  BOOST_TEST(ended.error().culprit() == 1);
  for (float x : out) BOOST_REQUIRE(std::isnan(x));
  const auto later = (*all[0])->all_reduce(in.data(), out.data(), in.size(), on);
  BOOST_TEST((!later && later.error() == errc::revoked));
  driver.stream_destroy(on);
}

BOOST_AUTO_TEST_SUITE_END()
