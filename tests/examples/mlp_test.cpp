// Backward is the derivative of forward, and a layer's gradient is final before the layers below it are
// touched.
#include "digits/mlp.hpp"

#include "digits/random.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <numeric>
#include <vector>

namespace {

struct batch {
  std::vector<float> pixels;
  std::vector<std::uint8_t> labels;
  std::vector<std::uint32_t> order;
};

batch random_batch(std::size_t images, std::size_t width, std::size_t classes, std::uint64_t seed) {
  digits::random_source random{seed};
  batch made;
  for (std::size_t i = 0; i < images * width; ++i) made.pixels.push_back(std::abs(random.within(1.0F)));
  for (std::size_t i = 0; i < images; ++i)
    made.labels.push_back(static_cast<std::uint8_t>(random.below(classes)));
  made.order.resize(images);
  std::iota(made.order.begin(), made.order.end(), 0U);
  return made;
}

std::vector<float> gradient(const digits::mlp& network, digits::batch_pass& pass, const batch& images) {
  std::vector<float> all(network.parameters().size());
  pass.forward(images.pixels, images.labels, images.order);
  for (std::size_t layer = network.layer_count(); layer-- > 0;) {
    const digits::bucket_slice slice = network.slice(layer);
    pass.gradient_of(layer, std::span{all}.subspan(slice.offset, slice.count));
    if (layer > 0) pass.propagate(layer);
  }
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(digits_mlp)

BOOST_AUTO_TEST_CASE(slices_tile_the_parameters) {
  const digits::mlp network{{64, 256, 128, 10}, 1};
  std::size_t next = 0;
  for (std::size_t layer = 0; layer < network.layer_count(); ++layer) {
    BOOST_TEST(network.slice(layer).offset == next);
    next += network.slice(layer).count;
  }
  BOOST_TEST(next == network.parameters().size());
  BOOST_TEST(next == 64U * 256 + 256 + 256U * 128 + 128 + 128U * 10 + 10);
}

BOOST_AUTO_TEST_CASE(gradient_agrees_with_finite_differences) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    BOOST_TEST_CONTEXT("seed " << seed) {
      digits::mlp network{{5, 9, 7, 3}, seed};
      const batch images = random_batch(4, 5, 3, seed + 100);
      digits::batch_pass pass{network, 4};
      const std::vector<float> exact = gradient(network, pass, images);
      const float step = 2e-3F;
      std::size_t off = 0;
      for (std::size_t i = 0; i < exact.size(); ++i) {
        const float kept = network.parameters()[i];
        network.parameters()[i] = kept + step;
        pass.forward(images.pixels, images.labels, images.order);
        const float above = pass.loss();
        network.parameters()[i] = kept - step;
        pass.forward(images.pixels, images.labels, images.order);
        const float below = pass.loss();
        network.parameters()[i] = kept;
        const float measured = (above - below) / (2 * step);
        if (std::abs(measured - exact[i]) > 2e-3F + 1e-2F * std::abs(exact[i])) ++off;
      }
      // A ReLU may have its corner within a step: one parameter in fifty is let off.
      BOOST_TEST(off <= exact.size() / 50);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_planted_sign_error_would_be_seen) {
  digits::mlp network{{5, 9, 3}, 3};
  const batch images = random_batch(4, 5, 3, 4);
  digits::batch_pass pass{network, 4};
  const std::vector<float> exact = gradient(network, pass, images);
  const float before = pass.loss();
  for (std::size_t i = 0; i < exact.size(); ++i) network.parameters()[i] -= 1e-2F * exact[i];
  pass.forward(images.pixels, images.labels, images.order);
  BOOST_TEST(pass.loss() < before);
}

BOOST_AUTO_TEST_CASE(a_layer_s_gradient_does_not_depend_on_what_follows) {
  const digits::mlp network{{6, 8, 8, 4}, 2};
  const batch images = random_batch(3, 6, 4, 5);
  digits::batch_pass pass{network, 3};
  pass.forward(images.pixels, images.labels, images.order);
  const std::size_t top = network.layer_count() - 1;
  std::vector<float> early(network.slice(top).count);
  pass.gradient_of(top, early);
  for (std::size_t layer = top; layer > 0; --layer) pass.propagate(layer);
  std::vector<float> late(network.slice(top).count);
  pass.gradient_of(top, late);
  BOOST_TEST(early == late);
}

BOOST_AUTO_TEST_CASE(same_images_give_bitwise_the_same_gradient) {
  const digits::mlp network{{64, 32, 10}, 9};
  const batch images = random_batch(25, 64, 10, 6);
  digits::batch_pass roomy{network, 40};
  digits::batch_pass exact{network, 25};
  const std::vector<float> one = gradient(network, roomy, images);
  const std::vector<float> other = gradient(network, exact, images);
  BOOST_TEST(one == other);
}

BOOST_AUTO_TEST_SUITE_END()
