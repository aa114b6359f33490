#include "session.hpp"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <vector>

namespace chorale::bench::peers {
namespace {

using clock = std::chrono::steady_clock;

double microseconds(clock::duration d) { return std::chrono::duration<double, std::micro>{d}.count(); }

void grow(plain_buffer& buffer, std::size_t bytes) {
  if (buffer.size() < bytes) buffer = plain_buffer{bytes};
}

void fill(plain_buffer& buffer, std::byte value) { std::fill_n(buffer.data(), buffer.size(), value); }

}  // namespace

void session::serve(const std::string& name, const std::string& folder) {
  std::ifstream commands{folder + "/" + std::to_string(rank_)};
  library_.meet();
  if (rank_ == 0) say("ready " + name);
  for (std::string line; std::getline(commands, line);) obey(line);
}

void session::obey(const std::string& line) {
  const auto c = parse_command(line, ranks_);
  if (!c) {
    if (rank_ == 0) say_refusal("\"" + line + "\" is no command");
    return;
  }
  if (const std::string why = prepare(c->about); !why.empty()) {
    if (rank_ == 0) say_refusal(why);
    return;
  }
  if (c->act == command::verb::run)
    run(*c);
  else
    check(*c);
}

std::string session::prepare(const subject& about) {
  const chorale::call mine = call_of(about, rank_, ranks_);
  const std::size_t element = size_of(about.type);
  in_bytes_ = mine.in_count * element;
  // Some libraries work in place and some want a buffer at every rank: both get as much as anybody needs.
  const std::size_t most = std::max(bytes_of(*about.what, about.count, about.type, ranks_), in_bytes_);
  grow(in_, most);
  grow(out_, most);
  return library_.prepare(about, in_.data(), out_.data());
}

void session::run(const command& c) {
  std::vector<clock::duration> samples;
  samples.reserve(static_cast<std::size_t>(c.iterations));
  clock::duration all{0};
  fill(in_, std::byte{0});
  library_.meet();
  for (int i = -c.warmup; i < c.iterations; ++i) {
    rewrite(in_.data(), in_bytes_);
    const clock::time_point begin = clock::now();
    library_.call();
    const clock::duration took = clock::now() - begin;
    if (i < 0) continue;
    samples.push_back(took);
    all += took;
  }
  const double time_us = library_.largest(microseconds(all) / c.iterations);
  const auto rank99 = static_cast<std::ptrdiff_t>(0.99 * static_cast<double>(samples.size() - 1));
  std::nth_element(samples.begin(), samples.begin() + rank99, samples.end());
  if (rank_ == 0) say_timing(time_us, microseconds(samples[static_cast<std::size_t>(rank99)]));
}

void session::check(const command& c) {
  const chorale::call mine = call_of(c.about, rank_, ranks_);
  const pattern expected{c.about.type, mine.op, ranks_};
  constexpr std::byte never_a_result{0xff};
  fill(in_, never_a_result);
  fill(out_, never_a_result);
  expected.fill(in_.data(), mine.in_count, rank_);
  library_.meet();
  library_.call();
  const std::byte* const result = library_.answers_in_place() ? in_.data() : out_.data();
  const std::uint64_t wrong = expected.count_wrong(*c.about.what, place_of(c.about, rank_, ranks_), result,
                                                   output_count(c.about, rank_, ranks_));
  const double all = library_.sum(static_cast<double>(wrong));
  if (rank_ == 0) say(std::to_string(static_cast<std::uint64_t>(all)));
}

}  // namespace chorale::bench::peers
