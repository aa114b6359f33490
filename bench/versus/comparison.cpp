#include "comparison.hpp"

#include "run_answer.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>

namespace chorale::bench::versus {
namespace {

constexpr duration to_start = std::chrono::seconds{60};
constexpr duration to_answer = std::chrono::seconds{120};
constexpr double far_behind = 1.5;
constexpr int before_dropping = 2;

}  // namespace

result<void> comparison::start() {
  auto ours = contestant::start(own_plan_, to_start);
  if (!ours) return std::move(ours).error();
  sides_.push_back({*std::move(ours), {}, {}});
  for (const contestant_plan& plan : peer_plans_) {
    auto started = contestant::start(plan, to_start);
    if (started)
      sides_.push_back({*std::move(started), {}, {}});
    else
      std::fprintf(stderr, "left out: %s\n", started.error().detail().c_str());
  }
  if (sides_.size() == 1) return error{errc::unsupported, "no peer is there to compare with"};
  return {};
}

void comparison::leave_out(side& s, const error& why) {
  std::fprintf(stderr, "left out: %s\n", why.detail().c_str());
  s.who.reset();
  s.asked = false;
}

result<void> comparison::forget_those_left_out() {
  std::erase_if(sides_, [](const side& s) { return !s.who; });
  if (sides_.size() == 1) return error{errc::unsupported, "no peer is left to compare with"};
  return {};
}

result<std::uint64_t> comparison::check(side& s, const std::string& words) {
  auto said = s.who->ask("check " + words, to_answer);
  if (!said) return std::move(said).error();
  return std::strtoull(said->c_str(), nullptr, 10);
}

result<void> comparison::prepare(side& s, const std::string& words) {
  s.times.clear();
  s.p99s.clear();
  s.asked = true;
  auto iterations = choose_iterations(*s.who, words, options_.sample, options_.common.iterations);
  if (!iterations) return std::move(iterations).error();
  s.iterations = *iterations;
  return {};
}

result<void> comparison::sample(side& s, const std::string& words) {
  auto took = ask_for_run(*s.who, words, s.iterations, std::min(options_.common.warmup, s.iterations));
  if (!took) return std::move(took).error();
  s.times.push_back(took->time_us);
  s.p99s.push_back(took->p99_us);
  return {};
}

void comparison::drop_stragglers() {
  double best = 0;
  for (std::size_t i = 1; i < sides_.size(); ++i)
    if (sides_[i].asked)
      if (const double mine = median(sides_[i].times); best == 0 || mine < best) best = mine;
  for (std::size_t i = 1; i < sides_.size(); ++i)
    sides_[i].asked = sides_[i].asked && median(sides_[i].times) <= far_behind * best;
}

result<comparison::row> comparison::measure(std::uint64_t count) {
  row r;
  r.count = count;
  r.bytes = bytes_of(*options_.what.what, count, options_.common.type, options_.what.ranks);
  const std::string words = std::string{options_.what.what->name} + " " + std::to_string(r.bytes);
  for (side& s : sides_) {
    const bool ours = &s == &sides_.front();
    result<std::uint64_t> wrong = 0;
    if (options_.common.check) wrong = check(s, words);
    if (wrong && *wrong != 0 && !ours)
      wrong = error{errc::mismatch,
                    s.who->plan().label() + " gave " + std::to_string(*wrong) + " wrong elements"};
    result<void> good = wrong ? prepare(s, words) : result<void>{wrong.error()};
    if (!good && ours) return std::move(good).error();
    if (!good)
      leave_out(s, good.error());
    else if (ours)
      r.wrong = *wrong;
  }
  if (auto ok = forget_those_left_out(); !ok) return std::move(ok).error();
  for (int turn = 0; turn < options_.alternations; ++turn) {
    if (turn == before_dropping) drop_stragglers();
    for (std::size_t i = 0; i < sides_.size(); ++i) {
      side& s = sides_[(i + static_cast<std::size_t>(turn)) % sides_.size()];
      if (!s.asked) continue;
      if (auto ok = sample(s, words); !ok) {
        if (&s == &sides_.front()) return std::move(ok).error();
        leave_out(s, ok.error());
      }
    }
  }
  if (auto ok = forget_those_left_out(); !ok) return std::move(ok).error();
  r.time_us = median(sides_.front().times);
  r.p99_us = median(sides_.front().p99s);
  for (std::size_t i = 1; i < sides_.size(); ++i)
    if (const double theirs = median(sides_[i].times); !r.peer || theirs < r.peer_us) {
      r.peer = &sides_[i];
      r.peer_us = theirs;
    }
  return r;
}

int comparison::run() {
  ::signal(SIGPIPE, SIG_IGN);
  auto good = start();
  std::uint64_t wrong = 0;
  if (good) {
    head();
    std::optional<std::uint64_t> before;
    for (const std::uint64_t bytes : sizes_of(options_.common)) {
      const std::uint64_t count =
          count_for(*options_.what.what, bytes, options_.common.type, options_.what.ranks);
      if (count == before) continue;
      before = count;
      auto measured = measure(count);
      if (!measured) {
        good = std::move(measured).error();
        break;
      }
      wrong += measured->wrong;
      verdict_.add(measured->bytes, measured->peer_us / measured->time_us,
                   measured->peer->who->plan().label());
      line(*measured);
    }
    end();
  }
  if (good) return wrong == 0 ? 0 : 1;
  std::fprintf(stderr, "chorale bench: %s\n", good.error().detail().c_str());
  return 1;
}

}  // namespace chorale::bench::versus
