#include <chorale/collective/simulated_wire.hpp>

#include <algorithm>
#include <cstring>

namespace chorale {
namespace {

/// A delivery in two parts is cut at half of the payload, at an element of any type.
std::uint64_t half(std::uint64_t size) noexcept { return size / 2 & ~std::uint64_t{63}; }

}  // namespace

// Sending.

bool simulated_wire::can_send() const noexcept {
  return out_.ending == simulated_ending::open && stalled_until_ <= net_.loop().now();
}

bool simulated_wire::has_slot() const noexcept {
  const std::uint64_t slots = net_.conditions().slots + (net_.conditions().slot_reused_early ? 1u : 0u);
  return out_.tail - out_.head < slots;
}

void simulated_wire::stall() noexcept {
  stalled_until_ = net_.after(1 + net_.random().below(6));
  net_.wake_at(stalled_until_, out_.from);
}

/// Takes the next slot; the payload is copied by the caller.
void simulated_wire::begin(outgoing& m) noexcept {
  if (out_.slots.empty()) out_.slots.resize(net_.conditions().slots);
  auto& slot = out_.at(out_.tail);
  slot.header = m.header;
  slot.size = 0;
  begun_by_ = &m;
  begun_bytes_ = 0;
  if (!carries_payload(m.header.kind)) return;
  std::uint64_t size = m.size - m.sent;
  if (m.header.kind == frame_kind::data) {
    size = std::min(size, frame_limit);
    if (size > frame_alignment && net_.random().one_in(net_.conditions().split_one_in))
      size = frame_alignment * (1 + net_.random().below(size / frame_alignment));
  }
  slot.header.size = slot.size = size;
  if (slot.payload.size() * sizeof(frame_header) < size)
    slot.payload.resize(padded(size) / sizeof(frame_header));
}

/// The frame is whole: it travels.
void simulated_wire::commit() noexcept {
  auto& slot = out_.at(out_.tail++);
  slot.whole = slot.first_part = std::max(out_.latest_arrival, net_.draw_arrival());
  const bool in_parts = slot.header.kind == frame_kind::data && half(slot.size) != 0 &&
                        !net_.conditions().slot_reused_early &&
                        net_.random().one_in(net_.conditions().split_one_in);
  if (in_parts) {
    slot.whole += static_cast<std::int64_t>(1 + net_.random().below(20)) * simulated_tick;
    net_.wake_at(slot.first_part, out_.to);
  }
  out_.latest_arrival = slot.whole;
  net_.wake_at(slot.whole, out_.to);
  begun_by_ = nullptr;
  net_.trace().note(net_.loop().now(), out_.from, simulated_event::sent, static_cast<std::uint64_t>(out_.to));
}

wire::pushed simulated_wire::push(outgoing& m) noexcept {
  if (!can_send()) return pushed::blocked;
  if (!begun_by_) {
    out_.refused = !has_slot();
    if (out_.refused) return pushed::blocked;
    if (net_.random().one_in(net_.conditions().stall_one_in)) return stall(), pushed::blocked;
    begin(m);
  }
  auto& slot = out_.at(out_.tail);
  const bool pauses = slot.size > begun_bytes_ && net_.random().one_in(net_.conditions().stall_one_in);
  const std::uint64_t until = pauses ? begun_bytes_ + (slot.size - begun_bytes_) / 2 : slot.size;
  if (until > begun_bytes_)
    std::memcpy(slot.bytes() + begun_bytes_, m.data + m.sent + begun_bytes_, until - begun_bytes_);
  begun_bytes_ = until;
  if (pauses) return stall(), pushed::blocked;
  m.sent += slot.size;
  commit();
  return m.sent == m.size || !carries_payload(m.header.kind) ? pushed::done : pushed::more;
}

void simulated_wire::abandon(outgoing& m) noexcept {
  if (begun_by_ != &m) return;
  // The frame's length is known to the peer already: the rest goes along while its memory is still there.
  auto& slot = out_.at(out_.tail);
  if (slot.size > begun_bytes_)
    std::memcpy(slot.bytes() + begun_bytes_, m.data + m.sent + begun_bytes_, slot.size - begun_bytes_);
  if (out_.ending == simulated_ending::open)
    commit();
  else
    begun_by_ = nullptr;
}

// Receiving.

/// Hands over the frame at the head, or the first part of it. False: it is not whole yet.
bool simulated_wire::deliver(frame_receiver& to) noexcept {
  auto& slot = in_.at(in_.head);
  const time_point now = net_.loop().now();
  if (!first_part_here_) {
    const bool in_parts = slot.first_part < slot.whole;
    // A frame that is here as a whole may be handed over in place; one that is not has to go somewhere.
    if (slot.header.kind == frame_kind::data && (in_parts || net_.random().one_in(2)))
      direct_ = to.direct_target(slot.header);
    first_part_here_ = true;
    if (direct_ && in_parts) std::memcpy(direct_, slot.bytes(), half(slot.size));
  }
  if (slot.whole > now) return false;
  if (direct_ && slot.size != 0) std::memcpy(direct_, slot.bytes(), slot.size);
  first_part_here_ = false;
  const std::byte* payload = std::exchange(direct_, nullptr) ? nullptr : slot.bytes();
  const auto from = static_cast<std::uint64_t>(in_.from);
  frame_header header = slot.header;
  const bool lost = net_.inspector() && !net_.inspector()(in_.from, in_.to, header);
  net_.trace().note(now, in_.to, lost ? simulated_event::swallowed : simulated_event::arrived, from);
  if (!lost) to.on_frame(header, payload);
  ++in_.head;
  if (in_.refused) net_.wake(in_.from);
  return true;
}

std::size_t simulated_wire::poll(frame_receiver& to, std::size_t budget) noexcept {
  if (told_end_ || (in_.head == in_.tail && in_.ends_at == never)) return 0;
  if (net_.dead(in_.to) || net_.computes(in_.to)) return 0;
  const time_point now = net_.loop().now();
  std::size_t moved = 0;
  while (moved < budget && in_.head != in_.tail && in_.at(in_.head).first_part <= now) {
    if (!deliver(to)) return moved;
    ++moved;
  }
  if (in_.head == in_.tail && in_.ends_at <= now) {
    told_end_ = true;
    net_.trace().note(now, in_.to, simulated_event::broken, static_cast<std::uint64_t>(in_.from));
    to.on_broken(error{errc::link_lost, "the peer closed the connection"});
    ++moved;
  }
  return moved;
}

void simulated_wire::forget_target(const std::byte* begin, const std::byte* end) noexcept {
  if (direct_ && direct_ >= begin && direct_ < end)
    direct_ = nullptr;  // the frame is judged when it is whole
}

bool simulated_wire::arm(bool wants_room) noexcept {
  // The moments when frames arrive, stalls end and ranks stop computing are known to the network's alarm.
  const time_point now = net_.loop().now();
  if (!told_end_ && !net_.dead(in_.to) && !net_.computes(in_.to)) {
    if (in_.head != in_.tail && in_.at(in_.head).whole <= now) return false;
    if (in_.head == in_.tail && in_.ends_at <= now) return false;
  }
  return !wants_room || net_.dead(out_.from) || !can_send() || (!begun_by_ && !has_slot());
}

}  // namespace chorale
