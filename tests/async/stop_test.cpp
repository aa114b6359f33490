#include <chorale/async/stop.hpp>

#include <boost/test/unit_test.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace {

using namespace chorale;

struct watcher : stop_callback {
  explicit watcher(std::function<void()> what = {}) : stop_callback{called}, then{std::move(what)} {}
  int calls = 0;
  std::function<void()> then;
  static void called(stop_callback& c) noexcept {
    auto& self = static_cast<watcher&>(c);
    ++self.calls;
    if (self.then) self.then();
  }
};

BOOST_AUTO_TEST_SUITE(stop_requests)

BOOST_AUTO_TEST_CASE(each_callback_is_called_once_with_the_first_reason) {
  stop_source source;
  watcher a;
  watcher b;
  BOOST_TEST(a.add_to(&source));
  BOOST_TEST(b.add_to(&source));
  BOOST_TEST(!source.stop_requested());
  source.request_stop(errc::timed_out);
  source.request_stop(errc::cancelled);
  BOOST_TEST((source.reason() == errc::timed_out));
  BOOST_TEST(a.calls == 1);
  BOOST_TEST(b.calls == 1);
}

BOOST_AUTO_TEST_CASE(adding_to_a_stopped_source_is_refused) {
  stop_source source;
  source.request_stop();
  watcher late;
  BOOST_TEST(!late.add_to(&source));
  BOOST_TEST(late.calls == 0);
}

BOOST_AUTO_TEST_CASE(no_source_is_one_that_never_stops) {
  watcher w;
  BOOST_TEST(w.add_to(nullptr));
  w.remove();
}

BOOST_AUTO_TEST_CASE(a_removed_or_destroyed_callback_is_not_called) {
  stop_source source;
  watcher first;
  watcher removed;
  watcher last;
  {
    watcher destroyed;
    for (watcher* w : {&first, &destroyed, &removed, &last}) BOOST_TEST(w->add_to(&source));
    removed.remove();
    removed.remove();
  }
  source.request_stop();
  BOOST_TEST(first.calls == 1);
  BOOST_TEST(removed.calls == 0);
  BOOST_TEST(last.calls == 1);
}

BOOST_AUTO_TEST_CASE(a_callback_may_remove_or_destroy_any_other) {
  stop_source source;
  std::vector<std::unique_ptr<watcher>> all;
  for (int i = 0; i < 3; ++i) {
    // Whichever runs first destroys the two others.
    all.push_back(std::make_unique<watcher>());
    BOOST_TEST(all.back()->add_to(&source));
  }
  int called = 0;
  for (auto& mine : all)
    mine->then = [&called, &all, self = mine.get()] {
      ++called;
      for (auto& other : all)
        if (other.get() != self) other.reset();
    };
  source.request_stop();
  BOOST_TEST(called == 1);
}

BOOST_AUTO_TEST_CASE(a_child_stops_with_its_parents_reason_and_not_the_other_way) {
  stop_source parent;
  stop_source child{&parent};
  stop_source grandchild{&child};
  watcher w;
  BOOST_TEST(w.add_to(&grandchild));
  {
    stop_source sibling{&parent};
    sibling.request_stop();
  }
  BOOST_TEST(!parent.stop_requested());
  parent.request_stop(errc::peer_lost);
  BOOST_TEST((grandchild.reason() == errc::peer_lost));
  BOOST_TEST(w.calls == 1);
}

BOOST_AUTO_TEST_CASE(a_child_of_a_stopped_parent_is_born_stopped) {
  stop_source parent;
  parent.request_stop(errc::timed_out);
  const stop_source child{&parent};
  BOOST_TEST((child.reason() == errc::timed_out));
}

BOOST_AUTO_TEST_CASE(a_child_that_ends_first_leaves_its_parent_alone) {
  stop_source parent;
  std::optional<stop_source> child;
  child.emplace(&parent);
  child.reset();
  parent.request_stop();
  BOOST_TEST(parent.stop_requested());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
