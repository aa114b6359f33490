// Messages and lanes of real processes: tags, any source, sendrecv, what tokens are told; lanes that are
// reset; who dies or leaves meanwhile.
#include "job.hpp"
#include <chorale/blocking.hpp>

#include <boost/test/unit_test.hpp>
#include <unistd.h>

#include <csignal>
#include <numeric>
#include <vector>

using namespace chorale;
using namespace chorale::testing;
using namespace std::chrono_literals;

namespace {

constexpr const char* transports[] = {"auto", "tcp"};

using numbers = std::vector<std::int32_t>;

numbers filled(std::size_t count, std::int32_t first) {
  numbers n(count);
  std::iota(n.begin(), n.end(), first);
  return n;
}

/// Rank 0 answers whoever asks; the tag says which answer it is.
task<void> ask_and_answer(communicator& comm) {
  const rank_t n = comm.size();
  lane questions = comm[4];
  lane answers = comm[5];
  constexpr int rounds = 50;
  if (comm.rank() == 0) {
    for (int i = 0; i < rounds * (n - 1); ++i) {
      numbers question(1000);
      const received asked = co_await questions.recv(question, any_source, any_tag);
      question.resize(asked.count);
      for (auto& x : question) x += 1;
      co_await answers.send(question, asked.source, asked.tag);
    }
  } else {
    for (int i = 0; i < rounds; ++i) {
      const numbers question = filled(static_cast<std::size_t>(i * 20), comm.rank());
      numbers answer(1000, -1);
      co_await questions.send(question, 0, i);
      const received got = co_await answers.recv(answer, 0, i);
      expect(got.count == question.size(), "the length of an answer");
      answer.resize(got.count);
      expect(answer == filled(got.count, comm.rank() + 1), "an answer");
    }
  }
  co_await comm.barrier();
}

task<void> use_messages(communicator& comm) {
  const rank_t n = comm.size();
  const rank_t me = comm.rank();
  const rank_t next = (me + 1) % n;
  const rank_t previous = (me + n - 1) % n;
  for (const std::size_t count : {1U, 3000U, 2'000'000U}) {
    const numbers mine = filled(count, me);
    numbers into(count, -1);
    const received got = co_await comm.sendrecv(mine, next, into, previous, 3);
    expect(into == filled(count, previous) && got.source == previous && got.count == count, "a ring");
    co_await comm.sendrecv(mine, me, into, me);
    expect(into == mine, "oneself");
    received told;
    into.assign(count, -1);
    co_await comm.batch(chorale::send(mine, previous, 8), chorale::recv(into, any_source, 8, &told),
                        chorale::barrier());
    expect(into == filled(count, next) && told.source == next && told.bytes == 4 * count, "in a batch");
    into.assign(count, -1);
    auto plan = comm.plan(chorale::sendrecv(mine, next, into, previous, 9, &told));
    for (int i = 0; i < 3; ++i) {
      told = {};
      co_await plan.run();
      expect(told.source == previous && told.tag == 9, "a planned one");
    }
    expect(into == filled(count, previous), "a planned one's bytes");
  }
  numbers small(2);
  error e = co_await outcome_of(comm.send(small, next, -3));
  expect(e == errc::invalid_argument && e.message().find("tag -3") != std::string::npos, e.message());
  e = co_await outcome_of(comm.send(small, next, any_tag));
  expect(e == errc::invalid_argument && e.message().find("any_tag is for receives") != std::string::npos,
         e.message());
  e = co_await outcome_of(comm.send(small, any_source));
  expect(e == errc::invalid_argument, e.message());
  e = co_await outcome_of(comm.recv(small, n));
  expect(e == errc::invalid_argument && e.message().find("source") != std::string::npos, e.message());
  e = co_await outcome_of(comm.recv(small, 0, -9));
  expect(e == errc::invalid_argument, e.message());
  e = co_await outcome_of(comm.sendrecv(small, next, small, previous));
  expect(e == errc::invalid_argument && e.message().find("overlap") != std::string::npos, e.message());
  co_await comm.barrier();  // none of them took a place
}

void use_blocking_messages() {
  blocking_communicator comm;
  const rank_t n = comm.size();
  const rank_t me = comm.rank();
  const numbers mine{me};
  numbers into(5, -1);
  const received got = comm.sendrecv(mine, (me + 1) % n, into, any_source, 4, deadline{20s});
  expect(got.source == (me + n - 1) % n && got.count == 1 && into[0] == got.source && into[1] == -1,
         "sendrecv that waits");
  if (me == 0) comm.lane(6).send(mine, 1, 2);
  if (me == 1) {
    const received asked = comm.lane(6).recv(into, any_source, any_tag);
    expect(asked.source == 0 && asked.tag == 2, "recv that waits");
  }
  // Who resets a lane ends the calls of those who are still in one.
  comm.lane(7).barrier();
  if (me == 0) {
    try {
      comm.barrier(deadline{1ms});
      expect(false, "a deadline passes");
    } catch (const failure& f) {
      expect(f.why() == errc::timed_out || f.why() == errc::cancelled, f.why().message());
    }
  }
  comm.reset_lane(deadline{30s});
  comm.barrier();
  blocking_lane side = comm.lane(9);
  side.reset();
  side.barrier();
}

/// A deadline ends the communicator's own lane; with the lane reset all goes on, and children are made.
task<void> recover_from_a_deadline(communicator& comm) {
  const rank_t n = comm.size();
  lane meeting = comm[7];
  for (int round = 0; round < 3; ++round) {
    numbers one{1};
    co_await meeting.barrier();  // nobody is in a call that a reset would end
    if (comm.rank() == 0) {
      const error late = co_await outcome_of(comm.all_reduce(one, sum, deadline{1ms}));
      expect(late == errc::timed_out || late == errc::cancelled, late.message());
      const error after = co_await outcome_of(comm.barrier());
      expect(after == errc::revoked, after.message());
    }
    co_await comm.reset_lane(deadline{30s});
    one.assign(1, 1);
    co_await comm.all_reduce(one);
    expect(one[0] == n, "a sum after the reset");
    auto child = co_await comm.dup();
    co_await child.all_reduce(one);
    expect(one[0] == n * n, "a sum in a child");
    co_await meeting.barrier();
    co_await child.reset_lane();
    co_await child.barrier();
    co_await meeting.barrier();
    auto side = child[3];
    // Everybody hears that a member left a child, also when the child's own lane was reset.
    if (comm.rank() == 1) {
      const communicator gone = std::move(child);
      static_cast<void>(gone);
    } else {
      const error left = co_await outcome_of(side.barrier());
      expect(left == errc::peer_left && left.culprit() == 1, left.message());
    }
    co_await comm.barrier();
  }
}

task<void> lose_a_sender(communicator& comm) {
  co_await comm.barrier();
  numbers into(4);
  if (comm.rank() == 2) {
    // Not before the others have come through the barrier.
    for (const rank_t other : {0, 1}) co_await comm.recv(into, other, 5);
    ::raise(SIGKILL);
  }
  co_await comm.send(into, 2, 5);
  const error e = co_await outcome_of(comm[3].recv(into, any_source, any_tag));
  expect(e == errc::peer_lost || e == errc::revoked, e.message());
  expect(e.culprit() == 2, "who was lost: " + e.message());
}

task<void> be_left_alone(communicator& comm) {
  co_await comm.barrier();
  if (comm.rank() != 0) co_return;
  numbers into(4);
  const error e = co_await outcome_of(comm.recv(into, any_source, any_tag));
  expect(e == errc::peer_left && e.culprit() != no_rank, e.message());
}

}  // namespace

BOOST_AUTO_TEST_SUITE(message_jobs)

BOOST_AUTO_TEST_CASE(tags_and_both_ways_at_once) {
  for (const char* transport : transports)
    for (const rank_t n : {2, 3}) {
      const std::string wrong = run_job({n, transport}, use_messages);
      BOOST_TEST(wrong.empty(), transport << ": " << wrong);
    }
}

BOOST_AUTO_TEST_CASE(questions_from_anybody) {
  for (const char* transport : transports) {
    const std::string wrong = run_job({4, transport}, ask_and_answer);
    BOOST_TEST(wrong.empty(), transport << ": " << wrong);
  }
}

BOOST_AUTO_TEST_CASE(calls_that_wait_return_what_came) {
  const std::string wrong = run_ranks({3, "auto"}, use_blocking_messages);
  BOOST_TEST(wrong.empty(), wrong);
}

BOOST_AUTO_TEST_CASE(a_lane_after_a_deadline) {
  for (const char* transport : transports) {
    const std::string wrong = run_job({3, transport}, recover_from_a_deadline);
    BOOST_TEST(wrong.empty(), transport << ": " << wrong);
  }
}

BOOST_AUTO_TEST_CASE(a_possible_sender_dies) {
  for (const char* transport : transports) {
    const std::string wrong = run_job({3, transport, 2}, lose_a_sender);
    BOOST_TEST(wrong.empty(), transport << ": " << wrong);
  }
}

BOOST_AUTO_TEST_CASE(all_possible_senders_leave) {
  for (const char* transport : transports) {
    const std::string wrong = run_job({3, transport}, be_left_alone);
    BOOST_TEST(wrong.empty(), transport << ": " << wrong);
  }
}

BOOST_AUTO_TEST_SUITE_END()
