#include "trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace digits {
namespace {

constexpr std::size_t tally_count = 2;  // loss, images recognised

std::vector<std::size_t> widths_of(const plan& plan) {
  std::vector<std::size_t> widths{pixels_per_image};
  widths.insert(widths.end(), plan.hidden_widths.begin(), plan.hidden_widths.end());
  widths.push_back(class_count);
  return widths;
}

/// Cuts a batch into plan.shards pieces whose sizes differ by one at most.
std::span<const std::uint32_t> shard_of(std::span<const std::uint32_t> batch, std::size_t shard,
                                        std::size_t shards) {
  const std::size_t from = batch.size() * shard / shards;
  const std::size_t to = batch.size() * (shard + 1) / shards;
  return batch.subspan(from, to - from);
}

chorale::error refuse(std::string why) {
  return chorale::error{chorale::errc::invalid_argument, std::move(why)};
}

}  // namespace

chorale::result<> check(const plan& plan, share share, std::size_t training_count) {
  const auto ranks = static_cast<std::size_t>(share.ranks);
  if (plan.shards == 0 || plan.shards % ranks != 0) {
    return refuse(fmt::format("{} shards cannot be dealt evenly to {} ranks; make --shards a multiple of -n",
                              plan.shards, share.ranks));
  }
  if (plan.batch < plan.shards) {
    return refuse(
        fmt::format("a batch of {} images leaves some of {} shards empty; raise --batch or lower --shards",
                    plan.batch, plan.shards));
  }
  if (plan.batch > training_count) {
    return refuse(fmt::format("a batch of {} images is more than the {} there are; lower --batch", plan.batch,
                              training_count));
  }
  if (std::find(plan.hidden_widths.begin(), plan.hidden_widths.end(), 0U) != plan.hidden_widths.end()) {
    return refuse("a layer of width 0 lets nothing through; give --hidden widths of 1 or more");
  }
  return {};
}

trainer::trainer(const plan& plan, share share, const dataset& training, gradient_exchange& exchange)
    : plan_{plan},
      training_{&training},
      exchange_{&exchange},
      first_shard_{plan.shards / static_cast<std::size_t>(share.ranks) *
                   static_cast<std::size_t>(share.rank)},
      random_{plan.seed},
      network_{widths_of(plan), random_.next()},
      gradient_(network_.parameters().size() + tally_count),
      velocity_(network_.parameters().size()) {
  const std::size_t own_shards = plan.shards / static_cast<std::size_t>(share.ranks);
  const std::size_t images_per_shard = (plan.batch + plan.shards - 1) / plan.shards;
  for (std::size_t i = 0; i < own_shards; ++i) shards_.emplace_back(network_, images_per_shard);
  std::size_t largest = 0;
  for (std::size_t layer = 0; layer < network_.layer_count(); ++layer) {
    largest = std::max(largest, network_.slice(layer).count);
  }
  contribution_.resize(largest);
}

chorale::task<chorale::result<score>> trainer::run_epoch() {
  const std::vector<std::uint32_t> order = shuffled(training_->size(), random_);
  const std::size_t steps = order.size() / plan_.batch;
  score total;
  for (std::size_t i = 0; i < steps; ++i) {
    chorale::result<> done = co_await step(std::span{order}.subspan(i * plan_.batch, plan_.batch));
    if (!done) co_return done.error();
    total.loss += static_cast<double>(gradient_[network_.parameters().size()]);
    total.accuracy += static_cast<double>(gradient_[network_.parameters().size() + 1]);
  }
  const auto images = static_cast<double>(steps * plan_.batch);
  const score mean{total.loss / images, total.accuracy / images};
  co_return mean;
}

chorale::task<chorale::result<>> trainer::step(std::span<const std::uint32_t> batch) {
  times_.begin();
  forward(batch);
  co_await backward();
  times_.computed();
  chorale::result<> summed = co_await exchange_->finish();
  times_.exchanged();
  if (!summed) co_return summed;
  descend();
  times_.computed();
  co_return summed;
}

void trainer::forward(std::span<const std::uint32_t> batch) {
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    shards_[i].forward(training_->pixels, training_->labels, shard_of(batch, first_shard_ + i, plan_.shards));
  }
}

chorale::task<> trainer::backward() {
  for (std::size_t layer = network_.layer_count(); layer-- > 0;) {
    fold(layer);
    times_.computed();
    exchange_->start(bucket(layer));
    times_.exchanged();
    if (layer == 0) co_return;
    for (batch_pass& shard : shards_) shard.propagate(layer);
    times_.computed();
    co_await exchange_->progress();
    times_.exchanged();
  }
}

/// The layer's gradient over this rank's shards: a left fold in shard order, beginning with the first shard
/// itself and not with zero, as the exchange goes on with it.
void trainer::fold(std::size_t layer) {
  const bool top = layer + 1 == network_.layer_count();
  std::span<float> sum = bucket(layer);
  std::span<float> gradient = sum.first(network_.slice(layer).count);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    const auto recognised = static_cast<float>(shards_[i].recognised());
    if (i == 0) {
      shards_[i].gradient_of(layer, gradient);
      if (top) sum[gradient.size()] = shards_[i].loss();
      if (top) sum[gradient.size() + 1] = recognised;
      continue;
    }
    std::span<float> one = std::span{contribution_}.first(gradient.size());
    shards_[i].gradient_of(layer, one);
    for (std::size_t k = 0; k < one.size(); ++k) gradient[k] += one[k];
    if (top) sum[gradient.size()] += shards_[i].loss();
    if (top) sum[gradient.size() + 1] += recognised;
  }
}

std::span<float> trainer::bucket(std::size_t layer) {
  const bucket_slice slice = network_.slice(layer);
  const bool top = layer + 1 == network_.layer_count();
  return std::span{gradient_}.subspan(slice.offset, slice.count + (top ? tally_count : 0));
}

void trainer::descend() {
  const float mean = 1.0F / static_cast<float>(plan_.batch);
  float* parameters = network_.parameters().data();
  for (std::size_t i = 0; i < velocity_.size(); ++i) {
    velocity_[i] = plan_.momentum * velocity_[i] + gradient_[i] * mean;
    parameters[i] -= plan_.learning_rate * velocity_[i];
  }
}

score evaluate(const mlp& network, const dataset& images) {
  std::vector<std::uint32_t> order(images.size());
  std::iota(order.begin(), order.end(), 0U);
  batch_pass pass{network, images.size()};
  pass.forward(images.pixels, images.labels, order);
  const auto count = static_cast<double>(images.size());
  return {static_cast<double>(pass.loss()) / count, static_cast<double>(pass.recognised()) / count};
}

std::uint64_t fingerprint(const mlp& network) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (std::byte byte : std::as_bytes(network.parameters())) {
    hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3U;
  }
  return hash;
}

}  // namespace digits
