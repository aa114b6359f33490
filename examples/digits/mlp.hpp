// A multi-layer perceptron with ReLU between its layers and softmax cross-entropy on top, in plain f32.
//
// All parameters lie in one flat array, layer by layer: weights (input-major: the row of input i holds its
// weight to every output), then biases. Gradients are sums over the images of a batch, not means, and lie in
// the same order, so that `slice(layer)` of either array is one contiguous bucket that can be sent as it is.
//
// Forward and backward go layer by layer, so that the caller decides what happens in between: as soon as
// `gradient_of(layer)` returned, that layer's bucket is final and can travel while the layers below are still
// being computed.
//
// The order of every floating-point operation is fixed by the source (no contraction, no reassociation): the
// same images give bitwise the same gradient in whatever process they are computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace digits {

/// Where a layer's parameters (or its gradient) lie in the flat array.
struct bucket_slice {
  std::size_t offset = 0;
  std::size_t count = 0;
};

class mlp {
 public:
  /// `widths` from the input to the output: {64, 256, 128, 10}. Two at least.
  /// Weights are drawn from `seed`, uniform with variance 2 / fan-in; biases are zero.
  mlp(std::vector<std::size_t> widths, std::uint64_t seed);

  [[nodiscard]] std::size_t layer_count() const { return widths_.size() - 1; }
  [[nodiscard]] std::size_t width(std::size_t level) const { return widths_[level]; }
  [[nodiscard]] bucket_slice slice(std::size_t layer) const { return slices_[layer]; }
  [[nodiscard]] std::span<float> parameters() { return parameters_; }
  [[nodiscard]] std::span<const float> parameters() const { return parameters_; }

  [[nodiscard]] std::span<const float> weights(std::size_t layer) const {
    return std::span{parameters_}.subspan(slices_[layer].offset, widths_[layer] * widths_[layer + 1]);
  }
  [[nodiscard]] std::span<const float> biases(std::size_t layer) const {
    return std::span{parameters_}.subspan(slices_[layer].offset + widths_[layer] * widths_[layer + 1],
                                          widths_[layer + 1]);
  }

 private:
  std::vector<std::size_t> widths_;
  std::vector<bucket_slice> slices_;
  std::vector<float> parameters_;
};

/// What one batch of images leaves behind on its way through a network: activations and their gradients.
/// Room for up to `capacity` images is allocated once. Refers to the network, which must outlive it.
class batch_pass {
 public:
  batch_pass(const mlp& network, std::size_t capacity);

  /// Takes in the images `order[0…]` of `pixels` (rows of width(0)) and computes all activations.
  void forward(std::span<const float> pixels, std::span<const std::uint8_t> labels,
               std::span<const std::uint32_t> order);

  /// Sum over the batch of −log p(label), and how many images were recognised. After forward.
  [[nodiscard]] float loss() const { return loss_; }
  [[nodiscard]] std::size_t recognised() const { return recognised_; }

  /// Writes the gradient of `layer` to `out` (slice(layer).count floats). From the top layer down: after
  /// forward for the last layer, after propagate(layer + 1) for the others.
  void gradient_of(std::size_t layer, std::span<float> out) const;
  /// Carries the error through `layer` to the one below it. Precondition: layer > 0.
  void propagate(std::size_t layer);

 private:
  void apply(std::size_t layer);
  void score();
  [[nodiscard]] std::span<float> row(std::vector<std::vector<float>>& levels, std::size_t level,
                                     std::size_t image) {
    return std::span{levels[level]}.subspan(image * network_->width(level), network_->width(level));
  }
  [[nodiscard]] std::span<const float> row(const std::vector<std::vector<float>>& levels, std::size_t level,
                                           std::size_t image) const {
    return std::span{levels[level]}.subspan(image * network_->width(level), network_->width(level));
  }

  const mlp* network_;
  std::size_t count_ = 0;
  std::vector<std::vector<float>> values_;  // per level: what the level's neurons put out
  std::vector<std::vector<float>> errors_;  // per level: d loss / d (input of the neuron)
  std::vector<std::uint8_t> labels_;
  float loss_ = 0;
  std::size_t recognised_ = 0;
};

}  // namespace digits
