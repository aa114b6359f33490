// The loader takes exactly the documented form, and the deal depends on the seed alone.
#include "digits/dataset.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <numeric>
#include <sstream>
#include <string>

namespace {

std::string image_line(char label, char pixel) {
  return std::string{label, ' '} + std::string(digits::pixels_per_image, pixel) + "\n";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(digits_dataset)

BOOST_AUTO_TEST_CASE(reads_labels_and_pixels) {
  std::istringstream input{image_line('3', '0') + image_line('9', 'g') + image_line('0', '8')};
  const chorale::result<digits::dataset> images = digits::parse(input, "three images");
  BOOST_REQUIRE(images.has_value());
  BOOST_REQUIRE_EQUAL(images->size(), 3U);
  BOOST_TEST(images->labels[0] == 3);
  BOOST_TEST(images->labels[1] == 9);
  BOOST_TEST(images->image(0)[63] == 0.0F);
  BOOST_TEST(images->image(1)[0] == 1.0F);
  BOOST_TEST(images->image(2)[17] == 0.5F);
}

BOOST_AUTO_TEST_CASE(names_the_line_at_fault) {
  const std::array<std::string, 4> faults{image_line('x', '0'), image_line('1', 'h'), "1 0123\n",
                                          "1-" + std::string(64, '0') + "\n"};
  for (const std::string& fault : faults) {
    std::istringstream input{image_line('1', '1') + fault};
    const chorale::result<digits::dataset> images = digits::parse(input, "bad.txt");
    BOOST_REQUIRE(!images.has_value());
    BOOST_TEST((images.error() == chorale::errc::invalid_argument));
    BOOST_TEST(images.error().message().find("bad.txt, line 2") != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(refuses_an_empty_and_a_missing_file) {
  std::istringstream empty;
  BOOST_TEST(!digits::parse(empty, "empty").has_value());
  const chorale::result<digits::dataset> missing = digits::load("no-such-file.txt");
  BOOST_REQUIRE(!missing.has_value());
  BOOST_TEST(missing.error().message().find("--data") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(the_shipped_file_is_whole) {
  const chorale::result<digits::dataset> images = digits::load(DIGITS_DATA);
  BOOST_REQUIRE(images.has_value());
  BOOST_TEST(images->size() == 1797U);
  // Counts per class as the data set's authors give them for this part.
  const std::array<std::ptrdiff_t, digits::class_count> expected{178, 182, 177, 183, 181,
                                                                 182, 181, 179, 174, 180};
  for (std::size_t label = 0; label < digits::class_count; ++label) {
    BOOST_TEST(std::count(images->labels.begin(), images->labels.end(), label) == expected[label]);
  }
  BOOST_TEST(*std::max_element(images->pixels.begin(), images->pixels.end()) == 1.0F);
}

BOOST_AUTO_TEST_CASE(splits_by_seed_without_losing_an_image) {
  std::string text;
  for (char label = '0'; label <= '9'; ++label) text += image_line(label, label);
  std::istringstream input{text};
  const chorale::result<digits::dataset> images = digits::parse(input, "ten images");
  BOOST_REQUIRE(images.has_value());
  const digits::parts first = digits::split(*images, 3, 7);
  const digits::parts again = digits::split(*images, 3, 7);
  const digits::parts other = digits::split(*images, 3, 8);
  BOOST_TEST(first.test.size() == 3U);
  BOOST_TEST(first.training.size() == 7U);
  BOOST_TEST(first.training.labels == again.training.labels);
  BOOST_TEST((first.training.labels != other.training.labels || first.test.labels != other.test.labels));
  const int sum = std::accumulate(first.test.labels.begin(), first.test.labels.end(), 0) +
                  std::accumulate(first.training.labels.begin(), first.training.labels.end(), 0);
  BOOST_TEST(sum == 45);
  for (std::size_t i = 0; i < first.training.size(); ++i) {
    BOOST_TEST(first.training.image(i)[5] == static_cast<float>(first.training.labels[i]) / 16.0F);
  }
}

BOOST_AUTO_TEST_SUITE_END()
