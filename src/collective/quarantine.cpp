#include <chorale/collective/quarantine.hpp>

#include <algorithm>
#include <utility>

namespace chorale {
namespace {

constexpr duration first_pause = std::chrono::milliseconds{20};
constexpr duration longest_pause = std::chrono::seconds{10};

}  // namespace

void quarantine::add(std::shared_ptr<epoch> former, std::vector<rank_t> left_behind) {
  if (!former || !former->inside) return;  // never went into service: nobody knows its memory
  kept_.push_back({std::move(former), std::move(left_behind)});
  pause_ = first_pause;
  loop_.disarm(next_look_);
  release();
}

void quarantine::release() noexcept {
  std::erase_if(kept_, [](const entry& e) {
    const core& inside = *e.former->inside;
    return inside.unused() && std::ranges::all_of(e.left_behind, [&](rank_t r) { return inside.gone(r); });
  });
  if (kept_.empty()) return;
  loop_.arm(next_look_, loop_.now() + pause_);
  pause_ = std::min(2 * pause_, longest_pause);
}

void quarantine::look::fired(operation& op) noexcept { static_cast<look&>(op).self.release(); }

}  // namespace chorale
