// From environment variables to a world: `auto w = co_await bootstrap(config);`
//
// Rank 0 of a job without `chorale run` starts the rendezvous in a thread of its own; every rank joins it,
// gets the table and connects with its peers. Ends by `config.timeout` (two seconds later at most, when the
// rendezvous has the last word) with an error that names what was waited for. A stop request ends it with
// errc::cancelled.
#pragma once

#include <chorale/transport/bootstrap/config.hpp>
#include <chorale/transport/bootstrap/world.hpp>

#include <vector>

namespace chorale {

[[nodiscard]] task<result<world>> bootstrap(bootstrap_config config);

/// The next epoch, among those who ask for it. `old` is consumed: its sockets close, its rendezvous goes on.
/// Every survivor calls it; `believed_dead` are ranks of `old` and only advice: who asks is alive.
/// errc::excluded when the others went on without this rank, errc::no_decider when the rendezvous is gone.
/// When a rank ends while the new epoch is being connected the next one is asked for at once, so epochs may
/// be skipped.
[[nodiscard]] task<result<world>> reset_world(world old, std::vector<rank_t> believed_dead);

}  // namespace chorale
