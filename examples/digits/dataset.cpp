#include "dataset.hpp"

#include "random.hpp"

#include <fmt/format.h>

#include <fstream>
#include <optional>

namespace digits {
namespace {

constexpr float full_ink = 16.0F;
constexpr std::size_t line_length = 2 + pixels_per_image;  // label, space, pixels

std::optional<float> ink(char c) {
  if (c >= '0' && c <= '9') return static_cast<float>(c - '0') / full_ink;
  if (c >= 'a' && c <= 'g') return static_cast<float>(c - 'a' + 10) / full_ink;
  return std::nullopt;
}

bool append(dataset& images, const std::string& line) {
  if (line.size() != line_length || line[0] < '0' || line[0] > '9' || line[1] != ' ') return false;
  for (char c : line.substr(2)) {
    std::optional<float> pixel = ink(c);
    if (!pixel) return false;
    images.pixels.push_back(*pixel);
  }
  images.labels.push_back(static_cast<std::uint8_t>(line[0] - '0'));
  return true;
}

}  // namespace

chorale::result<dataset> parse(std::istream& input, const std::string& name) {
  dataset images;
  std::string line;
  for (std::size_t number = 1; std::getline(input, line); ++number) {
    if (!append(images, line)) {
      return chorale::error{
          chorale::errc::invalid_argument,
          fmt::format("{}, line {}: want a label 0-9, a space and {} pixels 0-9a-g; restore the file", name,
                      number, pixels_per_image)};
    }
  }
  if (images.size() == 0) {
    return chorale::error{chorale::errc::invalid_argument,
                          fmt::format("{} holds no images; restore the file", name)};
  }
  return images;
}

chorale::result<dataset> load(const std::filesystem::path& file) {
  std::ifstream input{file};
  if (!input) {
    return chorale::error{chorale::errc::invalid_argument,
                          fmt::format("cannot open {}; name the data file with --data", file.string())};
  }
  return parse(input, file.string());
}

parts split(const dataset& all, std::size_t test_count, std::uint64_t seed) {
  random_source random{seed};
  std::vector<std::uint32_t> order = shuffled(all.size(), random);
  parts dealt;
  for (std::size_t i = 0; i < order.size(); ++i) {
    dataset& part = i < test_count ? dealt.test : dealt.training;
    std::span<const float> image = all.image(order[i]);
    part.pixels.insert(part.pixels.end(), image.begin(), image.end());
    part.labels.push_back(all.labels[order[i]]);
  }
  return dealt;
}

}  // namespace digits
