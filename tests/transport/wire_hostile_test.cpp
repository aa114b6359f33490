// A peer that writes what no correct peer writes: the link breaks with a reason, and nothing else happens.
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

constexpr medium streams[] = {medium::socket_pair, medium::loopback};

frame_header header_of(frame_kind kind, std::uint64_t size) {
  frame_header h;
  h.kind = kind;
  h.size = size;
  return h;
}

frame_header of_version(std::uint8_t version) {
  frame_header h;
  h.version = version;
  return h;
}

/// Headers that must break any wire.
std::vector<frame_header> wrong_headers() {
  constexpr std::uint64_t all = ~std::uint64_t{0};
  return {
      header_of(static_cast<frame_kind>(32), 0),
      header_of(static_cast<frame_kind>(255), 0),
      of_version(0),
      of_version(2),
      header_of(frame_kind::eager, eager_limit + 1),
      header_of(frame_kind::eager, all),  // padded, it would be zero bytes
      header_of(frame_kind::eager, all - 63),
      header_of(frame_kind::data, frame_limit + 1),
      header_of(frame_kind::data, all),
      header_of(frame_kind::lane_revoke, 0),
      header_of(frame_kind::lane_revoke, sizeof(lane_revoke_body) + 1),
      header_of(frame_kind::lane_revoke, all),
      header_of(frame_kind::credit, eager_budget + 1),
      header_of(frame_kind::credit, all),
      header_of(frame_kind::window, window_frame_limit + 1),
      header_of(frame_kind::window, all),
  };
}

void poll_out(wire& w, recorder& came) {
  std::size_t left = 10'000;
  while (left-- != 0 && w.poll(came, 64) != 0) {
  }
  BOOST_TEST(left != 0u);  // it comes to an end
}

/// A rank's segment, and what a hostile host-mate can do to it.
struct victim {
  testing::shm_memory memory;
  engine loop{engine_options{backend_kind::epoll, duration::zero()}};
  shm_wire own{shm_wire_setup{memory.a, memory.b, 0, 1, loop.io().doorbell()}};
  shm_channel theirs = memory.a.channel(1);
  recorder came;

  void put(std::uint64_t at, const frame_header& header) {
    std::memcpy(theirs.ring + at % theirs.ring_bytes, &header, sizeof header);
  }
  void claim(std::uint64_t tail) { theirs.writer->tail.store(tail); }
  void expect_broken() {
    poll_out(own, came);
    BOOST_TEST(came.breaks == 1);
    BOOST_TEST((came.why == errc::protocol_error));
    BOOST_TEST(!came.why.detail().empty());
    claim(theirs.writer->tail.load() + 64);
    BOOST_TEST(own.poll(came, 64) == 0u);
    BOOST_TEST(came.breaks == 1);
    BOOST_TEST(own.arm(true));
    own.disarm();
  }
};

BOOST_AUTO_TEST_SUITE(hostile_peers)

BOOST_AUTO_TEST_CASE(wrong_headers_break_shared_memory) {
  for (const frame_header& wrong : wrong_headers()) {
    BOOST_TEST_INFO_SCOPE("kind " << int(wrong.kind) << ", version " << int(wrong.version) << ", size "
                                  << wrong.size);
    victim v;
    v.put(0, wrong);
    v.claim(v.theirs.ring_bytes);
    v.expect_broken();
    BOOST_TEST(v.came.frames.empty());
  }
}

BOOST_DATA_TEST_CASE(wrong_headers_break_streams, boost::unit_test::data::make(streams), m) {
  auto wrong = wrong_headers();
  constexpr auto window_grant = static_cast<frame_kind>(64);
  wrong.push_back(header_of(window_grant, 1));  // nothing was sent yet
  wrong.push_back(header_of(window_grant, ~std::uint64_t{0}));
  for (const frame_header& header : wrong) {
    BOOST_TEST_INFO_SCOPE("kind " << int(header.kind) << ", size " << header.size);
    engine loop{engine_options{backend_kind::epoll, duration::zero()}};
    testing::sockets both = testing::connected(m);
    tcp_wire own{loop, std::move(both.a)};
    recorder came;
    BOOST_REQUIRE_EQUAL(::send(both.b.get(), &header, sizeof header, 0), ssize_t{sizeof header});
    testing::soon([&] { return own.poll(came, 8), came.breaks != 0; });
    BOOST_TEST(came.breaks == 1);
    BOOST_TEST((came.why == errc::protocol_error));
    BOOST_TEST(came.frames.empty());
    BOOST_TEST(own.poll(came, 8) == 0u);
    testing::test_message ours{1, frame_kind::eager, 10};
    BOOST_TEST((own.push(ours.out) == wire::pushed::blocked));
  }
}

BOOST_AUTO_TEST_CASE(a_frame_that_reaches_beyond_what_was_written) {
  victim v;
  v.put(0, header_of(frame_kind::data, 4096));
  v.claim(sizeof(frame_header) + 4096 - 64);
  v.expect_broken();
}

BOOST_AUTO_TEST_CASE(a_frame_that_reaches_beyond_the_end_of_the_ring) {
  victim v;
  const std::uint64_t ring = v.theirs.ring_bytes;
  v.put(0, header_of(frame_kind::data, frame_limit));
  std::uint64_t at = 0;
  while (at + 2 * (64 + frame_limit) <= ring)
    at += 64 + frame_limit, v.put(at, header_of(frame_kind::data, frame_limit));
  at += 64 + frame_limit;
  v.claim(at);
  poll_out(v.own, v.came);
  BOOST_REQUIRE_EQUAL(v.came.breaks, 0);
  v.put(at, header_of(frame_kind::data, frame_limit));
  v.claim(at + 64 + frame_limit);
  v.expect_broken();
}

BOOST_AUTO_TEST_CASE(counters_that_claim_more_than_a_ring_or_less_than_a_header) {
  for (const std::uint64_t tail :
       {std::uint64_t{1}, std::uint64_t{63}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    victim v;
    v.put(0, header_of(frame_kind::ready, 0));
    v.claim(tail);
    v.expect_broken();
    BOOST_TEST(v.came.frames.empty());
  }
}

BOOST_AUTO_TEST_CASE(a_tail_that_goes_back) {
  victim v;
  v.put(0, header_of(frame_kind::ready, 0));
  v.put(64, header_of(frame_kind::ready, 0));
  v.claim(128);
  poll_out(v.own, v.came);
  BOOST_REQUIRE_EQUAL(v.came.frames.size(), 2u);
  v.claim(64);
  v.expect_broken();
}

BOOST_AUTO_TEST_CASE(skips_without_end_do_not_keep_a_reader) {
  // Regression: with a tail far ahead, nothing but skips was walked for as long as the tail allowed.
  victim v;
  v.put(0, header_of(static_cast<frame_kind>(0), 0));
  v.claim(std::uint64_t{1} << 62);
  v.expect_broken();

  victim w;
  w.put(0, header_of(frame_kind::ready, 0));
  w.put(64, header_of(static_cast<frame_kind>(0), 0));
  w.claim(128);  // the skip goes past what was written
  w.expect_broken();
}

BOOST_AUTO_TEST_CASE(a_reader_that_claims_what_was_never_written) {
  // Its head is only believed for how much room there is: the writer stays within the ring.
  victim v;
  shm_channel back = v.memory.b.channel(0);
  back.reader->head.store(~std::uint64_t{0} / 2);
  back.reader->tiny_head.store(0x7fffffff);
  testing::test_message big{1, frame_kind::data, 4u << 20};
  for (int turn = 0; turn < 1000 && v.own.push(big.out) == wire::pushed::more; ++turn) {
  }
  for (int i = 0; i < 100; ++i) v.own.push_tiny(tiny_line{});
  BOOST_TEST(v.came.breaks == 0);
}

BOOST_AUTO_TEST_CASE(lines_with_any_stamp) {
  victim v;
  std::minstd_rand dice{5};
  for (std::uint32_t i = 0; i < 200; ++i) {
    tiny_line& slot = v.theirs.tiny[i % tiny_slots];
    slot.stamp =
        tiny_line::make_stamp(i + 1, static_cast<std::uint16_t>(dice()), static_cast<std::uint8_t>(dice()));
    v.own.poll(v.came, 8);
  }
  BOOST_TEST(v.came.lines.size() == 200u);
}

BOOST_AUTO_TEST_CASE(slots_with_what_does_not_belong_there) {
  std::vector<frame_header> wrong = wrong_headers();
  wrong.push_back(header_of(frame_kind::eager, short_slot::capacity + 1));
  wrong.push_back(header_of(frame_kind::data, 10));
  wrong.push_back(header_of(frame_kind::ready, 0));
  for (frame_header& header : wrong) {
    BOOST_TEST_INFO_SCOPE("kind " << int(header.kind) << ", size " << header.size);
    victim v;
    header.call.reserved = 1;
    v.theirs.slot[0].header = header;
    v.expect_broken();
    BOOST_TEST(v.came.frames.empty());
  }
}

BOOST_AUTO_TEST_CASE(a_reader_of_slots_that_were_never_written) {
  victim v;
  shm_channel back = v.memory.b.channel(0);
  back.reader->slot_head.store(0x7fffffff);
  back.reader->head.store(~std::uint64_t{0} / 2);
  for (std::uint32_t i = 0; i < 100; ++i) {
    testing::test_message small{i, frame_kind::eager, 100};
    v.own.push(small.out);
  }
  BOOST_TEST(v.came.breaks == 0);
}

/// Mostly valid headers, with a few bits changed: they get further than noise.
frame_header mutated(std::mt19937_64& dice) {
  frame_header h = header_of(static_cast<frame_kind>(1 + dice() % 7), dice() % 9000);
  if (h.kind == frame_kind::lane_revoke) h.size = sizeof(lane_revoke_body);
  auto* bytes = reinterpret_cast<unsigned char*>(&h);
  if (dice() % 4 == 0) bytes[dice() % sizeof h] ^= static_cast<unsigned char>(1u << dice() % 8);
  return h;
}

void check_delivered(const recorder& came) {
  BOOST_TEST(came.breaks <= 1);
  for (const recorder::frame& f : came.frames) BOOST_REQUIRE(!fault_of(f.header));
}

BOOST_AUTO_TEST_CASE(random_rings) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    BOOST_TEST_INFO_SCOPE("seed " << seed);
    std::mt19937_64 dice{seed};
    victim v;
    const bool noise = seed % 3 == 0;
    for (std::uint64_t at = 0; at < 128 * 1024; at += 64) {
      if (noise)
        for (std::uint64_t i = 0; i < 64; i += 8) {
          const std::uint64_t word = dice();
          std::memcpy(v.theirs.ring + at + i, &word, 8);
        }
      else
        v.put(at, mutated(dice));
    }
    for (std::uint64_t i = 0; i < tiny_slots; ++i) v.theirs.tiny[i].stamp = dice() % 20 | dice() << 32;
    for (std::uint32_t i = 0; i < short_slots; ++i) {
      v.theirs.slot[i].header = mutated(dice);
      v.theirs.slot[i].header.call.reserved = dice() % 40;
    }
    std::uint64_t tail = 0;
    for (int step = 0; step < 50; ++step) {
      tail += dice() % 10 == 0 ? dice() % 100'000 : dice() % 64 * 64;
      v.claim(tail);
      poll_out(v.own, v.came);
    }
    check_delivered(v.came);
  }
}

BOOST_DATA_TEST_CASE(random_streams, boost::unit_test::data::make(streams), m) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    BOOST_TEST_INFO_SCOPE("seed " << seed);
    std::mt19937_64 dice{seed};
    engine loop{engine_options{backend_kind::epoll, duration::zero()}};
    testing::sockets both = testing::connected(m);
    tcp_wire own{loop, std::move(both.a)};
    recorder came;
    std::vector<std::byte> target(8000);
    came.target = target.data();
    came.target_size = target.size();
    for (int step = 0; step < 60 && came.breaks == 0; ++step) {
      std::vector<frame_header> lines(1 + dice() % 40);
      for (frame_header& line : lines) line = mutated(dice);
      const std::size_t bytes = lines.size() * 64 - (dice() % 5 == 0 ? dice() % 64 : 0);
      if (::send(both.b.get(), lines.data(), bytes, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) break;
      if (dice() % 10 == 0) own.forget_target(target.data(), target.data() + target.size());
      poll_out(own, came);
    }
    both.b.reset();
    testing::soon([&] { return own.poll(came, 8), came.breaks != 0; });
    BOOST_TEST(came.breaks == 1);
    check_delivered(came);
  }
}

BOOST_AUTO_TEST_CASE(segments_of_another_layout_are_refused) {
  constexpr std::uint32_t slots = testing::shm_memory::slots;
  testing::mapping memory{shm_segment::bytes(slots)};
  BOOST_TEST(
      (shm_segment::open(memory.data(), shm_segment::bytes(slots), slots).error() == errc::protocol_error));
  shm_segment::initialise(memory.data(), slots);
  BOOST_TEST(shm_segment::open(memory.data(), shm_segment::bytes(slots), slots).has_value());
  BOOST_TEST(!shm_segment::open(memory.data(), shm_segment::bytes(slots) - 1, slots));
  BOOST_TEST(!shm_segment::open(memory.data(), shm_segment::bytes(slots), slots - 1));
  static_cast<std::byte*>(memory.data())[8] ^= std::byte{1};
  BOOST_TEST(!shm_segment::open(memory.data(), shm_segment::bytes(slots), slots));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace chorale
