// Stop requests within one engine's thread: a source, and callbacks registered on it.
//
// A stop request is not a completion: it asks an operation to end early; the operation still completes once,
// with the request's reason or with a success that came first. Sources form a tree that mirrors the await
// chain: a source constructed on a parent is stopped when the parent is. Nothing here is atomic or allocates;
// other threads post to the engine first. A source must outlive its callbacks; a callback deregisters in its
// destructor.
#pragma once

#include <chorale/async/error.hpp>

namespace chorale {

class stop_source;

/// A node called at most once, on the engine's thread, when the source is stopped, or at registration if it
/// already is.
class stop_callback {
 public:
  using function = void (*)(stop_callback&) noexcept;
  explicit stop_callback(function called) noexcept : called_{called} {}
  stop_callback(const stop_callback&) = delete;
  stop_callback& operator=(const stop_callback&) = delete;
  ~stop_callback() { remove(); }

  /// `source` may be null: nothing is registered then. Returns false when the source was stopped already; the
  /// callback is then neither registered nor called.
  inline bool add_to(stop_source* source) noexcept;
  inline void remove() noexcept;

 private:
  friend class stop_source;
  function called_;
  stop_source* source_ = nullptr;
  stop_callback* previous_ = nullptr;
  stop_callback* next_ = nullptr;
};

class stop_source {
 public:
  stop_source() noexcept : forward_{forward} {}
  /// A child: stopped, with the same reason, when `parent` is. `parent` may be null.
  explicit stop_source(stop_source* parent) noexcept : stop_source{} { link(parent); }
  stop_source(const stop_source&) = delete;
  stop_source& operator=(const stop_source&) = delete;

  void link(stop_source* parent) noexcept {
    parent_ = parent;
    if (parent && !forward_.callback.add_to(parent)) request_stop(parent->reason_);
  }

  [[nodiscard]] bool stop_requested() const noexcept { return reason_ != errc::ok; }
  /// Why: cancelled, timed_out, or the failure of a sibling. errc::ok while not stopped.
  [[nodiscard]] errc reason() const noexcept { return reason_; }

  /// Calls every callback before it returns. Later requests change nothing.
  void request_stop(errc reason = errc::cancelled) noexcept {
    if (stop_requested()) return;
    reason_ = reason;
    while (callbacks_) {
      stop_callback& callback = *callbacks_;
      callback.remove();
      callback.called_(callback);
    }
  }

 private:
  friend class stop_callback;
  struct forwarder {
    explicit forwarder(stop_callback::function f) noexcept : callback{f} {}
    stop_callback callback;
  };
  static void forward(stop_callback& callback) noexcept {
    auto* self = reinterpret_cast<stop_source*>(&callback);
    self->request_stop(self->parent_->reason_);
  }

  // First member, so that `forward` finds its source without another pointer (standard layout, checked
  // below).
  forwarder forward_;
  stop_source* parent_ = nullptr;
  errc reason_ = errc::ok;
  stop_callback* callbacks_ = nullptr;
};
static_assert(std::is_standard_layout_v<stop_source>);

bool stop_callback::add_to(stop_source* source) noexcept {
  if (!source) return true;
  if (source->stop_requested()) return false;
  source_ = source;
  previous_ = nullptr;
  next_ = source->callbacks_;
  if (next_) next_->previous_ = this;
  source->callbacks_ = this;
  return true;
}

void stop_callback::remove() noexcept {
  if (!source_) return;
  if (previous_)
    previous_->next_ = next_;
  else
    source_->callbacks_ = next_;
  if (next_) next_->previous_ = previous_;
  source_ = nullptr;
}

}  // namespace chorale
