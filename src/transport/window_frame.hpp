// One-sided access between ranks that share no memory: what a frame of kind `window` says.
//
// Between two ranks, the operations of one on the other's part of a window are numbered from 1 and travel in
// that order, each in frames of at most `window_frame_limit`; the engine of the owner applies them as they
// come. It answers `applied` with the latest number that is wholly in its memory, and a `get` with the bytes.
// The header's lane names the window, its ticket is the number; the signature's fields carry the rest.
#pragma once

#include <chorale/transport/frame.hpp>

namespace chorale {

enum class window_verb : std::uint8_t {
  put = 1,         ///< payload to `offset`
  accumulate = 2,  ///< payload, elements of `type`, combined into `offset` by `op`
  get = 3,         ///< asks for `amount` bytes from `offset`
  signal = 4,      ///< adds `amount` to the counter `slot`
  applied = 5,     ///< answer: everything up to this number is done
  got = 6,         ///< answer to the get of this number: its bytes from `offset` on, counted within the get
};

/// Gets that one rank may have asked of another in one window and not got yet.
inline constexpr std::uint32_t most_gets = 16;

struct window_words {
  window_verb verb = window_verb::put;
  bool last = false;  ///< of the operation's frames
  std::uint8_t type = 0;
  std::uint8_t op = 0;
  std::uint32_t slot = 0;
  std::uint64_t number = 0;
  std::uint64_t offset = 0;
  std::uint64_t amount = 0;
};

inline void write_words(const window_words& w, frame_header& into) noexcept {
  into.kind = frame_kind::window;
  into.ticket = w.number;
  into.call.kind = static_cast<std::uint8_t>(w.verb);
  into.call.dtype = w.type;
  into.call.op = w.op;
  into.call.flags = w.last ? 1 : 0;
  into.call.root = w.slot;
  into.call.count = w.amount;
  into.call.hash = w.offset;
}

[[nodiscard]] inline window_words words_of(const frame_header& header) noexcept {
  window_words w;
  w.verb = static_cast<window_verb>(header.call.kind);
  w.last = (header.call.flags & 1) != 0;
  w.type = header.call.dtype;
  w.op = header.call.op;
  w.slot = header.call.root;
  w.number = header.ticket;
  w.offset = header.call.hash;
  w.amount = header.call.count;
  return w;
}

}  // namespace chorale
