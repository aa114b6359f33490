// Windows of the epoch, as the core sees them: who gets which frame, and what ends them.
#include <chorale/collective/core.hpp>
#include <chorale/collective/window_side.hpp>

#include <algorithm>

namespace chorale {

void core::add_window(window_side& window) {
  windows_.push_back(&window);
  window.lane().window = &window;
}

void core::remove_window(window_side& window) noexcept {
  std::erase(windows_, &window);
  window.lane().window = nullptr;
}

/// A window that was closed, or dropped here, gets no frames any more: who sent them learns of it otherwise.
void core::window_frame(rank_t from, const frame_header& header, const std::byte* payload) noexcept {
  if (cause_) return;
  const auto known = lanes_.find(header.lane);
  if (known == lanes_.end() || !known->second->window) return;
  known->second->window->frame(from, header, payload);
}

void core::end_windows(const error& why) noexcept {
  for (window_side* window : windows_) window->end(as_seen_by(*window->lane().among, why));
}

/// `only`: the communicator that it left, if not the epoch.
void core::windows_go_without(rank_t in_epoch, const group* only) noexcept {
  for (window_side* window : windows_) {
    const group& among = *window->lane().among;
    const rank_t member = among.member(in_epoch);
    if (member != no_rank && (!only || only == &among)) window->member_left(member);
  }
}

void core::report_slow_windows() noexcept {
  for (window_side* window : windows_) window->report(loop_.now());
}

std::size_t core::poll_windows() noexcept {
  std::size_t ended = 0;
  for (window_side* window : windows_) ended += window->poll();
  return ended;
}

bool core::windows_have_news() const noexcept {
  return std::ranges::any_of(windows_, [](const window_side* window) { return window->has_news(); });
}

}  // namespace chorale
