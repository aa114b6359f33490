// Who is connected to whom in the graph of guards, and which way a question travels.
//
// The graph joins rank r with r ± 2^k (mod size): logarithmic degree, logarithmic diameter, and no single
// rank whose loss parts it. An edge between host-mates is a mailbox in their shared segment; every other edge
// is a control link, a socket that the bootstrap opens. Pure functions, any thread.
#pragma once

#include <chorale/async/error.hpp>

#include <vector>

namespace chorale {

/// The ranks that `self` shares an edge with: sorted, distinct, without `self`. The bootstrap opens a control
/// link to each of them that is no host-mate. Symmetric: a is in the set of b exactly if b is in that of a.
[[nodiscard]] std::vector<rank_t> control_neighbours(rank_t self, rank_t size);

/// The next rank on a way from `self` to `target`. Repeated hops reach `target` in at most ⌈log2 size⌉ steps
/// for every `attempt`; different attempts try different ranks in between, so that one stopped rank on the
/// way does not make those behind it look stopped. Precondition: self != target.
[[nodiscard]] rank_t next_hop(rank_t self, rank_t target, rank_t size, unsigned attempt);

}  // namespace chorale
