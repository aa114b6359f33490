// What every wire does, plain and through the fault injector.
#include "wire_rig.hpp"

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cstring>
#include <random>

namespace chorale {
namespace {

using testing::medium;
using testing::recorder;
using testing::test_message;
using testing::wire_ends;

constexpr medium media[] = {medium::shm, medium::socket_pair, medium::loopback};
constexpr medium streams[] = {medium::socket_pair, medium::loopback};

/// One direction: messages go out as the dice say, what was handed over is compared with what comes.
class direction {
 public:
  direction(wire& from, wire& to, std::uint64_t seed, std::size_t count)
      : from_{from}, to_{to}, dice_{static_cast<std::uint32_t>(seed)} {
    for (std::size_t i = 0; i < count; ++i)
      messages_.push_back(random_message(static_cast<std::uint32_t>(i)));
  }

  [[nodiscard]] bool finished() const {
    return next_ == messages_.size() && open_.empty() && came_.frames.size() == expected_frames_;
  }
  /// One push and one poll at most.
  void step(std::uint32_t pushes, std::uint32_t polls) {
    if (dice_() % 100 < pushes) push();
    if (dice_() % 100 < polls) to_.poll(came_, 1 + dice_() % 8);
  }
  void verify() const {
    BOOST_TEST(came_.breaks == 0);
    BOOST_TEST(came_.misaligned == 0);
    std::size_t at = 0;
    for (const auto& [number, offset, bytes] : handed_over_) {
      const recorder::frame& f = came_.frames.at(at++);
      const outgoing& sent = messages_[number]->out;
      BOOST_REQUIRE_EQUAL(f.header.sequence, number);
      BOOST_REQUIRE(f.header.kind == sent.header.kind && f.header.call == sent.header.call);
      BOOST_REQUIRE(f.header.key() == sent.header.key());
      if (!carries_payload(sent.header.kind)) {
        BOOST_REQUIRE_EQUAL(f.header.size, sent.header.size);
        continue;
      }
      BOOST_REQUIRE_EQUAL(f.header.size, bytes);
      BOOST_REQUIRE_LE(bytes, frame_limit);
      for (std::uint64_t i = 0; i < bytes; ++i)
        if (f.payload[i] != testing::byte_of(number, offset + i))
          BOOST_FAIL("byte " << offset + i << " of message " << number << " is not what was sent");
    }
    BOOST_TEST(at == came_.frames.size());
  }

 private:
  std::unique_ptr<test_message> random_message(std::uint32_t number) {
    switch (dice_() % 8) {
      case 0:
        return std::make_unique<test_message>(number, frame_kind::announce, dice_());
      case 1:
        return std::make_unique<test_message>(number, frame_kind::ready, dice_());
      case 2:
        return std::make_unique<test_message>(number, frame_kind::credit, dice_() % eager_budget);
      case 3:
        return std::make_unique<test_message>(number, frame_kind::lane_revoke, sizeof(lane_revoke_body));
      case 4:
        return std::make_unique<test_message>(number, frame_kind::data, dice_() % (3 * frame_limit));
      case 5:
        return std::make_unique<test_message>(number, frame_kind::data, dice_() % 2 * frame_limit);
      case 6:
        return std::make_unique<test_message>(number, frame_kind::eager, dice_() % 2 * eager_limit);
      default:
        return std::make_unique<test_message>(number, frame_kind::eager, dice_() % 200);
    }
  }
  void push() {
    if (!in_frame_ && next_ < messages_.size() && (open_.empty() || dice_() % 2 == 0))
      open_.push_back(messages_[next_++].get());
    if (open_.empty()) return;
    const std::size_t chosen = in_frame_ ? current_ : dice_() % open_.size();
    outgoing& m = open_[chosen]->out;
    const std::uint64_t before = m.sent;
    const wire::pushed outcome = from_.push(m);
    in_frame_ = from_.in_frame();
    current_ = chosen;
    const bool bare = !carries_payload(m.header.kind);
    // One frame a call, as both wires do it; an empty message is a frame too.
    if (m.sent != before || (outcome == wire::pushed::done && (bare || m.size == 0))) {
      handed_over_.push_back({m.header.sequence, before, m.sent - before});
      ++expected_frames_;
    }
    if (outcome == wire::pushed::done) open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(chosen));
  }

  struct piece {
    std::uint32_t number;
    std::uint64_t offset;
    std::uint64_t bytes;
  };
  wire& from_;
  wire& to_;
  std::minstd_rand dice_;
  std::vector<std::unique_ptr<test_message>> messages_;
  std::size_t next_ = 0;
  std::vector<test_message*> open_;
  bool in_frame_ = false;
  std::size_t current_ = 0;
  std::size_t expected_frames_ = 0;
  std::vector<piece> handed_over_;
  recorder came_;
};

void converse(wire_ends& ends, std::uint64_t seed, std::size_t count) {
  direction there{*ends.a, *ends.b, seed, count};
  direction back{*ends.b, *ends.a, seed + 1000, count};
  std::minstd_rand mood{static_cast<std::uint32_t>(seed)};
  std::uint32_t pushes = 50;
  std::uint32_t polls = 50;
  int turn = 0;
  const bool all = testing::soon([&] {
    if (turn++ % 300 == 0) {  // for a while one side talks more than the other listens, then the reverse
      pushes = 5 + mood() % 95;
      polls = 5 + mood() % 95;
    }
    there.step(pushes, polls);
    back.step(polls, pushes);
    return there.finished() && back.finished();
  });
  BOOST_REQUIRE(all);
  there.verify();
  back.verify();
}

BOOST_AUTO_TEST_SUITE(wires)

BOOST_DATA_TEST_CASE(frames_arrive_whole_and_in_order, boost::unit_test::data::make(media), m) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    BOOST_TEST_INFO_SCOPE("seed " << seed);
    wire_ends ends{m};
    converse(ends, seed, 120);
  }
}

BOOST_DATA_TEST_CASE(frames_arrive_through_faults, boost::unit_test::data::make(media), m) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    BOOST_TEST_INFO_SCOPE("seed " << seed);
    wire_ends ends{m};
    ends.with_faults(seed);
    converse(ends, seed, 80);
  }
}

BOOST_DATA_TEST_CASE(frames_arrive_through_narrow_sockets, boost::unit_test::data::make(streams), m) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    BOOST_TEST_INFO_SCOPE("seed " << seed);
    wire_ends ends{m};
    ends.narrow(m);
    converse(ends, seed, 60);
  }
}

BOOST_DATA_TEST_CASE(a_writer_without_a_reader_is_blocked_and_goes_on_later,
                     boost::unit_test::data::make(media), m) {
  wire_ends ends{m};
  test_message big{1, frame_kind::data, 8u << 20};
  wire::pushed outcome;
  do outcome = ends.a->push(big.out);
  while (outcome == wire::pushed::more);
  BOOST_REQUIRE(outcome == wire::pushed::blocked);
  BOOST_TEST(big.out.sent <= 2 * tcp_wire::window);
  BOOST_TEST(ends.a->arm(true));
  ends.a->disarm();

  recorder came;
  recorder own;
  testing::soon([&] {
    ends.b->poll(came, 1);
    ends.a->poll(own, 8);
    outcome = ends.a->push(big.out);
    return outcome == wire::pushed::done;
  });
  while (ends.b->poll(came, 64) != 0) {
  }
  std::uint64_t offset = 0;
  for (const recorder::frame& f : came.frames)
    for (const std::byte b : f.payload)
      if (b != testing::byte_of(1, offset++)) BOOST_FAIL("byte " << offset - 1 << " is wrong");
  BOOST_TEST(offset == big.memory.size());
}

BOOST_DATA_TEST_CASE(room_or_frames_that_are_there_forbid_sleep, boost::unit_test::data::make(media), m) {
  wire_ends ends{m};
  BOOST_TEST(ends.b->arm(false));
  ends.b->disarm();
  test_message first{1, frame_kind::eager, 100};
  test_message second{2, frame_kind::eager, 100};
  BOOST_REQUIRE(ends.a->push(first.out) == wire::pushed::done);
  BOOST_REQUIRE(ends.a->push(second.out) == wire::pushed::done);
  recorder came;
  while (came.frames.empty()) ends.b->poll(came, 1);
  // The second is in the ring, or already in the wire's own buffer where no socket tells of it.
  BOOST_TEST(!ends.b->arm(false));
  ends.b->disarm();
}

BOOST_DATA_TEST_CASE(data_goes_straight_to_its_target, boost::unit_test::data::make(streams), m) {
  wire_ends ends{m};
  test_message big{3, frame_kind::data, 200'000};
  recorder came;
  std::vector<std::byte> target(big.memory.size());
  came.target = target.data();
  came.target_size = target.size();
  testing::soon([&] {
    if (big.out.sent != big.out.size) ends.a->push(big.out);
    ends.b->poll(came, 8);
    return !came.frames.empty();
  });
  BOOST_REQUIRE_EQUAL(came.frames.size(), 1u);
  BOOST_TEST(came.direct == 1);
  BOOST_TEST(target == big.memory);
}

BOOST_DATA_TEST_CASE(a_message_abandoned_in_mid_frame_is_finished_from_other_memory,
                     boost::unit_test::data::make(streams), m) {
  for (const bool faulty : {false, true}) {
    wire_ends ends{m};
    ends.narrow(m);
    if (faulty) ends.with_faults(17);
    auto doomed = std::make_unique<test_message>(5, frame_kind::data, 250'000);
    while (!ends.a->in_frame()) ends.a->push(doomed->out);
    BOOST_REQUIRE(ends.a->in_frame());
    ends.a->abandon(doomed->out);
    BOOST_TEST(!ends.a->in_frame());
    std::fill(doomed->memory.begin(), doomed->memory.end(), std::byte{0xee});
    doomed.reset();  // whoever reads it now is caught by the address sanitizer

    test_message next{6, frame_kind::eager, 5000};
    recorder came;
    recorder own;
    bool sent = false;
    testing::soon([&] {
      if (!sent) sent = ends.a->push(next.out) == wire::pushed::done;
      ends.a->poll(own, 8);
      ends.b->poll(came, 8);
      return came.frames.size() >= 2;
    });
    BOOST_REQUIRE_EQUAL(came.frames.size(), 2u);
    for (std::size_t i = 0; i < came.frames[0].payload.size(); ++i)
      if (came.frames[0].payload[i] != testing::byte_of(5, i))
        BOOST_FAIL("byte " << i << " was sent too late");
    BOOST_TEST(came.frames[1].payload == next.memory);
  }
}

BOOST_DATA_TEST_CASE(an_abandoned_frame_goes_out_without_further_messages,
                     boost::unit_test::data::make(streams), m) {
  wire_ends ends{m};
  ends.narrow(m);
  auto doomed = std::make_unique<test_message>(5, frame_kind::data, 250'000);
  while (!ends.a->in_frame()) ends.a->push(doomed->out);
  ends.a->abandon(doomed->out);
  doomed.reset();
  recorder came;
  recorder own;
  testing::soon([&] {
    ends.a->poll(own, 8);
    ends.b->poll(came, 8);
    return !came.frames.empty();
  });
  BOOST_TEST(came.frames.size() == 1u);
}

BOOST_DATA_TEST_CASE(nothing_is_written_to_a_target_that_was_withdrawn, boost::unit_test::data::make(streams),
                     m) {
  wire_ends ends{m};
  ends.narrow(m);
  test_message big{7, frame_kind::data, 250'000};
  test_message next{8, frame_kind::eager, 77};
  recorder came;
  auto target = std::make_unique<std::vector<std::byte>>(big.memory.size());
  came.target = target->data();
  came.target_size = target->size();
  while ((*target)[1000] != big.memory[1000]) {  // until a part has arrived there
    ends.a->push(big.out);
    ends.b->poll(came, 8);
  }
  BOOST_REQUIRE(came.frames.empty());
  ends.b->forget_target(target->data(), target->data() + target->size());
  came.target = nullptr;
  target.reset();
  bool sent = false;
  testing::soon([&] {
    if (big.out.sent != big.out.size)
      ends.a->push(big.out);
    else if (!sent)
      sent = ends.a->push(next.out) == wire::pushed::done;
    ends.b->poll(came, 8);
    return !came.frames.empty();
  });
  // Of the forgotten frame a part is lost: nobody gets it. The stream goes on behind it.
  BOOST_REQUIRE_EQUAL(came.frames.size(), 1u);
  BOOST_TEST(came.frames[0].header.sequence == 8u);
  BOOST_TEST(came.frames[0].payload == next.memory);
}

BOOST_DATA_TEST_CASE(a_grant_that_had_to_wait_for_a_frame_is_sent_after_it,
                     boost::unit_test::data::make(streams), m) {
  // Regression: both sides send in bulk, one finishes in the middle of what it owes the other.
  wire_ends ends{m};
  ends.narrow(m);
  test_message ours{1, frame_kind::data, 250'000};
  test_message theirs{2, frame_kind::data, 4u << 20};
  recorder at_a;
  recorder at_b;
  while (!ends.a->in_frame()) ends.a->push(ours.out);
  // The other side fills its whole window while our frame stands in the socket.
  for (int idle = 0; idle < 1000;) {
    const bool moved = ends.b->push(theirs.out) == wire::pushed::more;
    idle = ends.a->poll(at_a, 8) != 0 || moved ? 0 : idle + 1;
  }
  BOOST_REQUIRE(ends.a->in_frame());
  while (ends.a->push(ours.out) != wire::pushed::done) ends.b->poll(at_b, 8);
  // From now on we only listen.
  testing::soon([&] {
    ends.a->poll(at_a, 8);
    ends.b->poll(at_b, 8);
    ends.b->push(theirs.out);
    return theirs.out.sent == theirs.out.size;
  });
  BOOST_TEST(theirs.out.sent == theirs.out.size);
}

BOOST_DATA_TEST_CASE(frames_of_all_lengths_keep_their_order, boost::unit_test::data::make(media), m) {
  // Short ones go through slots where there are any, the others through a ring or a stream.
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    BOOST_TEST_INFO_SCOPE("seed " << seed);
    std::minstd_rand dice{seed};
    wire_ends ends{m};
    std::deque<test_message> sent;
    recorder came;
    recorder own;  // a stream's sender takes grants in
    constexpr std::uint32_t count = 400;
    for (std::uint32_t i = 0; i < count; ++i) {
      constexpr std::size_t lengths[] = {0, 1, 64, 2047, 2048, 2049, 3000, 3072, 5000, 8192};
      sent.emplace_back(i, frame_kind::eager, lengths[dice() % std::size(lengths)]);
      testing::soon([&] {
        const bool done = ends.a->push(sent.back().out) == wire::pushed::done;
        ends.a->poll(own, 8);
        if (!done || dice() % 8 == 0) ends.b->poll(came, 1 + dice() % 70);
        return done;
      });
    }
    testing::soon([&] { return ends.b->poll(came, 64), came.frames.size() >= count; });
    BOOST_REQUIRE_EQUAL(came.frames.size(), std::size_t{count});
    for (std::uint32_t i = 0; i < count; ++i) {
      BOOST_REQUIRE_EQUAL(came.frames[i].header.sequence, i);
      BOOST_REQUIRE_EQUAL(came.frames[i].header.call.reserved, 0u);
      BOOST_REQUIRE(came.frames[i].payload == sent[i].memory);
    }
  }
}

BOOST_AUTO_TEST_CASE(sixteen_lines_and_no_more) {
  wire_ends ends{medium::shm};
  recorder came;
  for (std::uint32_t round = 0; round < 5; ++round) {
    for (std::uint32_t i = 0; i < tiny_slots; ++i) {
      tiny_line line;
      line.lane = round;
      line.ticket = i;
      line.payload[31] = static_cast<std::byte>(i);
      line.stamp = tiny_line::make_stamp(0, static_cast<std::uint16_t>(i), 32);
      BOOST_REQUIRE(ends.a->push_tiny(line));
    }
    BOOST_TEST(!ends.a->push_tiny(tiny_line{}));
    BOOST_TEST(!ends.b->arm(false));
    BOOST_TEST(ends.b->poll(came, 1) == 1u);
    tiny_line extra;
    extra.lane = 99;
    BOOST_TEST(ends.a->push_tiny(extra));
    BOOST_TEST(!ends.a->push_tiny(extra));
    BOOST_TEST(ends.b->poll(came, 64) == tiny_slots);
    BOOST_REQUIRE_EQUAL(came.lines.size(), (tiny_slots + 1) * (round + 1));
    for (std::uint32_t i = 0; i < tiny_slots; ++i) {
      const tiny_line& line = came.lines[round * (tiny_slots + 1) + i];
      BOOST_TEST(line.lane == round);
      BOOST_TEST(line.ticket == i);
      BOOST_TEST(line.channel() == i);
      BOOST_TEST(line.size() == 32);
      BOOST_TEST((line.payload[31] == static_cast<std::byte>(i)));
    }
  }
}

BOOST_DATA_TEST_CASE(streams_have_no_lines, boost::unit_test::data::make(streams), m) {
  wire_ends ends{m};
  BOOST_TEST(!ends.a->push_tiny(tiny_line{}));
}

BOOST_DATA_TEST_CASE(a_cut_link_is_told_once_and_carries_nothing_more, boost::unit_test::data::make(media),
                     m) {
  wire_ends ends{m};
  fault_plan plan;
  plan.cut_after = 3;
  faulty_wire cut{std::move(ends.b), plan};
  recorder came;
  test_message message{1, frame_kind::eager, 64};
  ends.a->push(message.out);
  for (int turn = 0; turn < 10; ++turn) cut.poll(came, 8);
  BOOST_TEST(came.breaks == 1);
  BOOST_TEST((came.why == errc::link_lost));
  BOOST_TEST(came.frames.size() <= 1u);
  BOOST_TEST((cut.push(message.out) == wire::pushed::blocked));
  BOOST_TEST(cut.arm(true));
}

BOOST_DATA_TEST_CASE(what_a_peer_sent_before_it_closed_arrives, boost::unit_test::data::make(streams), m) {
  // Regression: our own failing send must not hide it.
  wire_ends ends{m};
  recorder came;
  std::vector<std::unique_ptr<test_message>> last;
  for (std::uint32_t i = 0; i < 20; ++i) {
    last.push_back(std::make_unique<test_message>(i, frame_kind::eager, 1000));
    BOOST_REQUIRE(ends.a->push(last.back()->out) == wire::pushed::done);
  }
  ends.a.reset();
  test_message ours{100, frame_kind::eager, 10};
  for (int turn = 0; turn < 3; ++turn) {
    ours.out.sent = 0;
    ends.b->push(ours.out);  // the peer's socket answers that nobody reads
  }
  testing::soon([&] {
    ends.b->poll(came, 1);
    if (came.breaks == 0) ends.b->push(ours.out);
    return came.breaks != 0;
  });
  BOOST_TEST(came.breaks == 1);
  BOOST_TEST((came.why == errc::link_lost));
  BOOST_REQUIRE_EQUAL(came.frames.size(), 20u);
  for (std::uint32_t i = 0; i < 20; ++i) BOOST_TEST(came.frames[i].payload == last[i]->memory);
  BOOST_TEST(ends.b->arm(true));
  BOOST_TEST(ends.b->poll(came, 8) == 0u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace chorale
