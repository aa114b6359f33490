#include "mlp.hpp"

#include "random.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

namespace digits {
namespace {

/// sum += factor * row. Independent elements: vectorised without changing any result.
void add_scaled(std::span<float> sum, float factor, std::span<const float> row) {
  float* to = sum.data();
  const float* from = row.data();
  const std::size_t count = sum.size();
  for (std::size_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

/// Eight partial sums, folded in a fixed order: fast, and the same on every rank.
float dot(std::span<const float> a, std::span<const float> b) {
  std::array<float, 8> partial{};
  const std::size_t whole = a.size() / partial.size() * partial.size();
  for (std::size_t i = 0; i < whole; i += partial.size()) {
    for (std::size_t lane = 0; lane < partial.size(); ++lane) partial[lane] += a[i + lane] * b[i + lane];
  }
  float sum = 0;
  for (float value : partial) sum += value;
  for (std::size_t i = whole; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

mlp::mlp(std::vector<std::size_t> widths, std::uint64_t seed) : widths_{std::move(widths)} {
  assert(widths_.size() >= 2);
  random_source random{seed};
  for (std::size_t layer = 0; layer < layer_count(); ++layer) {
    const std::size_t inputs = widths_[layer];
    const std::size_t outputs = widths_[layer + 1];
    slices_.push_back({parameters_.size(), (inputs + 1) * outputs});
    const float bound = std::sqrt(6.0F / static_cast<float>(inputs));
    for (std::size_t i = 0; i < inputs * outputs; ++i) parameters_.push_back(random.within(bound));
    parameters_.resize(parameters_.size() + outputs, 0.0F);
  }
}

batch_pass::batch_pass(const mlp& network, std::size_t capacity)
    : network_{&network}, values_(network.layer_count() + 1), errors_(network.layer_count() + 1) {
  for (std::size_t level = 0; level <= network.layer_count(); ++level) {
    values_[level].resize(capacity * network.width(level));
    errors_[level].resize(level == 0 ? 0 : capacity * network.width(level));
  }
  labels_.resize(capacity);
}

void batch_pass::forward(std::span<const float> pixels, std::span<const std::uint8_t> labels,
                         std::span<const std::uint32_t> order) {
  assert(order.size() <= labels_.size());
  count_ = order.size();
  const std::size_t width = network_->width(0);
  for (std::size_t image = 0; image < count_; ++image) {
    std::span<const float> source = pixels.subspan(order[image] * width, width);
    std::copy(source.begin(), source.end(), row(values_, 0, image).begin());
    labels_[image] = labels[order[image]];
  }
  for (std::size_t layer = 0; layer < network_->layer_count(); ++layer) apply(layer);
  score();
}

void batch_pass::apply(std::size_t layer) {
  const std::size_t outputs = network_->width(layer + 1);
  std::span<const float> biases = network_->biases(layer);
  std::span<const float> weights = network_->weights(layer);
  for (std::size_t image = 0; image < count_; ++image) {
    std::copy(biases.begin(), biases.end(), row(values_, layer + 1, image).begin());
  }
  // Inputs outside, images inside: a row of weights is read from cache once per image.
  for (std::size_t input = 0; input < network_->width(layer); ++input) {
    std::span<const float> from_input = weights.subspan(input * outputs, outputs);
    for (std::size_t image = 0; image < count_; ++image) {
      add_scaled(row(values_, layer + 1, image), row(values_, layer, image)[input], from_input);
    }
  }
  if (layer + 1 == network_->layer_count()) return;
  for (std::size_t i = 0; i < count_ * outputs; ++i) {
    values_[layer + 1][i] = std::max(values_[layer + 1][i], 0.0F);
  }
}

void batch_pass::score() {
  const std::size_t top = network_->layer_count();
  loss_ = 0;
  recognised_ = 0;
  for (std::size_t image = 0; image < count_; ++image) {
    std::span<const float> scores = row(values_, top, image);
    std::span<float> error = row(errors_, top, image);
    const auto best = std::max_element(scores.begin(), scores.end());
    float total = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      error[i] = std::exp(scores[i] - *best);
      total += error[i];
    }
    for (float& value : error) value /= total;
    const std::size_t label = labels_[image];
    loss_ += std::log(total) - (scores[label] - *best);
    error[label] -= 1.0F;
    if (static_cast<std::size_t>(best - scores.begin()) == label) ++recognised_;
  }
}

void batch_pass::gradient_of(std::size_t layer, std::span<float> out) const {
  assert(out.size() == network_->slice(layer).count);
  const std::size_t inputs = network_->width(layer);
  const std::size_t outputs = network_->width(layer + 1);
  std::fill(out.begin(), out.end(), 0.0F);
  for (std::size_t input = 0; input < inputs; ++input) {
    std::span<float> of_input = out.subspan(input * outputs, outputs);
    for (std::size_t image = 0; image < count_; ++image) {
      add_scaled(of_input, row(values_, layer, image)[input], row(errors_, layer + 1, image));
    }
  }
  std::span<float> of_biases = out.subspan(inputs * outputs, outputs);
  for (std::size_t image = 0; image < count_; ++image) {
    add_scaled(of_biases, 1.0F, row(errors_, layer + 1, image));
  }
}

void batch_pass::propagate(std::size_t layer) {
  assert(layer > 0);
  const std::size_t outputs = network_->width(layer + 1);
  std::span<const float> weights = network_->weights(layer);
  for (std::size_t input = 0; input < network_->width(layer); ++input) {
    std::span<const float> from_input = weights.subspan(input * outputs, outputs);
    for (std::size_t image = 0; image < count_; ++image) {
      const bool active = row(values_, layer, image)[input] > 0.0F;
      const float error = dot(row(errors_, layer + 1, image), from_input);
      row(errors_, layer, image)[input] = active ? error : 0.0F;
    }
  }
}

}  // namespace digits
