// Sums gradients with all_reduce: each bucket is a call that is started at once and awaited at the end of the
// step.
//
// Belongs to the communicator's engine and outlives nothing: no bucket may be under way when it is destroyed.
#pragma once

#include "exchange.hpp"
#include <chorale/chorale.hpp>

#include <utility>
#include <vector>

namespace digits {

class collective_exchange final : public gradient_exchange {
 public:
  explicit collective_exchange(chorale::communicator& comm) : comm_{&comm} {}

  // guide: overlap
  void start(std::span<float> bucket) override {
    under_way_.push_back(comm_->all_reduce(bucket, chorale::sum).start());
  }

  /// A turn of the engine: what has arrived is folded in and passed on.
  [[nodiscard]] chorale::task<> progress() override {
    chorale::yield turn;
    co_await turn;
  }

  [[nodiscard]] chorale::task<chorale::result<>> finish() override {
    chorale::result<> outcome;
    for (chorale::started& bucket : under_way_) {
      chorale::result<> one = co_await chorale::as_result(std::move(bucket));
      if (outcome && !one) outcome = std::move(one);
    }
    under_way_.clear();
    co_return outcome;
  }
  // end of guide

 private:
  chorale::communicator* comm_;
  std::vector<chorale::started> under_way_;
};

}  // namespace digits
