// What a lane knows of messages: how many of each numbered kind, and which have come for a receive that is
// not called yet. Made with the first message of the lane. Their bytes are in the pairs (`pair::early`),
// within the budget that senders hold.
#pragma once

#include <chorale/async/error.hpp>
#include <chorale/transport/signature.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace chorale {

struct message_box {
  struct arrival {
    rank_t from = no_rank;  ///< in the epoch
    std::uint64_t number = 0;
    signature call;
  };
  struct sending {
    rank_t to = no_rank;
    std::uint64_t number = 0;
  };

  explicit message_box(rank_t ranks) : sent(static_cast<std::size_t>(ranks)), claimed(sent.size()) {}

  std::vector<std::uint64_t> sent;     ///< by rank of the epoch: sends without a tag that were called
  std::vector<std::uint64_t> claimed;  ///< by rank of the epoch: messages without a tag that have a receive
  std::uint64_t tagged = 0;            ///< sends with a tag that were started
  std::uint64_t called = 0;            ///< calls without a number of their own, for texts
  std::vector<sending> unstarted;      ///< sends without a tag whose tickets are held
  std::deque<arrival> waiting;         ///< in the order in which they came
};

}  // namespace chorale
