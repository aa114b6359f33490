// The seam under a pair of ranks: something that carries frames in order, without losing or inventing any.
//
// One conformance suite holds for every wire: shared memory, tcp, the simulated one. A wire belongs to its
// engine's thread. It never blocks, never resumes a coroutine and copies user memory only inside `push` and
// `poll`, so that memory is free as soon as the pair lets go of it, without waiting for a peer.
#pragma once

#include <chorale/async/error.hpp>
#include <chorale/transport/frame.hpp>

#include <cstddef>
#include <cstdint>

namespace chorale {

/// A message on its way out. Storage is the sender's and stays put until `handed_over` was called or the
/// message was abandoned.
struct outgoing {
  frame_header header;
  const std::byte* data = nullptr;
  std::uint64_t size = 0;  ///< payload bytes in all
  std::uint64_t sent = 0;  ///< of them, handed to the wire
  /// All bytes have left the sender's memory. Called inside `pair::progress` or `pair::send`. May be null.
  void (*handed_over)(outgoing&) noexcept = nullptr;

  enum class place : std::uint8_t { idle, control, bulk, waiting };
  place where = place::idle;  ///< which list of the pair holds it
  outgoing* previous = nullptr;
  outgoing* next = nullptr;
};

/// What a wire does with what arrives.
class frame_receiver {
 public:
  /// Where the payload of this `data` frame may be written straight away, all `size` bytes; null: hand it
  /// over.
  virtual std::byte* direct_target(const frame_header& header) noexcept = 0;
  /// A whole frame. `payload` is 64-byte aligned, valid during the call, and null when it went to
  /// `direct_target`.
  virtual void on_frame(const frame_header& header, const std::byte* payload) noexcept = 0;
  virtual void on_tiny(const tiny_line& line) noexcept = 0;
  /// Nothing will come any more and nothing can be sent. Called once.
  virtual void on_broken(error why) noexcept = 0;

 protected:
  ~frame_receiver() = default;
};

class wire {
 public:
  enum class pushed {
    done,     ///< all of the message is handed over
    more,     ///< at a frame boundary: another message may go first
    blocked,  ///< no room; if `in_frame`, this same message must be pushed next
  };
  virtual ~wire() = default;

  /// Hands over the next frame or frames of `m` and advances `m.sent`.
  virtual pushed push(outgoing& m) noexcept = 0;
  /// True between the first and the last byte of a frame.
  [[nodiscard]] virtual bool in_frame() const noexcept = 0;
  /// `m` is withdrawn: its memory is not read after this call. The rest of a begun frame is sent from memory
  /// of the wire's own.
  virtual void abandon(outgoing& m) noexcept = 0;
  /// One line at once, or false: then it goes as a frame. Only shared memory has lines.
  virtual bool push_tiny(const tiny_line&) noexcept { return false; }

  /// Nothing has arrived since `arm`, and the backend will say when something does: `poll` may be left out.
  [[nodiscard]] virtual bool quiet() const noexcept { return false; }

  /// Delivers up to `budget` frames; returns how many things moved.
  virtual std::size_t poll(frame_receiver& to, std::size_t budget) noexcept = 0;
  /// A direct target is withdrawn: nothing is written to [begin, end) after this call.
  virtual void forget_target(const std::byte* begin, const std::byte* end) noexcept = 0;

  /// Before `arm`, for who arms several: true if a `heavy_fence` has to come between, one for all of them.
  virtual bool announce_sleep(bool wants_room) noexcept {
    static_cast<void>(wants_room);
    return false;
  }
  /// That fence was refused: from now on the peer has to fence by itself. Whoever hears of it must not sleep
  /// before it has gone round its loop once more, by when the peer does.
  virtual void fence_refused() noexcept {}
  /// Before the engine sleeps: from now on its doorbell rings, or its backend completes a request, when
  /// something arrives or, if `wants_room`, when there is room again. Returns false when that is so already.
  virtual bool arm(bool wants_room) noexcept = 0;
  virtual void disarm() noexcept = 0;
  [[nodiscard]] virtual const char* name() const noexcept = 0;
};

}  // namespace chorale
