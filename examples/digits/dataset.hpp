// The handwritten digits as the trainer sees them: pixels as floats in [0, 1], one row of 64 per image.
//
// `load` reads the text form described in data/README.md and refuses anything else with
// errc::invalid_argument and the line at fault. `split` deals the images into a training and a test part; the
// deal depends on the seed alone, so every rank that uses the same seed holds the same two parts.
#pragma once

#include <chorale/async/result.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <istream>
#include <span>
#include <string>
#include <vector>

namespace digits {

inline constexpr std::size_t pixels_per_image = 64;
inline constexpr std::size_t class_count = 10;

struct dataset {
  std::vector<float> pixels;  ///< size() rows of pixels_per_image
  std::vector<std::uint8_t> labels;

  [[nodiscard]] std::size_t size() const { return labels.size(); }
  [[nodiscard]] std::span<const float> image(std::size_t index) const {
    return std::span{pixels}.subspan(index * pixels_per_image, pixels_per_image);
  }
};

[[nodiscard]] chorale::result<dataset> load(const std::filesystem::path& file);
/// `name` is what messages call the input.
[[nodiscard]] chorale::result<dataset> parse(std::istream& input, const std::string& name);

struct parts {
  dataset training;
  dataset test;
};
/// Precondition: test_count <= all.size().
[[nodiscard]] parts split(const dataset& all, std::size_t test_count, std::uint64_t seed);

}  // namespace digits
