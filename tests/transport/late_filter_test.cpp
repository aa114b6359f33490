// A filter that refuses membarrier while wires already rely on it, as sandboxes install them after a start.
#include "forbidden_calls.hpp"
#include "wire_rig.hpp"
#include <chorale/transport/asymmetric_fence.hpp>

#include <boost/test/unit_test.hpp>
#include <sys/wait.h>

namespace chorale {
namespace {

constexpr int nothing_to_refuse = 77;

/// What went wrong, 0: nothing.
int lose_the_fence() {
  testing::wire_ends ends{testing::medium::shm};
  shm_owner_line& own = ends.memory->a.owner();
  ends.memory->a.fence_for_mates();
  if (own.heavy_fence != 1) return nothing_to_refuse;
  if (!ends.a->arm(false) || own.heavy_fence != 1) return 1;
  ends.a->disarm();

  testing::forbid_calls({"membarrier"});
  if (ends.a->arm(false)) return 2;  // not before its peer fences by itself
  if (own.heavy_fence != 0 || heavy_fences_work()) return 3;
  ends.a->disarm();
  if (!ends.a->arm(false) || own.asleep != 1) return 4;
  testing::test_message message{1, frame_kind::eager, 100};
  if (ends.b->push(message.out) != wire::pushed::done || own.asleep != 0) return 5;  // rung
  ends.a->disarm();
  testing::recorder came;
  ends.a->poll(came, 8);
  if (came.frames.size() != 1) return 6;
  ends.memory->a.fence_for_mates();  // of a later epoch
  return own.heavy_fence == 0 ? 0 : 7;
}

BOOST_AUTO_TEST_SUITE(late_filters)

BOOST_AUTO_TEST_CASE(a_fence_that_is_refused_later_is_taken_back) {
  // A process of its own: filters stay.
  const pid_t child = ::fork();
  if (child == 0) ::_exit(lose_the_fence());
  BOOST_REQUIRE(child > 0);
  int status = -1;
  BOOST_REQUIRE_EQUAL(::waitpid(child, &status, 0), child);
  BOOST_REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == nothing_to_refuse)
    BOOST_TEST_MESSAGE("skipped: membarrier is refused here from the start");
  else
    BOOST_TEST(WEXITSTATUS(status) == 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace chorale
