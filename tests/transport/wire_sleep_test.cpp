// Sleeping and waking: two engines on two threads, or in two processes, lose no wake-up over any wire.
#include "wire_rig.hpp"

#include <boost/test/unit_test.hpp>
#include <sys/wait.h>

#include <cstring>
#include <thread>

namespace chorale {
namespace {

using testing::medium;

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CHORALE_TEST_SLOWER 4
#endif
#endif
#if !defined(CHORALE_TEST_SLOWER)
#define CHORALE_TEST_SLOWER 1
#endif
constexpr std::uint32_t slower = CHORALE_TEST_SLOWER;

struct alarm final : timer {
  explicit alarm(engine& on) noexcept : timer{ring}, loop{on} {
    loop.arm(*this, steady_now() + std::chrono::seconds{120});
  }
  alarm(const alarm&) = delete;
  alarm& operator=(const alarm&) = delete;
  ~alarm() {
    if (!rang) loop.disarm(*this);
  }
  static void ring(operation& op) noexcept { static_cast<alarm&>(static_cast<timer&>(op)).rang = true; }
  engine& loop;
  bool rang = false;
};

/// One side of a wire as a poller of its engine.
class station : public poller, protected frame_receiver {
 public:
  station(engine& loop, wire& carrier) : loop_{loop}, wire_{carrier} { loop_.add(*this); }
  station(const station&) = delete;
  station& operator=(const station&) = delete;
  virtual ~station() { loop_.remove(*this); }

  /// Until done or, when a wake-up was lost, much later.
  bool run() {
    alarm limit{loop_};
    loop_.run_until([&] { return done() || limit.rang; });
    return done();
  }
  [[nodiscard]] bool broken() const noexcept { return broken_; }

 protected:
  [[nodiscard]] virtual bool done() const noexcept = 0;
  /// Pushes what there is to push; true when something moved.
  virtual bool pump() noexcept = 0;
  [[nodiscard]] virtual bool wants_room() const noexcept = 0;

  std::size_t poll(std::size_t) noexcept override {
    const std::size_t moved = wire_.poll(*this, budget_);
    return moved + (pump() ? 1 : 0);
  }
  arming arm() noexcept override { return wire_.arm(wants_room()) ? arming::armed : arming::busy; }
  void disarm() noexcept override { wire_.disarm(); }
  [[nodiscard]] std::size_t outstanding() const noexcept override { return 1; }

  std::byte* direct_target(const frame_header&) noexcept override { return nullptr; }
  void on_frame(const frame_header&, const std::byte*) noexcept override {}
  void on_tiny(const tiny_line&) noexcept override {}
  void on_broken(error) noexcept override { broken_ = true; }

  engine& loop_;
  wire& wire_;
  std::size_t budget_ = 64;
  bool broken_ = false;
};

/// Answers each number with the next, by lines and frames in turn where there are lines.
class player final : public station {
 public:
  player(engine& loop, wire& carrier, bool serves, std::uint32_t rounds)
      : station{loop, carrier}, last_{2 * rounds}, turn_{serves ? 1u : 0u} {
    message_.header.kind = frame_kind::eager;
    message_.data = reinterpret_cast<const std::byte*>(&number_);
    message_.size = sizeof number_;
  }
  [[nodiscard]] std::uint32_t wrong() const noexcept { return wrong_; }

 private:
  [[nodiscard]] bool done() const noexcept override { return turn_ == 0 && seen_ >= last_ - 1; }
  [[nodiscard]] bool wants_room() const noexcept override { return turn_ != 0; }
  bool pump() noexcept override {
    if (turn_ == 0) return false;
    number_ = turn_;
    if (number_ % 3 == 0) {
      tiny_line line;
      line.lane = number_;
      if (wire_.push_tiny(line)) return sent();
    }
    message_.sent = 0;
    return wire_.push(message_) == wire::pushed::done && sent();
  }
  bool sent() noexcept {
    seen_ = turn_;
    turn_ = 0;
    return true;
  }
  void take(std::uint32_t number) noexcept {
    if (number != seen_ + 1) ++wrong_;
    seen_ = number;
    if (number < last_) turn_ = number + 1;
    // Different moments between looking and sleeping.
    for (volatile std::uint32_t i = number * 2654435761u >> 25; i != 0; i = i - 1) {
    }
  }
  void on_frame(const frame_header&, const std::byte* payload) noexcept override {
    std::uint32_t number;
    std::memcpy(&number, payload, sizeof number);
    take(number);
  }
  void on_tiny(const tiny_line& line) noexcept override { take(static_cast<std::uint32_t>(line.lane)); }

  std::uint32_t last_;
  std::uint32_t turn_;  // the number we have to send, 0: it is the other's turn
  std::uint32_t seen_ = 0;
  std::uint32_t number_ = 0;
  std::uint32_t wrong_ = 0;
  outgoing message_;
};

/// Whose fence before sleeping serves for the other too.
enum class fences { nobody, one, both };

void ping_pong(medium m, backend_kind kind, std::uint32_t rounds, fences by = fences::nobody) {
  BOOST_TEST_INFO_SCOPE(m << " with " << make_backend(kind).value()->name() << ", fences " << int(by));
  testing::wire_ends ends{m, kind};
  if (by != fences::nobody) ends.memory->a.fence_for_mates();
  if (by == fences::both) ends.memory->b.fence_for_mates();
  bool there = false;
  std::uint32_t wrong = 0;
  std::thread other{[&] {
    player answers{*ends.loop_b, *ends.b, false, rounds};
    there = answers.run();
    wrong = answers.wrong();
  }};
  player serves{*ends.loop_a, *ends.a, true, rounds};
  const bool here = serves.run();
  other.join();
  BOOST_TEST(here);
  BOOST_TEST(there);
  BOOST_TEST(wrong + serves.wrong() == 0u);
  BOOST_TEST_MESSAGE(m << ": slept " << ends.loop_a->statistics().sleeps << " and "
                       << ends.loop_b->statistics().sleeps << " times in " << rounds << " rounds");
  BOOST_TEST(ends.loop_a->statistics().sleeps + ends.loop_b->statistics().sleeps > rounds / 10);
}

/// Sends in bulk and sleeps whenever there is no room.
class source final : public station {
 public:
  source(engine& loop, wire& carrier, std::uint64_t bytes)
      : station{loop, carrier}, message_{1, frame_kind::data, bytes} {}

 private:
  [[nodiscard]] bool done() const noexcept override { return message_.out.sent == message_.out.size; }
  [[nodiscard]] bool wants_room() const noexcept override { return !done(); }
  bool pump() noexcept override {
    const std::uint64_t before = message_.out.sent;
    if (!done()) wire_.push(message_.out);
    return message_.out.sent != before;
  }
  testing::test_message message_;
};

/// Takes little at a time.
class sink final : public station {
 public:
  sink(engine& loop, wire& carrier, std::uint64_t bytes) : station{loop, carrier}, left_{bytes} {
    budget_ = 1;
  }
  [[nodiscard]] std::uint64_t wrong() const noexcept { return wrong_; }

 private:
  [[nodiscard]] bool done() const noexcept override { return left_ == 0; }
  [[nodiscard]] bool wants_room() const noexcept override { return false; }
  bool pump() noexcept override { return false; }
  void on_frame(const frame_header& header, const std::byte* payload) noexcept override {
    for (std::uint64_t i = 0; i < header.size; i += 509)
      if (payload[i] != testing::byte_of(1, offset_ + i)) ++wrong_;
    offset_ += header.size;
    left_ -= header.size;
  }
  std::uint64_t left_;
  std::uint64_t offset_ = 0;
  std::uint64_t wrong_ = 0;
};

void stream(medium m, backend_kind kind, std::uint64_t bytes) {
  BOOST_TEST_INFO_SCOPE(m << " with " << make_backend(kind).value()->name());
  testing::wire_ends ends{m, kind};
  if (m == medium::shm) ends.memory->a.fence_for_mates();  // of who waits for room
  bool received = false;
  std::uint64_t wrong = 0;
  std::thread other{[&] {
    sink takes{*ends.loop_b, *ends.b, bytes};
    received = takes.run();
    wrong = takes.wrong();
  }};
  source gives{*ends.loop_a, *ends.a, bytes};
  const bool sent = gives.run();
  other.join();
  BOOST_TEST(sent);
  BOOST_TEST(received);
  BOOST_TEST(wrong == 0u);
}

BOOST_AUTO_TEST_SUITE(sleeping)

BOOST_AUTO_TEST_CASE(no_wake_up_is_lost_over_shared_memory) {
  for (const backend_kind kind : testing::usable_backends())
    for (const fences by : {fences::nobody, fences::one, fences::both})
      ping_pong(medium::shm, kind, 50'000 / slower, by);
}

BOOST_AUTO_TEST_CASE(no_wake_up_is_lost_over_streams) {
  for (const backend_kind kind : testing::usable_backends())
    for (const medium m : {medium::socket_pair, medium::loopback}) ping_pong(m, kind, 10'000 / slower);
}

BOOST_AUTO_TEST_CASE(a_writer_that_sleeps_for_room_is_woken) {
  for (const backend_kind kind : testing::usable_backends())
    for (const medium m : {medium::shm, medium::socket_pair, medium::loopback}) stream(m, kind, 64u << 20);
}

BOOST_AUTO_TEST_CASE(two_processes_over_two_memfds) {
  for (const backend_kind kind : testing::usable_backends()) {
    constexpr std::uint32_t rounds = 5000;
    constexpr std::uint32_t slots = testing::shm_memory::slots;
    const std::size_t bytes = shm_segment::bytes(slots);
    const unique_fd file_a{::memfd_create("chorale-test-a", MFD_CLOEXEC)};
    const unique_fd file_b{::memfd_create("chorale-test-b", MFD_CLOEXEC)};
    BOOST_REQUIRE_EQUAL(::ftruncate(file_a.get(), static_cast<off_t>(bytes)), 0);
    BOOST_REQUIRE_EQUAL(::ftruncate(file_b.get(), static_cast<off_t>(bytes)), 0);
    {
      const testing::mapping a{bytes, file_a.get()};
      const testing::mapping b{bytes, file_b.get()};
      shm_segment::initialise(a.data(), slots).fence_for_mates();
      shm_segment::initialise(b.data(), slots);
    }
    testing::sockets talk = testing::connected(medium::socket_pair);

    // Each side maps for itself, and gives the other its engine's doorbell.
    const auto play = [&](bool first, int socket) {
      const testing::mapping own_memory{bytes, first ? file_a.get() : file_b.get()};
      const testing::mapping peer_memory{bytes, first ? file_b.get() : file_a.get()};
      const auto own = shm_segment::open(own_memory.data(), bytes, slots);
      const auto peers = shm_segment::open(peer_memory.data(), bytes, slots);
      if (!own || !peers) return false;
      engine loop{engine_options{kind, duration::zero()}};
      const int bell = loop.io().doorbell();
      const std::byte hello[1] = {};
      if (!loop.run(send_fds(socket, hello, std::span{&bell, 1}))) return false;
      std::byte answer[1];
      auto bells = loop.run(recv_fds(socket, answer));
      if (!bells || bells->size() != 1) return false;
      const std::uint32_t slot = first ? 0 : 1;
      shm_wire carrier{shm_wire_setup{*own, *peers, slot, 1 - slot, bells->front().get()}};
      player one{loop, carrier, first, rounds};
      return one.run() && one.wrong() == 0;
    };
    const pid_t child = ::fork();
    if (child == 0) ::_exit(play(false, talk.b.get()) ? 0 : 1);
    BOOST_REQUIRE(child > 0);
    BOOST_TEST(play(true, talk.a.get()));
    int status = -1;
    BOOST_REQUIRE_EQUAL(::waitpid(child, &status, 0), child);
    BOOST_TEST(status == 0);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace chorale
