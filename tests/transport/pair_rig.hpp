// Two ranks' pairs over any wire, and a judge that does what a communicator does when lanes end.
#pragma once

#include "wire_rig.hpp"
#include <chorale/transport/pair.hpp>

#include <cstring>
#include <set>

namespace chorale::testing {

class lane_judge final : public arrival_judge {
 public:
  verdict judge(rank_t, const frame_header& header) noexcept override {
    return ended.contains(header.lane) ? verdict::refused : verdict::current;
  }
  void lane_revoked(rank_t, const frame_header& header, const lane_revoke_body& body) noexcept override {
    revokes.push_back(header.lane);
    last_body = body;
    if (on_revoke) on_revoke(on_revoke_of, header.lane);
  }
  void link_broken(rank_t, error why) noexcept override {
    ++breaks;
    cause = std::move(why);
  }
  void link_violated(rank_t, const char* how) noexcept override { violations.emplace_back(how); }

  std::set<std::uint64_t> ended;
  std::vector<std::uint64_t> revokes;
  lane_revoke_body last_body;
  std::vector<std::string> violations;
  int breaks = 0;
  error cause;
  void (*on_revoke)(void* of, std::uint64_t lane) = nullptr;
  void* on_revoke_of = nullptr;
};

/// Two pairs joined by a wire, both on this thread.
struct joined {
  explicit joined(medium m, std::uint64_t fault_seed = 0) : ends{m} {
    if (fault_seed != 0) ends.with_faults(fault_seed);
    a = std::make_unique<pair>(1, std::move(ends.a), judge_a);
    b = std::make_unique<pair>(0, std::move(ends.b), judge_b);
  }
  /// Until `done`, or for ever so long.
  template <class Predicate>
  bool progress_until(Predicate done) {
    return soon([&] {
      a->progress(8);
      b->progress(8);
      return done();
    });
  }
  /// Until nothing moves any more, on wires that hold nothing back.
  void settle() {
    for (int idle = 0; idle < 50;) idle = a->progress(64) + b->progress(64) != 0 ? 0 : idle + 1;
  }

  wire_ends ends;
  lane_judge judge_a;
  lane_judge judge_b;
  std::unique_ptr<pair> a;
  std::unique_ptr<pair> b;
};

/// A send with memory of its own.
struct test_send : outgoing {
  test_send(const message_key& key, std::uint64_t bytes) : memory(bytes) {
    for (std::uint64_t i = 0; i < bytes; ++i) memory[i] = byte_of(key.sequence, i);
    header.set_key(key);
    data = memory.data();
    size = bytes;
    handed_over = [](outgoing& m) noexcept { ++static_cast<test_send&>(m).ended; };
  }
  std::vector<std::byte> memory;
  int ended = 0;
};

/// A receive with memory of its own, written to directly or through a consumer.
struct test_receive : posted_receive {
  test_receive(const message_key& of, std::uint64_t bytes, bool consuming = false) : memory(bytes) {
    key = of;
    size = bytes;
    if (consuming)
      consume = [](posted_receive& r, std::uint64_t offset, const std::byte* payload,
                   std::uint64_t count) noexcept {
        if (count != 0) std::memcpy(static_cast<test_receive&>(r).memory.data() + offset, payload, count);
      };
    else
      target = memory.data();
    completed = [](posted_receive& r) noexcept { ++static_cast<test_receive&>(r).ended; };
  }
  [[nodiscard]] bool right() const noexcept {
    for (std::uint64_t i = 0; i < memory.size(); ++i)
      if (memory[i] != byte_of(key.sequence, i)) return false;
    return true;
  }
  std::vector<std::byte> memory;
  int ended = 0;
};

}  // namespace chorale::testing
