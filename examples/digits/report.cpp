#include "report.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace digits {
namespace {

constexpr std::size_t bar_width = 30;
constexpr std::size_t lines_elsewhere = 10;

}  // namespace

progress_bar::progress_bar(std::FILE* out, std::size_t epochs)
    : out_{out}, epochs_{epochs}, terminal_{::isatty(::fileno(out)) == 1} {}

void progress_bar::show(std::size_t epochs_done, score training) const {
  const std::string state =
      fmt::format("epoch {:>{}}/{}  loss {:.4f}  accuracy {:5.1f} %", epochs_done,
                  fmt::formatted_size("{}", epochs_), epochs_, training.loss, 100 * training.accuracy);
  if (terminal_) {
    const std::size_t full = bar_width * epochs_done / epochs_;
    fmt::print(out_, "\r[{:#<{}}{:.<{}}] {}{}", "", full, "", bar_width - full, state,
               epochs_done == epochs_ ? "\n" : "");
    std::fflush(out_);
  } else if (epochs_done == epochs_ ||
             epochs_done % std::max<std::size_t>(1, epochs_ / lines_elsewhere) == 0) {
    fmt::print(out_, "{}\n", state);
  }
}

std::string table(const outcome& outcome) {
  std::string text;
  auto out = std::back_inserter(text);
  fmt::format_to(out, "\n{:>4}  {:>9}  {:>9}  {:>9}  {:>15}\n", "rank", "compute", "exposed", "on core",
                 "exposed/compute");
  for (std::size_t rank = 0; rank < outcome.ranks.size(); ++rank) {
    const rank_times& times = outcome.ranks[rank];
    fmt::format_to(out, "{:>4}  {:>7.3f} s  {:>7.3f} s  {:>7.3f} s  {:>13.1f} %\n", rank, times.computing,
                   times.exposed, times.on_core, 100 * times.exposed / times.computing);
  }
  fmt::format_to(
      out,
      "compute  what the run takes with communication removed\n"
      "exposed  communication that no computation hid, waiting for other ranks and for a core included\n"
      "on core  the part of it that was work\n"
      "All from timestamps of this run.\n\n");
  fmt::format_to(out, "test accuracy  {:.1f} % ({} of {})\n", 100 * outcome.test.accuracy,
                 std::lround(outcome.test.accuracy * static_cast<double>(outcome.test_count)),
                 outcome.test_count);
  fmt::format_to(out, "test loss      {:.4f}\n", outcome.test.loss);
  fmt::format_to(out, "wall time      {:.2f} s\n", outcome.wall.count());
  fmt::format_to(out, "weights        fnv1a:{:016x}\n", outcome.fingerprint);
  return text;
}

}  // namespace digits
