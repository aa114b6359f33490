// What others do to this rank's part, by frames. Nothing in a frame is trusted.
#include <chorale/collective/window_side.hpp>
#include <chorale/kernels/host_accumulate.hpp>

#include <algorithm>
#include <cstring>

namespace chorale {

void window_side::frame(rank_t from, const frame_header& header, const std::byte* payload) noexcept {
  if (ended_) return;
  const rank_t member = among_.member(from);
  if (member == no_rank || left_[static_cast<std::size_t>(member)]) return;
  // Ways may differ: this rank may reach the other's part itself, and the other not this one's.
  auto& l = links_[static_cast<std::size_t>(member)];
  if (!l) l = std::make_unique<link>(*this, member);
  const window_words w = words_of(header);
  if (w.verb == window_verb::applied) return on_applied(*l, w);
  if (w.verb == window_verb::got) return on_got(*l, w, payload, header.size);
  if (const char* fault = apply(*l, w, payload, header.size)) return violated(*l, fault);
  if (w.verb == window_verb::get) return serve(*l);
  tell_applied(*l);
}

bool window_side::inside_own_part(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  const std::uint64_t whole = part(rank_).bytes;
  return offset <= whole && bytes <= whole - offset;
}

/// What is wrong with the frame, or null.
const char* window_side::apply(link& l, const window_words& w, const std::byte* payload,
                               std::uint64_t bytes) noexcept {
  const window_part& own = part(rank_);
  if (w.number < l.begun || w.number <= l.applied) return "operations on a window come out of order";
  l.begun = w.number;
  const bool whole = w.verb == window_verb::get || w.verb == window_verb::signal;
  if (whole && !w.last) return "an operation of one frame does not end with it";
  switch (w.verb) {
    case window_verb::put:
      if (!inside_own_part(w.offset, bytes)) return "a put reaches beyond the window";
      if (bytes != 0) std::memcpy(own.memory + w.offset, payload, bytes);
      break;
    case window_verb::accumulate: {
      const std::size_t element = size_of(static_cast<dtype>(w.type));
      const auto combine = find_host_reduction(static_cast<dtype>(w.type), static_cast<reduction>(w.op));
      if (!combine || bytes % element != 0 || w.offset % element != 0)
        return "an accumulate names what can not be combined";
      if (!inside_own_part(w.offset, bytes)) return "an accumulate reaches beyond the window";
      accumulate_atomically(own.memory + w.offset, payload, bytes / element, element, *combine);
      break;
    }
    case window_verb::get:
      if (!inside_own_part(w.offset, w.amount)) return "a get reaches beyond the window";
      if (l.ask_count == most_gets) return "more gets are under way than a rank may ask for";
      l.asks[(l.first_ask + l.ask_count++) % most_gets] = {w.number, w.offset, w.amount, 0};
      break;
    case window_verb::signal:
      if (w.slot >= own.signals) return "a signal names a counter that is not there";
      own.counters[w.slot].value.fetch_add(w.amount, std::memory_order_release);
      break;
    default:
      return "a frame of a window says nothing known";
  }
  if (w.last) l.applied = w.number;
  return nullptr;
}

/// One answer stands for all that were done before it goes out.
void window_side::tell_applied(link& l) noexcept {
  if (l.told == l.applied || l.reply.where != outgoing::place::idle) return;
  l.told = l.applied;
  window_words words;
  words.verb = window_verb::applied;
  words.last = true;
  words.number = l.told;
  write_words(words, l.reply.header);
  link_to(l.member).send_frame(l.reply);
}

/// Sends the next bytes of the first get that was asked for.
void window_side::serve(link& l) noexcept {
  if (l.got.where != outgoing::place::idle) return;
  if (l.ask_count != 0 && l.asks[l.first_ask].number == l.got.header.ticket) {
    asked& before = l.asks[l.first_ask];
    before.given += l.got.size;
    if (before.given == before.bytes) {
      l.first_ask = (l.first_ask + 1) % most_gets;
      --l.ask_count;
    }
  }
  if (l.ask_count == 0) return;
  const asked& now = l.asks[l.first_ask];
  window_words words;
  words.verb = window_verb::got;
  words.number = now.number;
  words.offset = now.given;
  l.got.data = part(rank_).memory + now.offset + now.given;
  l.got.size = std::min(now.bytes - now.given, window_frame_limit);
  words.last = now.given + l.got.size == now.bytes;
  write_words(words, l.got.header);
  link_to(l.member).send_frame(l.got);
}

}  // namespace chorale
