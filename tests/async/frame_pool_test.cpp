#include "allocation_counter.hpp"
#include "task_elsewhere.hpp"
#include <chorale/async/engine.hpp>
#include <chorale/async/frame_pool.hpp>
#include <chorale/async/virtual_backend.hpp>

#include <boost/test/unit_test.hpp>

#include <cstring>
#include <thread>
#include <vector>

namespace {

using namespace chorale;
using namespace chorale::testing;

BOOST_AUTO_TEST_SUITE(frames)

BOOST_AUTO_TEST_CASE(a_freed_frame_is_used_again) {
  void* first = allocate_frame(200);
  free_frame(first, 200);
  const auto before = frame_heap_allocations();
  void* second = allocate_frame(250);  // the same class of 64-byte lines
  BOOST_TEST(second == first);
  BOOST_TEST(frame_heap_allocations() == before);
  free_frame(second, 250);
}

BOOST_AUTO_TEST_CASE(every_size_is_wholly_usable) {
  for (const std::size_t size : {1U, 63U, 64U, 65U, 4095U, 4096U, 4097U, 100'000U}) {
    void* frame = allocate_frame(size);
    std::memset(frame, 0x5a, size);
    free_frame(frame, size);
  }
}

BOOST_AUTO_TEST_CASE(a_large_frame_goes_back_to_the_allocator) {
  const auto before = frame_heap_allocations();
  for (int i = 0; i < 3; ++i) free_frame(allocate_frame(largest_pooled_frame + 1), largest_pooled_frame + 1);
  BOOST_TEST(frame_heap_allocations() == before + 3);
}

BOOST_AUTO_TEST_CASE(frames_are_freed_on_another_thread) {
  std::vector<void*> frames;
  for (int i = 0; i < 100; ++i) frames.push_back(allocate_frame(128));
  std::thread other{[&] {
    for (void* frame : frames) free_frame(frame, 128);
    const auto before = frame_heap_allocations();
    for (void*& frame : frames) frame = allocate_frame(128);
    if (frame_heap_allocations() != before) std::abort();
  }};
  other.join();
  // The other thread is gone; what it allocated is still ours to free.
  for (void* frame : frames) free_frame(frame, 128);
}

struct frees_at_thread_exit {
  void* frame = nullptr;
  ~frees_at_thread_exit() {
    if (frame) free_frame(frame, 128);
  }
};

BOOST_AUTO_TEST_CASE(a_frame_may_be_freed_by_a_thread_locals_destructor) {
  std::thread other{[] {
    static thread_local frees_at_thread_exit late;  // constructed before the pool is used: destroyed after it
    late.frame = nullptr;
    late.frame = allocate_frame(128);
  }};
  other.join();
}

task<int> steady(int rounds) {
  int sum = 0;
  for (int i = 0; i < rounds; ++i) {
    const int one = co_await one_elsewhere();
    sum += one;
  }
  co_return sum;
}

BOOST_AUTO_TEST_CASE(steady_state_takes_nothing_from_the_heap) {
  engine loop{std::make_unique<virtual_backend>()};
  loop.run(steady(100));
  const auto heap_before = heap_allocations();
  const auto frames_before = frame_heap_allocations();
  const int sum = loop.run(steady(100'000));
  BOOST_TEST(frame_heap_allocations() == frames_before);
  BOOST_TEST(heap_allocations() == heap_before);
  BOOST_TEST(sum == 100'000);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
