// The communicator as users see it, alone and between two ranks of threads: calls, batches, refusals.
#include <chorale/chorale.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <vector>

namespace ch = chorale;

namespace {

/// A job of one: no launcher's variables are set while the tests run.
template <class Body>
void alone(Body body) {
  ch::engine loop;
  loop.run(body());
}

ch::task<ch::error> outcome_of(ch::ticket t) {
  auto r = co_await ch::as_result(std::move(t));
  co_return r ? ch::error{} : r.error();
}

/// Calls that all end where they are made, until another coroutine has had its turn.
ch::task<> call_until(ch::communicator& comm, const bool& heard) {
  const ch::time_point patience = ch::steady_now() + std::chrono::seconds{20};
  while (!heard && ch::steady_now() < patience) co_await comm.barrier();
  BOOST_TEST(heard, "calls that never suspend keep the others of their engine from running");
}

ch::task<> be_heard(bool& heard) {
  co_await ch::sleep_for(std::chrono::milliseconds{1});
  heard = true;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(communicator_alone)

BOOST_AUTO_TEST_CASE(calls_of_one_rank_are_copies) {
  alone([]() -> ch::task<> {
    auto comm = co_await ch::communicator::join();
    std::vector<float> in{1, 2, 3}, out(3);
    co_await comm.all_reduce(std::span<const float>{in}, std::span{out});
    co_await comm.barrier();
    if (out != in) throw std::runtime_error{"a wrong sum"};
    BOOST_TEST(comm.rank() == 0);
    BOOST_TEST(comm.size() == 1);
    BOOST_TEST(comm.transport_to(0) == "self");
    BOOST_TEST(!comm.cause());
  });
}

BOOST_AUTO_TEST_CASE(a_batch_is_numbered_left_to_right_and_ends_whole) {
  alone([]() -> ch::task<> {
    auto comm = co_await ch::communicator::join();
    std::vector<float> a(10, 1), b(20, 2), c(5, 3), d(6);
    co_await comm.batch(ch::all_reduce(a), ch::all_reduce(b), ch::barrier());
    ch::task<void> wrong =
        comm.batch(ch::all_reduce(a), ch::all_reduce(std::span<const float>{c}, std::span{d}));
    ch::task<ch::result<void>> guarded = ch::as_result(std::move(wrong));
    auto r = co_await std::move(guarded);
    BOOST_TEST((!r && r.error() == ch::errc::invalid_argument));
    co_await comm.all_reduce(std::span{a});  // the lane lives on
  });
}

BOOST_AUTO_TEST_CASE(what_cannot_be_is_refused_and_says_why) {
  alone([]() -> ch::task<> {
    auto comm = co_await ch::communicator::join();
    std::vector<float> data(100);
    const std::span<float> all{data};
    ch::error e =
        co_await outcome_of(comm.all_reduce(std::span<const float>{all.first(50)}, all.subspan(10, 50)));
    BOOST_TEST((e == ch::errc::invalid_argument));
    BOOST_TEST(e.message().find("overlap") != std::string::npos);
    e = co_await outcome_of(comm.all_reduce(std::span<const float>{all.first(50)}, all.subspan(50, 20)));
    BOOST_TEST((e == ch::errc::invalid_argument));
    e = co_await outcome_of(comm.all_reduce(std::span{static_cast<float*>(nullptr), 5}));
    BOOST_TEST((e == ch::errc::invalid_argument));
    e = co_await outcome_of(comm.send(all, 0, -2));
    BOOST_TEST((e == ch::errc::invalid_argument));
    e = co_await outcome_of(comm.recv(all, 7));
    BOOST_TEST((e == ch::errc::invalid_argument));
    e = co_await outcome_of(comm.all_reduce(all, ch::reduction::bit_or));
    BOOST_TEST((e == ch::errc::unsupported));
    e = co_await outcome_of(comm.all_reduce(all));
    BOOST_TEST(!e, e.message());
  });
}

BOOST_AUTO_TEST_CASE(a_dropped_lane_ends_its_key) {
  alone([]() -> ch::task<> {
    auto comm = co_await ch::communicator::join();
    float x = 1;
    const std::span<float> one{&x, 1};
    co_await comm.lane_for(42).all_reduce(one);
    ch::lane again = comm.lane_for(42);
    const ch::error e = co_await outcome_of(again.all_reduce(one));
    BOOST_TEST((e == ch::errc::invalid_state), e.message());
    ch::lane kept = comm.lane_for(43);
    co_await kept.all_reduce(one);
    co_await kept.all_reduce(one);
  });
}

BOOST_AUTO_TEST_CASE(started_operations_end_in_any_order_and_may_be_dropped) {
  alone([]() -> ch::task<> {
    auto comm = co_await ch::communicator::join();
    std::vector<float> a(1000, 1), b(1000, 2);
    auto first = comm.all_reduce(std::span{a}).start();
    auto second = comm.all_reduce(std::span{b}).start();
    co_await std::move(second);
    co_await std::move(first);
    {
      auto dropped = comm.all_reduce(std::span{a}).start();
    }
    co_await comm.barrier();
  });
}

BOOST_AUTO_TEST_CASE(calls_that_end_at_once_let_others_run) {
  alone([]() -> ch::task<> {
    auto comm = co_await ch::communicator::join();
    bool heard = false;
    const ch::environment& here = co_await ch::this_environment{};
    ch::scope both{here};
    both.spawn(call_until(comm, heard));
    both.spawn(be_heard(heard));
    co_await both.join();
  });
}

BOOST_AUTO_TEST_CASE(every_collective_of_one_rank) {
  alone([]() -> ch::task<> {
    auto comm = co_await ch::communicator::join();
    const std::vector<double> in{1, 2, 3};
    std::vector<double> out(3);
    const auto came = [&](double a, double b, double c) {
      const bool same = out == std::vector<double>{a, b, c};
      out.assign(3, 0);
      return same;
    };
    const std::vector<std::uint64_t> counts{3};
    co_await comm.all_reduce(in, out, ch::premul_sum(2.0));
    BOOST_TEST(came(2, 4, 6));
    co_await comm.reduce(in, out, 0, ch::avg);
    BOOST_TEST(came(1, 2, 3));
    co_await comm.broadcast(in, out, 0);
    BOOST_TEST(came(1, 2, 3));
    co_await comm.all_gather(in, out);
    BOOST_TEST(came(1, 2, 3));
    co_await comm.all_gather_v(in, out, counts);
    BOOST_TEST(came(1, 2, 3));
    co_await comm.reduce_scatter(in, out, ch::max);
    BOOST_TEST(came(1, 2, 3));
    co_await comm.reduce_scatter_v(in, out, counts, ch::prod);
    BOOST_TEST(came(1, 2, 3));
    co_await comm.all_to_all(in, out);
    BOOST_TEST(came(1, 2, 3));
    co_await comm.all_to_all_v(in, out, counts, counts);
    BOOST_TEST(came(1, 2, 3));
    co_await comm.gather(in, out, 0);
    BOOST_TEST(came(1, 2, 3));
    co_await comm.gather_v(in, out, counts, 0);
    BOOST_TEST(came(1, 2, 3));
    co_await comm.scatter(in, out, 0);
    BOOST_TEST(came(1, 2, 3));
    co_await comm.scatter_v(in, out, counts, 0);
    BOOST_TEST(came(1, 2, 3));
    co_await comm.scan(in, out);
    BOOST_TEST(came(1, 2, 3));
    co_await comm.exscan(in, out, ch::sum, ch::deadline{std::chrono::seconds{5}});
    BOOST_TEST(came(0, 0, 0));  // rank 0's output stays
    co_await comm[7].broadcast(out, 0);
  });
}

BOOST_AUTO_TEST_CASE(a_planned_call_runs_again_and_again) {
  alone([]() -> ch::task<> {
    auto comm = co_await ch::communicator::join();
    std::vector<float> data{1, 2, 3}, out(3);
    auto plan = comm.plan(ch::all_reduce(data, out, ch::premul_sum(2.0f)));
    for (float factor = 1; factor < 4; ++factor) {
      data.assign(3, factor);
      co_await plan.run();
      BOOST_TEST(out[2] == 2 * factor);
    }
    auto moved = std::move(plan);
    co_await moved.run(ch::deadline{std::chrono::seconds{5}});
    ch::error e = co_await outcome_of(plan.run());
    BOOST_TEST((e == ch::errc::invalid_state), e.message());
    const auto wrong = comm.plan(ch::broadcast(data, 5));
    BOOST_TEST((wrong.refused() == ch::errc::invalid_argument));
    auto unserved = comm.plan(ch::all_reduce(data, ch::bit_xor));
    e = co_await outcome_of(unserved.run());
    BOOST_TEST((e == ch::errc::unsupported), e.message());
  });
}

namespace {

ch::task<> take_gpu(ch::communicator& comm, ch::error& how) {
  how = ch::error{};
  try {
    co_await comm.use_gpu(0);
  } catch (const ch::failure& f) {
    how = f.why();
  }
}
ch::task<> make_window(ch::communicator& comm, ch::error& how) {
  how = ch::error{};
  try {
    auto w = co_await comm.create_window(64);
    co_await w.close();
  } catch (const ch::failure& f) {
    how = f.why();
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(use_gpu_and_create_window_do_not_overlap) {
  alone([]() -> ch::task<> {
    auto comm = co_await ch::communicator::join();
    ch::error gpu, window;
    {
      const ch::task<> called = comm.use_gpu(0);
      co_await make_window(comm, window);
      BOOST_TEST((window == ch::errc::invalid_state), window.message());
      BOOST_TEST(window.message().find("use_gpu") != std::string::npos, window.message());
      co_await take_gpu(comm, gpu);
      BOOST_TEST((gpu == ch::errc::invalid_state), gpu.message());
      BOOST_TEST(gpu.message().find("twice") != std::string::npos, gpu.message());
    }
    co_await make_window(comm, window);
    BOOST_TEST(!window, window.message());
    {
      const ch::task<ch::window> called = comm.create_window(64);
      co_await take_gpu(comm, gpu);
      BOOST_TEST((gpu == ch::errc::invalid_state), gpu.message());
      BOOST_TEST(gpu.message().find("window") != std::string::npos, gpu.message());
    }
  });
}

BOOST_AUTO_TEST_CASE(device_memory_before_use_gpu_is_refused) {
  alone([]() -> ch::task<> {
    auto comm = co_await ch::communicator::join();
    float x = 0;
    try {
      co_await comm.all_reduce(ch::device_span{&x, 1}, ch::sum, ch::on{});
      BOOST_ERROR("it was not refused");
    } catch (const ch::failure& f) {
      BOOST_TEST((f.why() == ch::errc::invalid_state));
    }
  });
}

BOOST_AUTO_TEST_SUITE_END()
