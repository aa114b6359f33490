// Two ranks, a GPU each, through the communicator: every collective on device memory with all element types
// and operations, awaited, started, enqueued and captured; mixed with collectives on host memory; a deadline.
// Run as
//   chorale run -n 2 -- gpu_communicator
// Exits with 77 and a reason where there are fewer than two GPUs.
#include "../api/device_cases.hpp"
#include "device_arena.hpp"
#include "two_gpus.hpp"
#include <chorale/chorale.hpp>

#include <cstdio>
#include <vector>

namespace ch = chorale;
using namespace std::chrono_literals;
using ch::gpu_test::captured_graph;
using ch::gpu_test::device;
using ch::gpu_test::device_arena;
using ch::gpu_test::difference;
using ch::gpu_test::driver;
using ch::gpu_test::work_stream;
using ch::kernels_test::collective_case;

namespace {

enum class way { awaited, started, enqueued, captured };

class rank_under_test {
 public:
  rank_under_test(ch::communicator& comm, const work_stream& on) : comm_{comm}, on_{on} {}

  void expect(bool right, const std::string& what) {
    if (right) return;
    wrong_ += 1;
    if (wrong_ <= 10) std::printf("rank %d: WRONG: %s\n", comm_.rank(), what.c_str());
  }
  [[nodiscard]] int wrong() const { return wrong_; }

  ch::task<void> check(collective_case what, unsigned seed, way how) {
    std::vector<ch::kernels_test::bytes> before;
    for (ch::rank_t r = 0; r < comm_.size(); ++r) before.push_back(what.initial(r, comm_.size(), seed));
    const device_arena arena{what.plan(comm_.rank(), comm_.size()).total};
    arena.write(before[static_cast<std::size_t>(comm_.rank())], on_);
    const auto calls = describe_with_spans(what, comm_.rank(), comm_.size(), arena.data());
    const auto make = [&] {
      return calls.size() == 1 ? comm_.launch(calls[0], ch::on{on_.get()})
                               : comm_.launch_batch(calls, ch::on{on_.get()});
    };
    switch (how) {
      case way::awaited:
        co_await make();
        break;
      case way::started: {
        ch::gpu_started running = make().start();
        co_await std::move(running);
        break;
      }
      case way::enqueued: {
        const ch::error refused = make().enqueue();
        expect(!refused, what.name() + ": " + refused.message());
        break;
      }
      case way::captured: {
        const captured_graph graph{on_, [&] {
                                     const ch::error refused = make().enqueue();
                                     expect(!refused, what.name() + ": " + refused.message());
                                   }};
        graph.launch(on_);
        on_.synchronize();
        break;
      }
    }
    on_.synchronize();
    const auto expected = what.expected(comm_.rank(), comm_.size(), before);
    const std::string told =
        difference(what, comm_.rank(), comm_.size(), expected, arena.read(expected.size(), on_));
    expect(told.empty(), told);
  }

 private:
  ch::communicator& comm_;
  const work_stream& on_;
  int wrong_ = 0;
};

std::vector<collective_case> all_cases(int n) {
  std::vector<collective_case> cases = ch::kernels_test::copying_cases(n, {0, 1, 7, 4097, 20'002, 300'001});
  for (const auto& more :
       {ch::kernels_test::folding_shapes(n, {0, 1, 7, 4097, 300'002}), ch::kernels_test::folding_cases(n, 37),
        ch::kernels_test::folding_cases(n, 70'001)})
    cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

/// A rank that never comes: the deadline ends the wait, and names what was waited for.
ch::task<void> deadline_of_a_lonely_rank(ch::communicator& comm, rank_under_test& test,
                                         const work_stream& on) {
  const device_arena arena{4096};
  if (comm.rank() == 0) {
    ch::error why;
    const ch::time_point from = ch::steady_now();
    try {
      co_await comm.all_gather(ch::device_span{arena.data(), 512}, ch::device_span{arena.data() + 1024, 1024},
                               ch::on{on.get()}, ch::deadline{50ms});
    } catch (const ch::failure& f) {
      why = f.why();
    }
    const auto took = ch::steady_now() - from;
    test.expect(why == ch::errc::timed_out, "a deadline: " + why.message());
    test.expect(took > 45ms && took < 500ms, "a deadline of 50 ms ended otherwise");
    const ch::error later = comm.broadcast(ch::device_span{arena.data(), 64}, 0, ch::on{on.get()}).enqueue();
    test.expect(later == ch::errc::revoked, "a call after a failure: " + later.message());
    on.synchronize();
  }
  std::int32_t token = 0;
  co_await comm.broadcast(std::span{&token, 1}, 0);  // host memory goes on
}

ch::task<int> work() {
  auto comm = co_await ch::communicator::join();
  co_await comm.use_gpu(comm.launched_as());
  const device here{comm.launched_as()};
  const work_stream on;
  rank_under_test test{comm, on};
  const std::vector<collective_case> cases = all_cases(comm.size());
  unsigned seed = 1;
  for (const collective_case& what : cases) {
    const auto how = static_cast<way>(seed % 4);
    ch::task<void> checking = test.check(what, seed, how);
    co_await std::move(checking);
    if (seed % 16 == 0) {
      std::int64_t mine = seed;
      co_await comm.all_reduce(std::span{&mine, 1}, ch::sum);
      test.expect(mine == std::int64_t{seed} * comm.size(), "a host all_reduce in between");
    }
    ++seed;
    if (test.wrong() > 10) break;
  }
  if (comm.rank() == 0) std::printf("%zu cases on device memory through the communicator\n", cases.size());
  ch::task<void> lonely = deadline_of_a_lonely_rank(comm, test, on);
  co_await std::move(lonely);
  if (comm.rank() == 0 && test.wrong() == 0) std::printf("all right\n");
  co_return test.wrong() == 0 ? 0 : 1;
}

}  // namespace

int main() { return ch::gpu_test::run_with_two_gpus("gpu_communicator", work); }
