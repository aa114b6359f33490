// What an operation calls when it has ended. Light, so that public headers can derive from it.
#pragma once

namespace chorale {

/// Called once, on the engine's thread, inside its loop. Must not run user code.
struct completion_observer {
  using function = void (*)(completion_observer&) noexcept;
  explicit completion_observer(function on_end) noexcept : ended{on_end} {}
  function ended;
};

}  // namespace chorale
