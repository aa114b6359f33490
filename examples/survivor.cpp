// Errors as a program meets them: a rank that comes too late for a deadline, and one that is killed in the
// middle, without which the others go on.
//   chorale run -n 4 --on-loss continue -- survivor
#include <chorale/chorale.hpp>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t steps = 10;

// guide: late
chorale::task<> answer_within_50ms(chorale::communicator& comm, std::uint64_t request) {
  std::vector<float> part(1000, 1.0F);
  chorale::lane lane = comm[request];
  const auto outcome =
      co_await chorale::as_result(lane.all_reduce(part, chorale::sum, chorale::deadline{50ms}));
  if (!outcome) std::printf("rank %d: %s\n", comm.rank(), outcome.error().message().c_str());
}
// end of guide

chorale::task<> step(chorale::communicator& comm, std::vector<float>& model) {
  std::vector<float> gradient(model.size(), 1.0F);
  co_await comm.all_reduce(gradient, chorale::sum);
  for (std::size_t i = 0; i < model.size(); ++i) model[i] += gradient[i];
}

void be_killed_once(const chorale::communicator& comm, std::uint64_t done) {
  if (comm.launched_as() == 2 && done == 4) std::raise(SIGKILL);
}

// guide: survive
/// Some may have finished a step that others lost: the newest model is everybody's.
chorale::task<> agree_on_the_newest(chorale::communicator& comm, std::uint64_t& done,
                                    std::vector<float>& model) {
  std::array<std::uint64_t, 1> newest{done};
  co_await comm.all_reduce(newest, chorale::max);
  std::array<std::int32_t, 1> source{done == newest[0] ? comm.rank() : comm.size()};
  co_await comm.all_reduce(source, chorale::min);
  co_await comm.broadcast(model, source[0]);
  done = newest[0];
}

chorale::task<> train(chorale::communicator& comm) {
  std::vector<float> model(1000);
  std::uint64_t done = 0;
  while (done < steps) {
    be_killed_once(comm, done);
    chorale::task<> one = step(comm, model);  // changes the model once it has the sum, and not before
    const auto outcome = co_await chorale::as_result(std::move(one));
    if (outcome) {
      ++done;
      continue;
    }
    std::printf("rank %d: %s\n", comm.rank(), outcome.error().message().c_str());
    co_await comm.reset();  // those who call it go on, under new numbers
    co_await agree_on_the_newest(comm, done, model);
  }
  std::printf("rank %d of %d did %d steps\n", comm.rank(), comm.size(), static_cast<int>(done));
}
// end of guide

chorale::task<> work() {
  auto comm = co_await chorale::communicator::join();
  if (comm.rank() == 0) co_await chorale::sleep_for(200ms);
  co_await answer_within_50ms(comm, 17);
  co_await train(comm);
}

}  // namespace

int main() {
  chorale::engine loop;
  try {
    loop.run(work());
  } catch (const chorale::failure& f) {
    std::fprintf(stderr, "survivor: %s\n", f.what());
    return 1;
  }
}
