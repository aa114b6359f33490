// The same four shards give bitwise the same weights in one process and in four ranks that fold in rank
// order; another order of folding does not; and the trainer learns.
#include "digits/trainer.hpp"

#include <chorale/async/engine.hpp>

#include <boost/test/unit_test.hpp>

#include <barrier>
#include <numeric>
#include <thread>

namespace {

/// Sums the buckets of ranks that are threads of this process, folding in the order given.
class meeting {
 public:
  explicit meeting(std::vector<std::size_t> fold_order)
      : fold_order_{std::move(fold_order)},
        buckets_(fold_order_.size()),
        everybody_{static_cast<std::ptrdiff_t>(fold_order_.size())} {}

  void exchange(std::size_t rank, const std::vector<std::span<float>>& buckets) {
    buckets_[rank] = buckets;
    everybody_.arrive_and_wait();
    if (rank == 0) fold();
    everybody_.arrive_and_wait();
  }

 private:
  void fold() {
    for (std::size_t bucket = 0; bucket < buckets_[0].size(); ++bucket) {
      for (std::size_t i = 0; i < buckets_[0][bucket].size(); ++i) {
        float sum = buckets_[fold_order_[0]][bucket][i];
        for (std::size_t k = 1; k < fold_order_.size(); ++k) sum += buckets_[fold_order_[k]][bucket][i];
        for (const std::vector<std::span<float>>& of_rank : buckets_) of_rank[bucket][i] = sum;
      }
    }
  }

  std::vector<std::size_t> fold_order_;
  std::vector<std::vector<std::span<float>>> buckets_;
  std::barrier<> everybody_;
};

class attendance final : public digits::gradient_exchange {
 public:
  attendance(meeting& where, std::size_t rank) : where_{&where}, rank_{rank} {}
  void start(std::span<float> bucket) override { started_.push_back(bucket); }
  [[nodiscard]] chorale::task<> progress() override { co_return; }
  [[nodiscard]] chorale::task<chorale::result<>> finish() override {
    chorale::result<> done;
    where_->exchange(rank_, started_);
    most_started = std::max(most_started, started_.size());
    started_.clear();
    co_return done;
  }
  std::size_t most_started = 0;

 private:
  meeting* where_;
  std::size_t rank_;
  std::vector<std::span<float>> started_;
};

/// The exchange of a rank that is alone: its sum is the sum.
class alone final : public digits::gradient_exchange {
 public:
  void start(std::span<float>) override {}
  [[nodiscard]] chorale::task<> progress() override { co_return; }
  [[nodiscard]] chorale::task<chorale::result<>> finish() override {
    chorale::result<> nothing_to_wait_for;
    co_return nothing_to_wait_for;
  }
};

class broken final : public digits::gradient_exchange {
 public:
  void start(std::span<float>) override {}
  [[nodiscard]] chorale::task<> progress() override { co_return; }
  [[nodiscard]] chorale::task<chorale::result<>> finish() override {
    chorale::result<> lost = chorale::error{chorale::errc::peer_lost, "rank 2 ended", 2};
    co_return lost;
  }
};

digits::plan small_plan() {
  digits::plan plan;
  plan.hidden_widths = {32, 16};
  plan.epochs = 2;
  return plan;
}

digits::parts shipped() {
  const chorale::result<digits::dataset> images = digits::load(DIGITS_DATA);
  return digits::split(images.value(), 297, 1);
}

chorale::task<chorale::result<digits::score>> run_epochs(digits::trainer& trainer, std::size_t epochs) {
  chorale::result<digits::score> last = digits::score{};
  for (std::size_t i = 0; i < epochs && last; ++i) last = co_await trainer.run_epoch();
  co_return last;
}

std::vector<float> weights_of(const digits::trainer& trainer) {
  return {trainer.network().parameters().begin(), trainer.network().parameters().end()};
}

std::vector<float> train_alone(const digits::plan& plan, const digits::dataset& training) {
  alone exchange;
  digits::trainer trainer{plan, {0, 1}, training, exchange};
  chorale::engine engine;
  const chorale::result<digits::score> done = engine.run(run_epochs(trainer, plan.epochs));
  BOOST_TEST(done.has_value());
  return weights_of(trainer);
}

std::vector<std::vector<float>> train_in_ranks(const digits::plan& plan, const digits::dataset& training,
                                               std::vector<std::size_t> fold_order) {
  const std::size_t ranks = fold_order.size();
  meeting where{std::move(fold_order)};
  std::vector<std::vector<float>> weights(ranks);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      attendance exchange{where, rank};
      digits::trainer trainer{plan,
                              {static_cast<chorale::rank_t>(rank), static_cast<chorale::rank_t>(ranks)},
                              training,
                              exchange};
      chorale::engine engine;
      (void)engine.run(run_epochs(trainer, plan.epochs));
      weights[rank] = weights_of(trainer);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return weights;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(digits_trainer)

BOOST_AUTO_TEST_CASE(four_ranks_end_with_bitwise_the_weights_of_one) {
  const digits::parts data = shipped();
  const std::vector<float> expected = train_alone(small_plan(), data.training);
  const std::vector<std::vector<float>> weights = train_in_ranks(small_plan(), data.training, {0, 1, 2, 3});
  for (const std::vector<float>& of_rank : weights) BOOST_TEST((of_rank == expected));
}

BOOST_AUTO_TEST_CASE(another_order_of_folding_gives_other_bits) {
  const digits::parts data = shipped();
  const std::vector<float> expected = train_alone(small_plan(), data.training);
  const std::vector<std::vector<float>> weights = train_in_ranks(small_plan(), data.training, {3, 1, 0, 2});
  BOOST_TEST((weights[0] != expected));
  BOOST_TEST((weights[0] == weights[3]));
}

BOOST_AUTO_TEST_CASE(every_layer_is_a_bucket_of_its_own) {
  const digits::parts data = shipped();
  meeting where{{0}};
  attendance exchange{where, 0};
  digits::trainer trainer{small_plan(), {0, 1}, data.training, exchange};
  chorale::engine engine;
  const chorale::result<digits::score> done = engine.run(trainer.run_epoch());
  BOOST_TEST(done.has_value());
  BOOST_TEST(exchange.most_started == trainer.network().layer_count());
}

BOOST_AUTO_TEST_CASE(learns_to_read) {
  const digits::parts data = shipped();
  alone exchange;
  digits::trainer trainer{small_plan(), {0, 1}, data.training, exchange};
  chorale::engine engine;
  const chorale::result<digits::score> done = engine.run(run_epochs(trainer, 6));
  BOOST_REQUIRE(done.has_value());
  BOOST_TEST(done->accuracy > 0.9);
  BOOST_TEST(digits::evaluate(trainer.network(), data.test).accuracy > 0.9);
}

BOOST_AUTO_TEST_CASE(a_lost_rank_ends_the_epoch_with_its_error) {
  const digits::parts data = shipped();
  broken exchange;
  digits::trainer trainer{small_plan(), {0, 4}, data.training, exchange};
  chorale::engine engine;
  const chorale::result<digits::score> done = engine.run(trainer.run_epoch());
  BOOST_REQUIRE(!done.has_value());
  BOOST_TEST((done.error() == chorale::errc::peer_lost));
  BOOST_TEST(done.error().culprit() == 2);
}

BOOST_AUTO_TEST_CASE(plans_that_cannot_be_carried_out_are_refused) {
  digits::plan plan = small_plan();
  BOOST_TEST(digits::check(plan, {0, 4}, 1500).has_value());
  BOOST_TEST(!digits::check(plan, {0, 3}, 1500).has_value());
  BOOST_TEST(!digits::check(plan, {0, 1}, 99).has_value());
  plan.batch = 3;
  BOOST_TEST(!digits::check(plan, {0, 1}, 1500).has_value());
  plan.batch = 100;
  plan.hidden_widths = {16, 0};
  BOOST_TEST(!digits::check(plan, {0, 1}, 1500).has_value());
}

BOOST_AUTO_TEST_CASE(the_fingerprint_sees_one_bit) {
  digits::mlp network{{4, 3, 2}, 1};
  const std::uint64_t before = digits::fingerprint(network);
  BOOST_TEST(digits::fingerprint(digits::mlp{{4, 3, 2}, 1}) == before);
  std::as_writable_bytes(network.parameters())[5] ^= std::byte{1};
  BOOST_TEST(digits::fingerprint(network) != before);
}

BOOST_AUTO_TEST_SUITE_END()
