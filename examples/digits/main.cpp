// digits: the framework-free data-parallel trainer that shows chorale at work. See --help.
#include "collective_exchange.hpp"
#include "options.hpp"
#include "report.hpp"
#include <chorale/chorale.hpp>

#include <fmt/format.h>

#include <cstdio>

namespace {

using namespace digits;

chorale::task<chorale::result<>> train(trainer& trainer, const plan& plan, const progress_bar* bar) {
  for (std::size_t done = 1; done <= plan.epochs; ++done) {
    chorale::result<score> epoch = co_await trainer.run_epoch();
    if (!epoch) co_return epoch.error();
    if (bar != nullptr) bar->show(done, *epoch);
  }
  chorale::result<> trained;
  co_return trained;
}

/// Every rank's times on every rank: each adds its own to a row of zeros.
chorale::task<chorale::result<std::vector<rank_times>>> gather(gradient_exchange& exchange, share share,
                                                               const timeline& own) {
  std::vector<float> row(3 * static_cast<std::size_t>(share.ranks));
  const std::span<float> mine = std::span{row}.subspan(3 * static_cast<std::size_t>(share.rank), 3);
  mine[0] = static_cast<float>(own.computing().count());
  mine[1] = static_cast<float>(own.exposed().count());
  mine[2] = static_cast<float>(own.exchanging().count());
  exchange.start(row);
  chorale::result<> summed = co_await exchange.finish();
  if (!summed) co_return summed.error();
  std::vector<rank_times> times;
  for (std::size_t i = 0; i < row.size(); i += 3) times.push_back({row[i], row[i + 1], row[i + 2]});
  co_return times;
}

/// Trains as one rank of a job; rank 0 shows how far it is and what came out.
chorale::task<chorale::result<>> run(const options& wanted, const parts& data) {
  chorale::communicator comm = co_await chorale::communicator::join();
  const share share{comm.rank(), comm.size()};
  chorale::result<> possible = check(wanted.training, share, data.training.size());
  if (!possible) co_return possible;

  collective_exchange exchange{comm};
  trainer trainer{wanted.training, share, data.training, exchange};
  const progress_bar bar{stdout, wanted.training.epochs};
  const bool speaks = share.rank == 0;
  const auto from = timeline::clock::now();
  chorale::result<> trained = co_await train(trainer, wanted.training, speaks ? &bar : nullptr);
  if (!trained) co_return trained;
  const timeline::seconds wall = timeline::clock::now() - from;

  chorale::result<std::vector<rank_times>> times = co_await gather(exchange, share, trainer.times());
  if (!times) co_return times.error();
  if (speaks) {
    outcome reached;
    reached.test = evaluate(trainer.network(), data.test);
    reached.test_count = data.test.size();
    reached.wall = wall;
    reached.ranks = *times;
    reached.fingerprint = fingerprint(trainer.network());
    fmt::print("{}", table(reached));
  }
  co_return trained;
}

int give_up(const chorale::error& why) {
  fmt::print(stderr, "digits: {}\n", why.message());
  return 1;
}

int start(const options& wanted) {
  chorale::result<dataset> images = load(wanted.data);
  if (!images) return give_up(images.error());
  if (wanted.test_count >= images->size()) {
    return give_up(chorale::error{
        chorale::errc::invalid_argument,
        fmt::format("{} images hold no {} to test with and some to train on; lower --test-images",
                    images->size(), wanted.test_count)});
  }
  const parts data = split(*images, wanted.test_count, wanted.training.seed);
  chorale::engine engine;
  chorale::result<> done = engine.run(run(wanted, data));
  return done ? 0 : give_up(done.error());
}

}  // namespace

int main(int argc, char** argv) {
  const parsed line = parse_command_line(argc, argv);
  if (!line.wanted) return line.exit_code;
  try {
    return start(*line.wanted);
  } catch (const chorale::failure& failed) {
    return give_up(failed.why());
  }
}
