// Data-parallel stochastic gradient descent.
//
// A batch is always cut into `plan::shards` shards, however many ranks there are; each rank computes its
// share of them. Gradients are folded in shard order: within a rank here, one shard after the other from the
// left; over the ranks by the exchange. So one rank with four shards and four ranks with one shard each add
// the same numbers in the same order, ((g0 + g1) + g2) + g3, and end with bitwise the same weights, provided
// that the exchange folds in rank order (chorale's deterministic mode). With 1 < ranks < shards the sums are
// as correct, in another order.
//
// Each layer's gradient is one bucket, started as soon as the layer's last shard is folded, while the layers
// below are still being computed. The last layer's bucket carries two more numbers: the loss and the images
// recognised.
//
// One engine and its thread. The data and the exchange belong to the caller and outlive the trainer.
#pragma once

#include "dataset.hpp"
#include "exchange.hpp"
#include "mlp.hpp"
#include "random.hpp"
#include "timeline.hpp"
#include <chorale/async/error.hpp>
#include <chorale/async/task.hpp>

namespace digits {

/// What all ranks must agree on: the same plan gives the same weights.
struct plan {
  std::vector<std::size_t> hidden_widths{256, 128};
  std::size_t epochs = 60;
  std::size_t batch = 100;
  std::size_t shards = 4;
  float learning_rate = 0.05F;
  float momentum = 0.9F;
  std::uint64_t seed = 1;
};

struct share {
  chorale::rank_t rank = 0;
  chorale::rank_t ranks = 1;
};

/// Refuses plans that cannot be carried out by that many ranks on that much data.
[[nodiscard]] chorale::result<> check(const plan& plan, share share, std::size_t training_count);

struct score {
  double loss = 0;      ///< mean over the images
  double accuracy = 0;  ///< share of images recognised
};

class trainer {
 public:
  /// Precondition: check(plan, share, training.size()).
  trainer(const plan& plan, share share, const dataset& training, gradient_exchange& exchange);
  trainer(const trainer&) = delete;
  trainer& operator=(const trainer&) = delete;

  /// One pass over the training images in a new order; the same on all ranks. Images that fill no batch sit
  /// out.
  [[nodiscard]] chorale::task<chorale::result<score>> run_epoch();

  [[nodiscard]] const mlp& network() const { return network_; }
  [[nodiscard]] const timeline& times() const { return times_; }

 private:
  [[nodiscard]] chorale::task<chorale::result<>> step(std::span<const std::uint32_t> batch);
  void forward(std::span<const std::uint32_t> batch);
  [[nodiscard]] chorale::task<> backward();
  void fold(std::size_t layer);
  [[nodiscard]] std::span<float> bucket(std::size_t layer);
  void descend();

  plan plan_;
  const dataset* training_;
  gradient_exchange* exchange_;
  std::size_t first_shard_;
  random_source random_;
  mlp network_;
  std::vector<batch_pass> shards_;   // of this rank
  std::vector<float> gradient_;      // parameters' order, then loss and images recognised
  std::vector<float> contribution_;  // one shard's gradient of one layer
  std::vector<float> velocity_;
  timeline times_;
};

/// Loss and accuracy of a network on images it did not necessarily see.
[[nodiscard]] score evaluate(const mlp& network, const dataset& images);

/// FNV-1a, 64 bits, over the parameters' bytes: equal networks have equal fingerprints.
[[nodiscard]] std::uint64_t fingerprint(const mlp& network);

}  // namespace digits
