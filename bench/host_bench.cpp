#include "host_bench.hpp"

#include "meter.hpp"
#include "report.hpp"

#include <optional>

namespace chorale::bench {
namespace {

constexpr duration worth_measuring = std::chrono::milliseconds{250};
constexpr int fewest_iterations = 20;

task<measurement> measure(meter& with, const bench_options& options) {
  measurement m;
  if (options.check) {
    task<std::uint64_t> checking = with.check();
    m.wrong = co_await std::move(checking);
  }
  int iterations = options.iterations;
  if (iterations == 0) {
    task<int> choosing = with.choose_iterations(worth_measuring, fewest_iterations);
    iterations = co_await std::move(choosing);
  }
  task<timing> timed = with.time(iterations, options.warmup);
  m.took = co_await std::move(timed);
  co_return m;
}

}  // namespace

task<communicator> join_for(const benched_collective& what, const bench_options& options) {
  communicator_options settings;
  // A barrier takes its algorithm from all_reduce.
  const collective_kind served =
      what.kind == collective_kind::barrier ? collective_kind::all_reduce : what.kind;
  if (!options.algorithm.empty()) settings.algorithm = std::string{name_of(served)} + "=" + options.algorithm;
  task<communicator> joining = communicator::join(settings);
  communicator comm = co_await std::move(joining);
  const std::string transport = transport_of(comm);
  if (comm.size() > 1 && !options.required_transport.empty() && transport != options.required_transport)
    throw failure{error{errc::unsupported,
                        "the ranks are joined by " + transport + ", not by " + options.required_transport +
                            "; start them on one host, in one network and pid namespace, for shm"}};
  co_return comm;
}

task<int> bench_collective(const benched_collective& what, bench_options options) {
  task<communicator> joining = join_for(what, options);
  communicator comm = co_await std::move(joining);
  const report out{what, options, comm.size(), transport_of(comm)};
  if (comm.rank() == 0) out.head();
  std::uint64_t wrong = 0;
  {
    meter with{comm};
    std::optional<std::uint64_t> before;
    for (const std::uint64_t bytes : sizes_of(options)) {
      row r;
      r.count = count_for(what, bytes, options.type, comm.size());
      r.bytes = bytes_of(what, r.count, options.type, comm.size());
      if (r.count == before) continue;  // too small to differ
      before = r.count;
      subject about{&what, r.count, options.type, options.op, options.root};
      with.set(about);
      task<measurement> apart = measure(with, options);
      r.out_of_place = co_await std::move(apart);
      wrong += r.out_of_place.wrong;
      if (what.has_in_place_form) {
        about.in_place = true;
        with.set(about);
        task<measurement> in_place = measure(with, options);
        r.in_place = co_await std::move(in_place);
        wrong += r.in_place->wrong;
      }
      if (comm.rank() == 0) out.line(r);
      if (what.kind == collective_kind::barrier) break;
    }
  }
  co_await comm.barrier();
  if (comm.rank() == 0) out.end(wrong);
  co_return wrong == 0 ? 0 : 1;
}

}  // namespace chorale::bench
