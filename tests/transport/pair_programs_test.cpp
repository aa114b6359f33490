// Random programs of sends and receives, over random faulty wires, against the simplest reference: every
// message of a lane that lives arrives whole, once, where its receive is; of a lane that ended nothing is
// touched any more.
#include "pair_rig.hpp"

#include <boost/test/unit_test.hpp>

#include <map>
#include <random>

namespace chorale {
namespace {

#ifdef CHORALE_SANITIZED
constexpr int slower = 20;
#else
constexpr int slower = 1;
#endif

using testing::joined;
using testing::medium;
using testing::test_receive;
using testing::test_send;

constexpr std::uint64_t lanes = 4;

class program {
 public:
  program(std::uint64_t seed, medium m)
      : dice_{static_cast<std::uint32_t>(seed * 2654435761u + 1)}, joined_{m, seed} {
    side_[0] = {joined_.a.get(), &joined_.judge_a, {}, {}};
    side_[1] = {joined_.b.get(), &joined_.judge_b, {}, {}};
    for (int s = 0; s < 2; ++s) {
      side_[s].judge->on_revoke = s == 0 ? heard<0> : heard<1>;
      side_[s].judge->on_revoke_of = this;
    }
    const std::uint32_t count = 4 + dice_() % 24;
    const std::uint32_t character = dice_() % 3;
    for (std::uint32_t i = 0; i < count; ++i) {
      steps_.push_back({random_key(i), random_size(character), static_cast<int>(dice_() % 2), true});
      steps_.push_back(steps_.back());
      steps_.back().sending = false;
      steps_.back().side = 1 - steps_.back().side;
    }
    std::shuffle(steps_.begin(), steps_.end(), dice_);
    endings_ = dice_() % 3 == 0 ? 1 + dice_() % 2 : 0;
  }

  bool run() {
    std::size_t next = 0;
    const std::uint32_t eagerness = 1 + dice_() % 60;
    const bool all = testing::soon([&] {
      if (next < steps_.size() && dice_() % 100 < eagerness) post(steps_[next++]);
      if (endings_ != 0 && dice_() % 200 == 0) {
        --endings_;
        end_lane(static_cast<int>(dice_() % 2), 1 + dice_() % lanes, true);
      }
      if (dice_() % 100 < 50) joined_.a->progress(1 + dice_() % 8);
      if (dice_() % 100 < 50) joined_.b->progress(1 + dice_() % 8);
      return next == steps_.size() && joined_.a->outstanding() == 0 && joined_.b->outstanding() == 0 &&
             ended_together();
    });
    return all && verify();
  }

 private:
  struct step {
    message_key key;
    std::uint64_t size;
    int side;
    bool sending;
  };
  struct side {
    pair* link = nullptr;
    testing::lane_judge* judge = nullptr;
    std::map<std::uint32_t, std::unique_ptr<test_send>> sends;
    std::map<std::uint32_t, std::unique_ptr<test_receive>> receives;
  };

  message_key random_key(std::uint32_t number) {
    return {1 + dice_() % lanes, 1 + dice_() % 3, number, static_cast<std::uint16_t>(dice_() % 4)};
  }
  std::uint64_t random_size(std::uint32_t character) {
    switch (dice_() % 4) {
      case 0:
        return dice_() % 100;
      case 1:
        return dice_() % (eager_limit + 1);
      case 2:
        return character == 0 ? eager_limit : dice_() % 3000;
      default:
        return character == 1 ? dice_() % 300'000 : dice_() % 20'000;
    }
  }
  void post(const step& s) {
    side& here = side_[s.side];
    if (here.judge->ended.contains(s.key.lane)) return;  // the call would be refused
    if (s.sending) {
      auto& made = here.sends[s.key.sequence] = std::make_unique<test_send>(s.key, s.size);
      here.link->send(*made);
    } else {
      auto& made = here.receives[s.key.sequence] = std::make_unique<test_receive>(s.key, s.size, dice_() % 2);
      here.link->receive(*made);
    }
  }
  /// What a communicator does when an operation ends early. Memory goes at once.
  void end_lane(int on, std::uint64_t lane, bool tell) {
    side& here = side_[on];
    if (!here.judge->ended.insert(lane).second) return;
    if (tell) here.link->send_lane_revoke(lane, 1, {});
    std::erase_if(here.sends, [&](auto& entry) {
      if (entry.second->header.lane != lane || entry.second->ended != 0) return false;
      here.link->abandon(*entry.second);
      std::fill(entry.second->memory.begin(), entry.second->memory.end(), std::byte{0xee});
      return true;
    });
    std::erase_if(here.receives, [&](auto& entry) {
      if (entry.second->key.lane != lane || entry.second->ended != 0) return false;
      here.link->withdraw(*entry.second);
      return true;
    });
    here.link->forget_lane(lane);
  }
  template <int Side>
  static void heard(void* of, std::uint64_t lane) {
    static_cast<program*>(of)->end_lane(Side, lane, false);
  }
  [[nodiscard]] bool ended_together() const { return side_[0].judge->ended == side_[1].judge->ended; }

  [[nodiscard]] bool verify() const {
    const auto& ended = side_[0].judge->ended;
    std::size_t expected = 0;
    for (const step& s : steps_) expected += !s.sending && !ended.contains(s.key.lane) ? 1 : 0;
    std::size_t right = 0;
    for (const side& s : side_) {
      if (!s.judge->violations.empty() || s.judge->breaks != 0) return false;
      if (s.link->early_arrivals() != 0) return false;
      for (const auto& [number, send] : s.sends)
        if (send->ended != 1) return false;
      for (const auto& [number, receive] : s.receives) {
        if (receive->ended != 1 || !receive->right()) return false;
        right += ended.contains(receive->key.lane) ? 0 : 1;
      }
    }
    return right == expected;
  }

  std::minstd_rand dice_;
  joined joined_;
  side side_[2];
  std::vector<step> steps_;
  std::uint32_t endings_ = 0;
};

void run_programs(medium m, std::uint64_t first, std::uint64_t count) {
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    program one{seed, m};
    if (!one.run()) BOOST_FAIL("the program of seed " << seed << " over " << m << " went wrong");
  }
}

BOOST_AUTO_TEST_SUITE(pair_programs)

BOOST_AUTO_TEST_CASE(over_shared_memory) { run_programs(medium::shm, 1, 6000 / slower); }
BOOST_AUTO_TEST_CASE(over_socket_pairs) { run_programs(medium::socket_pair, 10'001, 3000 / slower); }
BOOST_AUTO_TEST_CASE(over_tcp) { run_programs(medium::loopback, 20'001, 1000 / slower); }

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace chorale
