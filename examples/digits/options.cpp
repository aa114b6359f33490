#include "options.hpp"

#include <CLI/CLI.hpp>

namespace digits {
namespace {

constexpr const char* about =
    R"(Teaches a small neural network to read handwritten digits, data-parallel.

Every batch is cut into shards. Each rank computes the gradients of its shards; one all-reduce per layer sums
them, started as soon as that layer's gradient is ready, while the layers below are still being computed.

Try:
  chorale run -n 4 -- digits             four ranks, one shard each
  chorale run -n 1 -- digits             one rank, the same four shards
With CHORALE_DETERMINISTIC=1 both end with the same fingerprint of the weights, over shared memory and over TCP:
the sums are folded in rank order everywhere.)";

/// The data file is installed and built beside the program.
std::filesystem::path beside_program() {
  std::error_code unknown;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", unknown);
  return program.parent_path() / "digits.txt";
}

}  // namespace

parsed parse_command_line(int argc, char** argv) {
  options wanted;
  wanted.data = beside_program();
  CLI::App app{about, "digits"};
  app.add_option("--epochs", wanted.training.epochs, "passes over the training images")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--batch", wanted.training.batch, "images per step, over all ranks")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--shards", wanted.training.shards,
                 "pieces each batch is cut into; a multiple of the number of ranks")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--hidden", wanted.training.hidden_widths, "widths of the hidden layers, e.g. 256,128")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--rate", wanted.training.learning_rate, "learning rate")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--momentum", wanted.training.momentum, "share of the last step kept in the next")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--seed", wanted.training.seed, "draws weights, shuffles images; the same on all ranks")
      ->capture_default_str();
  app.add_option("--test-images", wanted.test_count, "images kept away from training")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--data", wanted.data,
                 "the images (see data/README.md); default: digits.txt beside the program");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& mistake) {
    return {std::nullopt, app.exit(mistake)};
  }
  return {std::move(wanted), 0};
}

}  // namespace digits
