#include <chorale/async/frame_pool.hpp>

#include <mutex>
#include <utility>
#include <vector>

namespace chorale {
namespace detail {

constinit thread_local frame_lists local_frames{};

namespace {
struct reaper {
  ~reaper() {
    local_frames.ended = true;
    for (auto& head : local_frames.heads)
      while (head) ::operator delete(std::exchange(head, head->next));
  }
};
}  // namespace

void* allocate_frame_from_heap(std::size_t size) {
  thread_local reaper at_thread_exit;
  static_cast<void>(at_thread_exit);
  ++local_frames.heap_allocations;
  return ::operator new(size);
}

}  // namespace detail

void abandon_frame(void* frame) {
  static std::mutex guard;
  static auto& abandoned = *new std::vector<void*>;
  const std::lock_guard lock{guard};
  abandoned.push_back(frame);
}

}  // namespace chorale
