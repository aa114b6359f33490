#include "job.hpp"

#include <chorale/async/as_result.hpp>
#include <chorale/async/io.hpp>
#include <chorale/async/sleep.hpp>
#include <chorale/async/with_environment.hpp>
#include <chorale/transport/bootstrap/join.hpp>
#include <chorale/transport/bootstrap/secret.hpp>

#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>

namespace chorale::tools {
namespace {

constexpr auto from_term_to_kill = std::chrono::milliseconds{400};
constexpr auto for_the_last_output = std::chrono::milliseconds{200};

task<void> wait_for(event& e) { co_await e.wait(); }

// Sleeps; false if stopped meanwhile.
task<bool> slept(duration in) {
  task<result<void>> sleeping = as_result(sleep_for(in));
  const auto woke = co_await std::move(sleeping);
  co_return woke.has_value();
}

// False once whoever reads our output is gone.
bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(fd, text.data(), text.size());
    if (wrote < 0 && errno == EAGAIN) {
      pollfd room{fd, POLLOUT, 0};
      ::poll(&room, 1, -1);
    }
    if (wrote < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (wrote < 0) return errno != EPIPE;
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return true;
}

std::string in_seconds(duration d) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g s", std::chrono::duration<double>{d}.count());
  return text.data();
}

// Processes whose parent this one is.
std::vector<pid_t> own_children() {
  std::ifstream list{"/proc/thread-self/children"};
  return {std::istream_iterator<pid_t>{list}, {}};
}

// The CPUs of local rank `i` of `n`: an equal share of those the launcher may use, one each when there are
// fewer.
std::vector<int> cpus_for(int i, int n) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (::sched_getaffinity(0, sizeof mask, &mask) != 0) return {};
  std::vector<int> usable;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &mask)) usable.push_back(cpu);
  const int count = static_cast<int>(usable.size());
  if (count == 0) return {};
  if (n >= count) return {usable[static_cast<std::size_t>(i % count)]};
  const int share = count / n;
  return {usable.begin() + i * share, usable.begin() + (i + 1) * share};
}

}  // namespace

job::job(job_options options) : options_{std::move(options)} {}

void job::say(const std::string& text) const {
  static_cast<void>(write_all(2, "chorale run: " + text + "\n"));
}

bool job::is_local(rank_t rank) const noexcept { return rank / options_.ranks == options_.node; }

result<void> job::prepare() {
  sigset_t watched;
  sigemptyset(&watched);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&watched, number);
  ::sigprocmask(SIG_BLOCK, &watched, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  // What a rank starts (the program, if the rank is a shell script) comes to the launcher when the rank ends.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  signals_ = unique_fd{::signalfd(-1, &watched, SFD_NONBLOCK | SFD_CLOEXEC)};
  if (!signals_) return error::from_os(errno, "signalfd");

  if (options_.secret.empty()) options_.secret = random_hex(32);
  if (!options_.root) options_.root = address::unix_abstract("chorale-" + random_hex(12));
  if (options_.node != 0) return {};
  rendezvous_options place;
  place.where = *options_.root;
  place.size = options_.ranks * options_.nodes;
  place.secret = options_.secret;
  place.timeout = options_.bootstrap_timeout;
  place.reset_grace = options_.reset_grace;
  place.on_loss = [this](rank_t rank) { lost_elsewhere(rank); };
  auto listening = rendezvous::listen(std::move(place));
  if (!listening) return std::move(listening).error();
  place_ = *std::move(listening);
  options_.root = place_->where();
  return {};
}

std::vector<std::string> job::variables_for(rank_t rank, int local_rank) const {
  std::vector<std::string> variables = options_.variables;
  const auto set = [&](const char* name, const std::string& value) {
    variables.push_back(std::string{name} + "=" + value);
  };
  set("CHORALE_RANK", std::to_string(rank));
  set("CHORALE_SIZE", std::to_string(options_.ranks * options_.nodes));
  set("CHORALE_LOCAL_RANK", std::to_string(local_rank));
  set("CHORALE_LOCAL_SIZE", std::to_string(options_.ranks));
  set("CHORALE_ROOT", options_.root->text());
  set("CHORALE_SECRET", options_.secret);
  set("CHORALE_RENDEZVOUS", "launcher");
  return variables;
}

result<void> job::start_all() {
  for (int i = 0; i < options_.ranks; ++i) {
    const rank_t rank = options_.node * options_.ranks + i;
    child_options one;
    one.program = options_.program;
    one.arguments = options_.arguments;
    one.variables = variables_for(rank, i);
    if (options_.bind_cores) one.cpus = cpus_for(i, options_.ranks);
    one.pipe_output = options_.tag_output;
    one.keep_input = rank == 0;
    auto started = start_child(rank, one);
    if (!started) return std::move(started).error();
    children_.push_back(*std::move(started));
    ++running_;
  }
  return {};
}

task<int> job::run() {
  const auto prepared = prepare();
  if (!prepared) {
    say(prepared.error().message());
    co_return exit_not_started;
  }
  const auto started = start_all();
  if (!started) {
    say(started.error().message());
    for (child& c : children_) {
      c.signal(SIGKILL);
      ::waitpid(c.pid, nullptr, 0);
    }
    co_return exit_not_started;
  }
  const environment& here = co_await this_environment{};
  scope background{here};
  scope serving{here};
  background_ = &background;
  background.spawn(watch_signals());
  background.spawn(limit_time());
  if (place_) serving.spawn(place_->serve());
  if (options_.node != 0) background.spawn(watch_other_nodes());
  scope ranks{here};
  for (child& c : children_) ranks.spawn(watch_child(c));
  co_await ranks.join();
  if (ending_) co_await end_orphans();
  // The decider of resets stays until the other nodes' ranks have ended as well.
  if (options_.nodes == 1 || ending_) serving.request_stop();
  co_await serving.join();
  background.request_stop();
  co_await background.join();
  background_ = nullptr;
  if (ended_by_us_ != 0)
    say(std::to_string(ended_by_us_) +
        (ended_by_us_ == 1 ? " other rank was ended" : " other ranks were ended"));
  co_return exit_code_ == 0 && !succeeded_ ? killed_code_ : exit_code_;
}

task<void> job::watch_signals() {
  for (;;) {
    const auto ready = co_await poll_fd(signals_.get(), POLLIN);
    if (!ready) co_return;
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
      const int number = static_cast<int>(info.ssi_signo);
      if (number == SIGCHLD) {
        reap_orphans();
        child_changed_.set();
        continue;
      }
      if (exit_code_ == 0) exit_code_ = 128 + number;
      ending_ = true;
      // A terminal has sent the first one to the ranks as well; whoever asks twice wants it over.
      if (++signals_taken_ > 1)
        signal_all(SIGKILL);
      else if (info.ssi_code != SI_KERNEL)
        signal_all(number);
    }
  }
}

/// Ranks are left to `watch_child`.
void job::reap_orphans() {
  siginfo_t ended{};
  while (::waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid != 0) {
    const auto is_rank = [&](const child& c) { return c.running && c.pid == ended.si_pid; };
    if (std::ranges::any_of(children_, is_rank)) return;
    ::waitpid(ended.si_pid, nullptr, 0);
    ended = {};
  }
}

/// Ends what ranks had started and left behind. Precondition: the ranks have ended.
task<void> job::end_orphans() {
  const environment& here = co_await this_environment{};
  std::size_t ended = 0;
  for (const int number : {SIGTERM, SIGKILL}) {
    const time_point until = here.loop->now() + from_term_to_kill;
    for (;;) {
      reap_orphans();
      const std::vector<pid_t> orphans = own_children();
      ended = std::max(ended, orphans.size());
      if (orphans.empty() || here.loop->now() >= until) break;
      child_changed_.reset();
      for (const pid_t orphan : orphans) ::kill(orphan, number);
      task<result<void>> change = as_result(with_deadline(until, wait_for(child_changed_)));
      (void)co_await std::move(change);
    }
  }
  if (ended != 0)
    say(std::to_string(ended) + (ended == 1 ? " process that a rank had started was ended"
                                            : " processes that ranks had started were ended"));
}

task<void> job::watch_child(child& c) {
  event output_done;
  const environment& here = co_await this_environment{};
  scope relaying{here};
  if (options_.tag_output) relaying.spawn(relay_both(c, output_done));
  while (::waitpid(c.pid, &c.status, WNOHANG) == 0) {
    child_changed_.reset();
    co_await child_changed_.wait();
  }
  c.running = false;
  child_ended(c);
  if (options_.tag_output) {
    // What the rank left in the pipe, but not what its own children may still write.
    task<result<void>> rest = as_result(with_timeout(for_the_last_output, wait_for(output_done)));
    (void)co_await std::move(rest);
  }
  relaying.request_stop();
  co_await relaying.join();
}

task<void> job::relay_both(child& c, event& done) {
  const environment& here = co_await this_environment{};
  scope both{here};
  both.spawn(relay(c.output, 1, c.rank));
  both.spawn(relay(c.errors, 2, c.rank));
  co_await both.join();
  done.set();
}

/// When nobody reads our output any more the pipe is closed: the rank learns of it as it would without
/// tags: by SIGPIPE.
task<void> job::relay(unique_fd& from, int to, rank_t rank) {
  const std::string tag = "[" + std::to_string(rank) + "] ";
  std::string line = tag;
  std::array<char, 16384> buffer{};
  for (;;) {
    const ssize_t got = ::read(from.get(), buffer.data(), buffer.size());
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) break;
    if (got < 0) {
      const auto ready = co_await poll_fd(from.get(), POLLIN);
      if (!ready) break;
      continue;
    }
    std::string whole;
    for (const char c : std::string_view{buffer.data(), static_cast<std::size_t>(got)}) {
      line += c;
      if (c != '\n') continue;
      whole += line;
      line = tag;
    }
    if (!write_all(to, whole)) {
      from.reset();
      co_return;
    }
  }
  if (line.size() > tag.size()) static_cast<void>(write_all(to, line + "\n"));
}

void job::child_ended(child& c) {
  --running_;
  if (!c.failed()) {
    succeeded_ = true;
    if (place_) place_->report_exit(c.rank);
    return;
  }
  if (c.told_to_end)
    ++ended_by_us_;
  else
    say(c.describe_end());
  if (place_) place_->report_exit(c.rank);
  // Ranks that are killed are what the others may go on without; a rank that ends badly by itself is not.
  if (options_.on_loss == loss_policy::carry_on && c.was_killed()) {
    if (killed_code_ == 0) killed_code_ = c.exit_code();
    return;
  }
  first_failure(c.exit_code());
}

void job::lost_elsewhere(rank_t rank) {
  if (is_local(rank)) return;  // its process tells more
  say("rank " + std::to_string(rank) + " on node " + std::to_string(rank / options_.ranks) + " was lost");
  if (options_.on_loss == loss_policy::abort) first_failure(1);
}

void job::first_failure(int code) {
  if (exit_code_ == 0) exit_code_ = code;
  if (ending_ || options_.on_loss == loss_policy::carry_on) return;
  ending_ = true;
  if (background_) background_->spawn(end_after_loss());
}

task<void> job::end_after_loss() {
  task<bool> by_themselves = slept(options_.grace);
  const bool still_here = co_await std::move(by_themselves);
  if (!still_here) co_return;
  signal_all(SIGTERM);
  task<bool> on_request = slept(from_term_to_kill);
  const bool stubborn = co_await std::move(on_request);
  if (stubborn) signal_all(SIGKILL);
}

task<void> job::limit_time() {
  if (options_.time_limit == duration::max()) co_return;
  task<bool> waiting = slept(options_.time_limit);
  const bool over = co_await std::move(waiting);
  if (!over || running_ == 0) co_return;
  say("the job has not ended within " + in_seconds(options_.time_limit) + " (--timeout); ending it");
  exit_code_ = exit_timed_out;
  ending_ = true;
  signal_all(SIGTERM);
  task<bool> on_request = slept(from_term_to_kill);
  const bool stubborn = co_await std::move(on_request);
  if (stubborn) signal_all(SIGKILL);
}

task<void> job::watch_other_nodes() {
  const environment& here = co_await this_environment{};
  bootstrap_config config;
  config.root = *options_.root;
  config.secret = options_.secret;
  config.timeout = options_.bootstrap_timeout;
  const time_point until = here.loop->now() + options_.bootstrap_timeout;
  task<result<rendezvous_link>> connecting = rendezvous_link::connect(config, until, hello_purpose::launcher);
  auto link = co_await std::move(connecting);
  if (!link) {
    if (here.stop_requested()) co_return;
    say(link.error().message());
    first_failure(exit_not_started);
    co_return;
  }
  for (;;) {
    task<result<rank_t>> waiting = link->next_lost_origin();
    const auto lost = co_await std::move(waiting);
    if (lost && *lost == no_rank) co_return;  // only our own are left, on their way out
    if (lost) {
      lost_elsewhere(*lost);
      continue;
    }
    if (lost.error().code() == errc::no_decider && running_ != 0) {
      say("the launcher of node 0 has ended");
      if (options_.on_loss == loss_policy::abort) first_failure(1);
    }
    co_return;
  }
}

void job::signal_all(int number) {
  for (child& c : children_) c.signal(number);
}

}  // namespace chorale::tools
