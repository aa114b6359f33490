#include "scenario.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <random>

namespace endings {
namespace {

using namespace std::chrono_literals;
using chorale::errc;

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CHORALE_ENDINGS_SLACK 10
#endif
#endif
#if !defined(CHORALE_ENDINGS_SLACK) && (defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__))
#define CHORALE_ENDINGS_SLACK 10
#endif
#ifndef CHORALE_ENDINGS_SLACK
#define CHORALE_ENDINGS_SLACK 1
#endif

constexpr double slack = CHORALE_ENDINGS_SLACK;
constexpr std::chrono::seconds long_enough = 20s * CHORALE_ENDINGS_SLACK;

bool from_outside(kind k) {
  return k == kind::kill || k == kind::compute || k == kind::segv || k == kind::stop || k == kind::link ||
         k == kind::abort;
}
/// Everybody is there after the reset.
bool nobody_goes(kind k) { return k == kind::mismatch || k == kind::deadline; }
bool nothing_ends(kind k) { return k == kind::busy || k == kind::fork; }

errc expected_first(kind k) {
  switch (k) {
    case kind::stop:
      return errc::peer_unresponsive;
    case kind::link:
      return errc::link_lost;
    case kind::leave:
      return errc::peer_left;
    case kind::mismatch:
      return errc::mismatch;
    case kind::deadline:
      return errc::timed_out;
    case kind::busy:
    case kind::fork:
      return errc::ok;
    default:
      return errc::peer_lost;
  }
}

class run {
 public:
  run(const settings& with, kind what, const std::string& transport, std::uint64_t seed)
      : with_{with}, transport_{transport}, random_{seed * 2654435761u + static_cast<std::uint64_t>(what)} {
    plan p;
    p.what = what;
    p.seed = seed;
    p.ranks = transport == "net" ? 4 : static_cast<std::int32_t>(2 + random_() % 4);
    p.victim = what == kind::link ? chorale::no_rank
                                  : static_cast<rank_t>(random_() % static_cast<std::uint64_t>(p.ranks));
    p.at = 2 + random_() % 30;
    p.operations = with.operations;
    p.resident = with.resident;
    plan_ = p;
  }

  outcome go() {
    shared_board shared{plan_};
    board_ = &*shared;
    start(shared.fd());
    if (taken(board_->working, plan_.ranks, long_enough)) {
      strike();
      attend();
    } else {
      complain("not all ranks came together");
    }
    finish();
    judge();
    return std::move(out_);
  }

 private:
  /// A core dump of gigabytes takes its time, and the old epoch's memory is kept until it is over.
  [[nodiscard]] std::chrono::seconds patience() const {
    return plan_.resident != 0 ? 3 * long_enough : long_enough;
  }
  void complain(const std::string& what) { out_.complaints.push_back(what); }

  void start(int board_fd) {
    std::vector<std::string> variables{
        std::string{board_variable} + "=" + std::to_string(board_fd),
        std::string{"CHORALE_TRANSPORT="} + (transport_ == "tcp" ? "tcp" : "auto"), "CHORALE_RESET_GRACE=1",
        "CHORALE_LINK_TIMEOUT=1"};
    // Also what a reset is waited for that nobody can decide.
    variables.push_back(plan_.what == kind::link ? "CHORALE_BOOTSTRAP_TIMEOUT=5"
                                                 : "CHORALE_BOOTSTRAP_TIMEOUT=20");
    if (plan_.what == kind::stop || plan_.what == kind::busy) variables.push_back("CHORALE_PEER_TIMEOUT=1");
    if (transport_ != "net") {
      std::vector<std::string> command{with_.tool, "run", "-n", std::to_string(plan_.ranks)};
      if (plan_.what != kind::abort) command.insert(command.end(), {"--on-loss", "continue"});
      command.insert(command.end(), {"--", with_.rank_program});
      jobs_.emplace_back(command, variables);
      return;
    }
    hosts_ = std::make_unique<two_hosts>();
    variables.push_back("CHORALE_SECRET=of both halves");
    for (const int host : {0, 1}) {
      std::vector<std::string> command = hosts_->on(host);
      command.insert(command.end(),
                     {with_.tool, "run", "-n", "2", "--nodes", "2", "--node", std::to_string(host), "--root",
                      "10.78.0.1:7302", "--on-loss", "continue", "--", with_.rank_program});
      jobs_.emplace_back(command, variables);
    }
  }

  /// Does what is done from outside, at a random moment of the first milliseconds.
  void strike() {
    if (!from_outside(plan_.what)) return;
    timespec pause{0, static_cast<long>(random_() % 10'000'000)};
    ::ppoll(nullptr, 0, &pause, nullptr);
    board_->moment = now_ns();
    switch (plan_.what) {
      case kind::segv:
        ::kill(victim().pid, SIGSEGV);
        break;
      case kind::stop:
        ::kill(victim().pid, SIGSTOP);
        break;
      case kind::link:
        hosts_->cut();
        break;
      default:
        ::kill(victim().pid, SIGKILL);
    }
  }

  /// A stopped rank is, every other time, let go on to find itself excluded, else killed.
  void attend() {
    if (plan_.what == kind::link) static_cast<void>(taken(board_->survived, 4, long_enough));
    if (plan_.what != kind::stop) return;
    if (!taken(board_->survived, plan_.ranks - 1, long_enough)) complain("not all survivors got through");
    ::kill(victim().pid, plan_.seed % 2 == 0 ? SIGCONT : SIGKILL);
  }

  void finish() {
    for (job& j : jobs_) {
      const int code = j.wait(plan_.what == kind::link ? 1s : patience());
      // A launcher notices a silent host by keep-alives after half a minute; that is not waited for.
      if (code == -1 && plan_.what == kind::link) continue;
      if (code == -1)
        complain("the job has not ended");
      else if ((code != 0) != (plan_.what == kind::abort))
        complain("exit code " + std::to_string(code));
      if (plan_.what == kind::abort && code != -1) judge_launcher(j);
      said_ += j.output();
    }
    for (rank_t r = 0; r < plan_.ranks; ++r) {
      const pid_t pid = of(r).pid;
      if (pid > 0 && ::kill(pid, 0) == 0) complain("rank " + std::to_string(r) + " is still there");
    }
  }

  void judge_launcher(const job& j) {
    const double took = static_cast<double>(j.ended_at() - board_->moment) / 1e6;
    out_.waits_ms.push_back(took);
    if (took > 1000 * slack) complain("the launcher took " + std::to_string(took) + " ms");
    const std::string said = j.output();
    if (said.find("rank " + std::to_string(plan_.victim) + " (pid ") == std::string::npos ||
        said.find("killed by signal 9") == std::string::npos)
      complain("the launcher did not say who died of what");
  }

  void judge() {
    for (rank_t r = 0; r < plan_.ranks; ++r) {
      const bool victim = r == plan_.victim;
      if (victim && plan_.what == kind::stop && plan_.seed % 2 == 0) judge_excluded(r);
      if (!victim || nobody_goes(plan_.what) || nothing_ends(plan_.what)) judge_survivor(r);
      if (victim && plan_.what == kind::leave && of(r).finished == 1) judge_footprint(r);
    }
    if (!out_.complaints.empty() && !said_.empty()) complain("output:\n" + said_);
  }

  void judge_excluded(rank_t r) {
    if (of(r).finished != 1) return complain_of(r, "did not get to its end");
    if (of(r).reset != static_cast<std::int32_t>(errc::excluded)) complain_of(r, "was not excluded");
    judge_footprint(r);
  }

  [[nodiscard]] bool ended_as_promised(const rank_report& seen) const {
    const auto first = static_cast<errc>(seen.first);
    if (first == expected_first(plan_.what)) return true;
    // Who was not inside an operation learns of it by his next call; who was inside an earlier one, by that.
    const bool called_later = from_outside(plan_.what) && seen.awaited_from >= board_->moment;
    const std::string text = seen.text.data();
    const std::string why{name_of(expected_first(plan_.what))};
    const bool names_it =
        text.find(why + ": ") != std::string::npos || text.find(why + " (rank ") != std::string::npos;
    return first == errc::revoked && (called_later || nobody_goes(plan_.what)) && names_it;
  }

  void judge_survivor(rank_t r) {
    const rank_report& seen = of(r);
    if (plan_.what == kind::abort) return;
    if (seen.finished != 1) return complain_of(r, "did not get to its end");
    if (!ended_as_promised(seen)) complain_of(r, "ended otherwise");
    judge_footprint(r);
    if (nothing_ends(plan_.what)) return;
    const bool by_name = !nobody_goes(plan_.what) && plan_.what != kind::link;
    if (by_name && seen.culprit != plan_.victim) complain_of(r, "blames another");
    if (plan_.what == kind::link && seen.culprit / 2 == r / 2) complain_of(r, "blames its own side");
    if (plan_.what == kind::segv && std::string{seen.text.data()}.find("signal 11") == std::string::npos)
      complain_of(r, "does not name the signal");
    const auto later = static_cast<errc>(seen.later);
    const errc wanted = plan_.what == kind::leave ? errc::peer_left : errc::revoked;
    // The lane may have ended in the later call, for ranks that were one operation behind.
    if (later != wanted && !(nobody_goes(plan_.what) && later == expected_first(plan_.what)))
      complain_of(r, "a later call ended otherwise");
    if (seen.elsewhere != 0) complain_of(r, "what should have gone on did not");
    if (r != plan_.victim)
      out_.waits_ms.push_back(
          static_cast<double>(seen.ended_at - std::max<std::int64_t>(board_->moment, seen.awaited_from)) /
          1e6);
    judge_new_epoch(r);
  }

  void judge_new_epoch(rank_t r) {
    const rank_report& seen = of(r);
    const bool without_decider = plan_.what == kind::link && r >= 2;
    if (without_decider) {
      if (seen.reset == 0) complain_of(r, "reset without the rendezvous");
      return;
    }
    if (seen.reset != 0) return complain_of(r, "could not reset");
    const int left = plan_.what == kind::link ? 2 : plan_.ranks - (nobody_goes(plan_.what) ? 0 : 1);
    if (seen.size_after != left) complain_of(r, "went on with a wrong number of ranks");
    if (seen.operations != plan_.operations) complain_of(r, "did not finish the operations after the reset");
    if (plan_.what != kind::stop && seen.settled.segments > left + 1)
      complain_of(r, "keeps memory of the old epoch");
    out_.resets_ms.push_back(static_cast<double>(seen.reset_took) / 1e6);
  }

  void judge_footprint(rank_t r) {
    const footprint& before = of(r).before;
    const footprint& after = of(r).after;
    if (after.descriptors != before.descriptors)
      complain_of(r, std::to_string(after.descriptors - before.descriptors) + " descriptors left");
    if (after.threads != before.threads) complain_of(r, "threads left");
    if (after.segments != 0) complain_of(r, "shared memory left");
  }

  void complain_of(rank_t r, const std::string& what) {
    const rank_report& seen = of(r);
    complain("rank " + std::to_string(r) + ": " + what + " [first " + std::to_string(seen.first) + " by " +
             std::to_string(seen.culprit) + ", later " + std::to_string(seen.later) + ", elsewhere " +
             std::to_string(seen.elsewhere) + ", reset " + std::to_string(seen.reset) + ", then " +
             std::to_string(seen.operations) + " operations; \"" + seen.text.data() + "\"]");
  }

  [[nodiscard]] rank_report& of(rank_t r) { return board_->ranks[static_cast<std::size_t>(r)]; }
  [[nodiscard]] rank_report& victim() { return of(plan_.victim); }

  const settings& with_;
  std::string transport_;
  std::mt19937_64 random_;
  plan plan_;
  board* board_ = nullptr;
  std::unique_ptr<two_hosts> hosts_;
  std::vector<job> jobs_;
  std::string said_;
  outcome out_;
};

}  // namespace

outcome run_once(const settings& with, kind what, const std::string& transport, std::uint64_t seed) {
  try {
    return run{with, what, transport, seed}.go();
  } catch (const std::exception& e) {
    return {{e.what()}, {}, {}};
  }
}

limits limits_for(kind what) {
  switch (what) {
    case kind::stop:  // a quarter of a second to look twice, one until the question, one until the verdict
      return {3500 * slack, 6000 * slack};
    case kind::link:
      return {4000 * slack, 6000 * slack};
    case kind::abort:  // the launcher's end
      return {1000 * slack, 1000 * slack};
    case kind::deadline:  // 20 ms; the late one comes when they have passed
      return {100 * slack, 200 * slack};
    default:
      return {20 * slack, 100 * slack};
  }
}

}  // namespace endings
