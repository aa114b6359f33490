// One rank of a job that something happens to. What, the board says; the rank works until an operation ends
// with an error, looks at what still works and what must not, resets, works on, leaves, and reports all of
// it.
#include "board.hpp"
#include <chorale/async/as_result.hpp>
#include <chorale/async/sleep.hpp>
#include <chorale/chorale.hpp>

#include <dirent.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

using namespace chorale;
using namespace endings;
using namespace std::chrono_literals;

namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::int32_t entries(const char* folder) {
  std::int32_t count = 0;
  if (DIR* d = ::opendir(folder)) {
    while (::readdir(d)) ++count;
    ::closedir(d);
  }
  return count;
}

footprint measure() {
  footprint f{entries("/proc/self/fd"), entries("/proc/self/task"), 0};
  std::ifstream maps{"/proc/self/maps"};
  for (std::string line; std::getline(maps, line);)
    f.segments += line.find("memfd:chorale") != std::string::npos ? 1 : 0;
  return f;
}

/// Without looking at anything: the engine does not run meanwhile.
void compute_for(std::chrono::nanoseconds time) {
  const auto until = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < until) {
  }
}

class worker {
 public:
  worker(board& b, communicator& comm)
      : board_{b}, plan_{b.what}, comm_{comm}, me_{comm.launched_as()}, mine_{b.ranks[index(me_)]} {}

  task<void> live();
  task<error> work_until_it_ends();
  task<void> look_around();
  task<void> go_on();

 private:
  [[nodiscard]] bool is_victim() const { return me_ == plan_.victim; }
  static std::size_t index(rank_t r) { return static_cast<std::size_t>(r); }
  void fill_in(std::uint64_t number, std::size_t count);
  [[nodiscard]] bool collectives_only() const {
    return plan_.what == kind::leave || plan_.what == kind::mismatch || plan_.what == kind::deadline;
  }
  task<error> step(std::uint64_t number);
  task<error> reduce(std::uint64_t number, std::size_t count, deadline limit = {});
  task<error> around_the_ring(std::size_t count);
  task<error> end_it(std::uint64_t number, std::size_t count);
  task<error> messages_among_survivors();
  task<error> have_a_child(std::uint64_t number);
  static void wait_outside(sem_t& posted, int times = 1);
  void meet(bool with_victim);
  /// Adds to what the driver shows when something is wrong.
  void note(const char* when, const error& what) {
    const std::size_t used = std::strlen(mine_.text.data());
    std::snprintf(mine_.text.data() + used, mine_.text.size() - used, " | %s: %s", when,
                  what.message().c_str());
  }

  board& board_;
  const plan& plan_;
  communicator& comm_;
  rank_t me_;
  rank_report& mine_;
  bool left_ = false;
  std::int64_t from_ = 0, until_ = 0;  // of the latest await
  std::vector<float> in_ = std::vector<float>(1 << 20), out_ = std::vector<float>(1 << 20);
};

float pattern(std::uint64_t number, std::size_t i) { return static_cast<float>(1 + (number + i) % 3); }

/// Ranks contribute (rank + 1) × a pattern of small numbers, so that sums are exact in any order.
void worker::fill_in(std::uint64_t number, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) in_[i] = static_cast<float>(comm_.rank() + 1) * pattern(number, i);
}

task<error> worker::reduce(std::uint64_t number, std::size_t count, deadline limit) {
  fill_in(number, count);
  const std::span<const float> in{in_.data(), count};
  const std::span<float> out{out_.data(), count};
  started under_way = comm_.all_reduce(in, out, sum, limit).start();
  from_ = now_ns();  // a call that failed at once was made before this
  auto done = co_await as_result(std::move(under_way));
  until_ = now_ns();
  if (!done) co_return done.error();
  const float all = static_cast<float>(comm_.size() * (comm_.size() + 1) / 2);
  for (std::size_t i = 0; i < count; ++i)
    if (out_[i] != all * pattern(number, i))
      co_return error{errc::protocol_error, "TEST: a wrong sum, element " + std::to_string(i) + " of " +
                                                std::to_string(count) + ", operation " +
                                                std::to_string(number)};
  co_return error{};
}

task<error> worker::around_the_ring(std::size_t count) {
  const rank_t n = comm_.size();
  started sent = comm_.send(std::span{in_.data(), count}, (comm_.rank() + 1) % n).start();
  started came = comm_.recv(std::span{out_.data(), count}, (comm_.rank() + n - 1) % n).start();
  from_ = now_ns();
  auto first = co_await as_result(std::move(sent));
  if (!first) {
    until_ = now_ns();
    co_return first.error();
  }
  auto second = co_await as_result(std::move(came));
  until_ = now_ns();
  co_return second ? error{} : second.error();
}

task<error> worker::step(std::uint64_t number) {
  std::mt19937_64 shared{plan_.seed * 1000003 + number};
  std::mt19937_64 own{shared() + static_cast<std::uint64_t>(me_) * 7919};
  const std::uint64_t sort = shared() % 16;
  const std::size_t count = std::max<std::size_t>(2, (std::size_t{1} << shared() % 20) + shared() % 7);
  if (own() % 8 == 0) compute_for(std::chrono::microseconds{100 + own() % 1900});
  if (plan_.what == kind::compute && number >= plan_.at && !is_victim()) {
    from_ = now_ns();
    const std::int64_t until = now_ns() + 5'000'000'000;
    while (!comm_.cause() && now_ns() < until) compute_for(20us);
    until_ = now_ns();
    co_return comm_.cause();
  }
  if (number == plan_.at && collectives_only()) {
    task<error> ending = end_it(number, count);
    error ended = co_await std::move(ending);
    co_return ended;
  }
  if (number == plan_.at && plan_.what == kind::fork) {
    task<error> parenthood = have_a_child(number);
    error ended = co_await std::move(parenthood);
    co_return ended;
  }
  if (number == plan_.at && plan_.what == kind::busy && is_victim()) compute_for(3300ms);
  if (sort == 0) {
    started meeting = comm_.barrier().start();
    from_ = now_ns();
    auto met = co_await as_result(std::move(meeting));
    until_ = now_ns();
    co_return met ? error{} : met.error();
  }
  const bool ring = sort == 1 && comm_.size() > 1 && !collectives_only();
  task<error> rest = ring ? around_the_ring(count) : reduce(number, count);
  error ended = co_await std::move(rest);
  co_return ended;
}

/// The endings that ranks make themselves.
task<error> worker::end_it(std::uint64_t number, std::size_t count) {
  const bool in_a_hurry = plan_.what == kind::deadline && me_ == (plan_.victim + 1) % plan_.ranks;
  deadline limit;
  if (is_victim()) {
    board_.moment = now_ns();
    if (plan_.what == kind::leave) {
      left_ = true;
      fill_in(number, count);
      // In every other run inside an operation, whose handle goes first.
      if (plan_.seed % 2 == 0)
        const started under_way = comm_.all_reduce(std::span{in_.data(), count}, sum).start();
      co_return error{errc::peer_left, "left", me_};
    }
    if (plan_.what == kind::mismatch) ++count;
    if (plan_.what == kind::deadline) wait_outside(board_.timed_out);
  } else if (in_a_hurry) {
    limit = deadline{20ms};
  }
  task<error> calling = reduce(number, count, limit);
  error ended = co_await std::move(calling);
  if (in_a_hurry) ::sem_post(&board_.timed_out);
  co_return ended;
}

/// A child in the middle of an operation. It goes on in a copy of this coroutine, where every call must say
/// `forked`, and even ends a communicator there; the parent then finishes as if nothing had been.
task<error> worker::have_a_child(std::uint64_t number) {
  fill_in(number, 3000);
  started under_way =
      comm_.all_reduce(std::span{in_.data(), 3000}, std::span{out_.data(), 3000}, sum).start();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto is_forked = [](const result<void>& r) { return !r && r.error().code() == errc::forked; };
    auto call = co_await as_result(comm_.barrier());
    lane other = comm_.lane_for(9);
    auto on_lane = co_await as_result(other.all_reduce(std::span{in_.data(), 4}, sum));
    auto old = co_await as_result(std::move(under_way));
    task<result<void>> resetting = as_result(comm_.reset());
    auto again = co_await std::move(resetting);
    const bool old_is_done = old || is_forked(old);  // it may have ended before the fork
    const bool all = is_forked(call) && is_forked(on_lane) && is_forked(again) && old_is_done;
    {
      const communicator gone{std::move(comm_)};
    }
    ::_exit(all ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  auto done = co_await as_result(std::move(under_way));
  if (!done) co_return done.error();
  co_return status == 0 ? error{} : error{errc::protocol_error, "TEST: a fork child could call something"};
}

task<error> worker::work_until_it_ends() {
  const std::int64_t give_up = now_ns() + 20'000'000'000;
  for (std::uint64_t number = 0; now_ns() < give_up; ++number) {
    const bool nothing_ends = plan_.what == kind::busy || plan_.what == kind::fork;
    if (nothing_ends && number == plan_.at + (plan_.what == kind::busy ? 3 : 200)) co_return error{};
    task<error> one = step(number);
    error ended = co_await std::move(one);
    if (ended) co_return ended;
    mine_.before_the_end = number + 1;
  }
  co_return error{errc::ok};
}

/// Outside the library, whose engine does not run meanwhile.
void worker::wait_outside(sem_t& posted, int times) {
  timespec limit{};
  ::clock_gettime(CLOCK_REALTIME, &limit);
  limit.tv_sec += 20;
  for (; times > 0; --times) (void)::sem_timedwait(&posted, &limit);
}

/// Everybody is here. The driver sees to it that a rank which died is not waited for.
void worker::meet(bool with_victim) {
  int others = 0;
  for (rank_t r = 0; r < plan_.ranks; ++r) {
    if (r == me_ || (!with_victim && r == plan_.victim)) continue;
    ::sem_post(&board_.together[index(r)]);
    ++others;
  }
  wait_outside(board_.together[index(me_)], others);
}

task<error> worker::messages_among_survivors() {
  std::vector<started> under_way;
  std::vector<float> from(most_ranks), to(most_ranks, static_cast<float>(me_));
  for (rank_t r = 0; r < plan_.ranks; ++r) {
    if (r == me_ || r == plan_.victim) continue;
    under_way.push_back(comm_.recv(std::span{&from[index(r)], 1}, r, deadline{10s}).start());
    under_way.push_back(comm_.send(std::span{&to[index(r)], 1}, r, deadline{10s}).start());
  }
  error failed;
  for (started& one : under_way) {
    auto ended = co_await as_result(std::move(one));
    if (!ended) failed = ended.error();
  }
  for (rank_t r = 0; r < plan_.ranks && !failed; ++r)
    if (r != me_ && r != plan_.victim && from[index(r)] != static_cast<float>(r))
      failed = error{errc::protocol_error, "TEST: a wrong message"};
  co_return failed;
}

/// After the ending and before the reset: what must fail, and what must go on.
task<void> worker::look_around() {
  auto later = co_await as_result(comm_.barrier());
  mine_.later = static_cast<std::int32_t>(later ? errc::ok : later.error().code());
  if (plan_.what == kind::mismatch || plan_.what == kind::deadline) {
    lane other = comm_.lane_for(7);
    auto works = co_await as_result(other.all_reduce(std::span{out_.data(), 3000}, sum));
    mine_.elsewhere = static_cast<std::int32_t>(works ? errc::ok : works.error().code());
    meet(true);
  }
  if (plan_.what == kind::leave) {
    task<error> talking = messages_among_survivors();
    const error failed = co_await std::move(talking);
    mine_.elsewhere = static_cast<std::int32_t>(failed.code());
    meet(false);
  }
}

/// The new epoch: as many operations as were asked for, then until the old epoch's memory is gone.
task<void> worker::go_on() {
  const std::int64_t started = now_ns();
  task<result<void>> resetting = as_result(comm_.reset());
  auto again = co_await std::move(resetting);
  mine_.reset_took = now_ns() - started;
  mine_.reset = static_cast<std::int32_t>(again ? errc::ok : again.error().code());
  if (!again) {
    note("reset", again.error());
    co_return;
  }
  mine_.size_after = comm_.size();
  for (std::uint64_t i = 0; i < plan_.operations; ++i) {
    const std::size_t count = i % 50 == 49 ? 20000 : 1 + (i * 37) % 300;
    task<error> one = reduce(i, count);
    const error ended = co_await std::move(one);
    if (ended) {
      note("an operation after the reset", ended);
      co_return;
    }
    ++mine_.operations;
  }
  const std::int64_t patience = now_ns() + (plan_.resident != 0 ? 30'000'000'000 : 5'000'000'000);
  for (;;) {
    mine_.settled = measure();
    const bool released = mine_.settled.segments <= comm_.size() + 1;
    if (released || plan_.what == kind::stop || now_ns() > patience) break;
    task<void> pause = sleep_for(10ms);
    co_await std::move(pause);
  }
  auto last = co_await as_result(comm_.barrier());
  if (!last) note("the end", last.error());
}

task<void> worker::live() {
  auto ready = co_await as_result(comm_.barrier());
  ::sem_post(&board_.working);
  if (!ready) co_return;
  task<error> working = work_until_it_ends();
  const error first = co_await std::move(working);
  mine_.first = static_cast<std::int32_t>(first.code());
  mine_.culprit = first.culprit();
  mine_.awaited_from = from_;
  mine_.ended_at = until_;
  note("first", first);
  const bool is_over =
      left_ || plan_.what == kind::abort || plan_.what == kind::busy || plan_.what == kind::fork;
  if (is_over) co_return;
  task<void> looking = look_around();
  co_await std::move(looking);
  task<void> rest = go_on();
  co_await std::move(rest);
}

task<void> take_part(board& b) {
  communicator comm = co_await communicator::join();
  b.ranks[static_cast<std::size_t>(comm.launched_as())].pid = ::getpid();
  worker work{b, comm};
  task<void> living = work.live();
  co_await std::move(living);
}

task<void> run(board& b) {
  task<void> all = take_part(b);
  co_await std::move(all);
  // The communicator is gone; the kernel gives back its last requests in the engine's next turns.
  task<void> turns = sleep_for(2ms);
  co_await std::move(turns);
}

}  // namespace

int main() {
  const char* const fd = std::getenv(board_variable);
  const char* const rank = std::getenv("CHORALE_RANK");
  if (!fd || !rank) return 2;
  void* const memory = ::mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED, std::atoi(fd), 0);
  if (memory == MAP_FAILED) return 2;
  board& b = *static_cast<board*>(memory);
  rank_report& mine = b.ranks[static_cast<std::size_t>(std::atoi(rank))];
  std::vector<char> resident;
  if (std::atoi(rank) == b.what.victim) resident.assign(b.what.resident, 1);
  engine loop;
  mine.before = measure();
  try {
    loop.run(run(b));
  } catch (const failure& f) {
    std::snprintf(mine.text.data(), mine.text.size(), "%s", f.what());
    std::fprintf(stderr, "rank %s: %s\n", rank, f.what());
    return 1;
  }
  mine.after = measure();
  mine.finished = 1;
  ::sem_post(&b.survived);
  return b.what.what == kind::abort ? 1 : 0;
}
