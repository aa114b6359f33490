// One server's part of the parameters and the rules by which pushes change it. No communication.
//
// A version collects gradients. Once `close_at` workers have contributed it closes: the parameters move by
// the mean, and the next version begins. A push is told by worker and number: one that is sent again is
// applied once. A worker sends the next number only when the last was answered. A push for a closed version
// is late. A worker that joins again begins a new session, and what its former self may still have on the way
// is dropped, so that a number never stands for two gradients.
#pragma once

#include "protocol.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace parameter_server {

struct rules {
  std::size_t close_at = 2;      ///< contributions that close a version
  std::uint64_t versions = 600;  ///< the training is over then
  float rate = 0.05F;
  float momentum = 0.9F;
};

class shard {
 public:
  using snapshot = std::shared_ptr<const std::vector<float>>;

  shard(std::span<const float> initial, rules by);

  /// A worker's new session, and its last number.
  [[nodiscard]] joined join(std::uint32_t worker);
  /// Precondition: the gradient is as long as the parameters.
  [[nodiscard]] pushed push(const pushing& what, std::span<const float> gradient);

  [[nodiscard]] std::uint64_t version() const noexcept { return version_; }
  [[nodiscard]] bool over() const noexcept { return version_ >= rules_.versions; }
  [[nodiscard]] const rules& by() const noexcept { return rules_; }
  /// The parameters of the current version; they stay as they are while somebody holds them.
  [[nodiscard]] const snapshot& parameters() const noexcept { return parameters_; }
  [[nodiscard]] std::vector<worker_record> records() const;

  struct entry {
    std::uint32_t worker;
    std::uint64_t number;
    std::uint64_t version;
  };
  /// Every push that was applied, in order.
  [[nodiscard]] const std::vector<entry>& ledger() const noexcept { return ledger_; }

 private:
  struct member {
    std::uint64_t last_number = 0;
    bool contributed = false;  // to the current version
    worker_record record;
  };
  void close_version();

  rules rules_;
  snapshot parameters_;
  std::vector<float> sum_;  // of the current version's gradients
  std::vector<float> velocity_;
  std::size_t contributions_ = 0;
  std::uint64_t version_ = 0;
  std::map<std::uint32_t, member> members_;
  std::vector<entry> ledger_;
};

}  // namespace parameter_server
