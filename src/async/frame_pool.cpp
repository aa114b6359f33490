#include <chorale/async/frame_pool.hpp>

#include <array>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace chorale {
namespace {

constexpr std::size_t class_width = 64;
constexpr std::size_t classes = largest_pooled_frame / class_width;

struct free_frame_node {
  free_frame_node* next;
};

// Trivially destructible on purpose: frames may still be freed by other thread-locals' destructors after
// `reaper`.
struct pool {
  std::array<free_frame_node*, classes> lists;
  std::uint64_t heap_allocations;
  bool ended;
};
constinit thread_local pool local{};

struct reaper {
  ~reaper() {
    local.ended = true;
    for (auto& list : local.lists)
      while (list) ::operator delete(std::exchange(list, list->next));
  }
};

std::size_t class_of(std::size_t size) noexcept { return (size + class_width - 1) / class_width - 1; }

void* allocate_from_heap(std::size_t size) {
  thread_local reaper at_thread_exit;
  static_cast<void>(at_thread_exit);
  ++local.heap_allocations;
  return ::operator new(size);
}

}  // namespace

void* allocate_frame(std::size_t size) {
  if (size > largest_pooled_frame) return allocate_from_heap(size);
  const auto index = class_of(size);
  auto& list = local.lists[index];
  if (auto* frame = list) {
    list = frame->next;
    return frame;
  }
  return allocate_from_heap((index + 1) * class_width);
}

void free_frame(void* frame, std::size_t size) noexcept {
  if (size > largest_pooled_frame || local.ended) return ::operator delete(frame);
  auto& list = local.lists[class_of(size)];
  list = ::new (frame) free_frame_node{list};
}

void abandon_frame(void* frame) {
  static std::mutex guard;
  static auto& abandoned = *new std::vector<void*>;
  const std::lock_guard lock{guard};
  abandoned.push_back(frame);
}

std::uint64_t frame_heap_allocations() noexcept { return local.heap_allocations; }

}  // namespace chorale
