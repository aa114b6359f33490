#include <chorale/transport/guard/guard_segment.hpp>

#include <string>

namespace chorale {
namespace {

constexpr std::uint64_t segment_magic = 0x64726175676c6863;  // "chlguard" in memory
constexpr std::uint32_t segment_version = 1;
constexpr std::size_t line = 64;

constexpr std::size_t robust_row(std::size_t slots) {
  return (slots * sizeof(robust_node) + line - 1) / line * line;
}

struct offsets {
  std::size_t members, bells, revokes, robust, mail, end;
  explicit constexpr offsets(std::size_t slots)
      : members{sizeof(segment_header)},
        bells{members + slots * sizeof(member_line)},
        revokes{bells + slots * sizeof(bell_line)},
        robust{revokes + slots * sizeof(revoke_line)},
        mail{robust + slots * robust_row(slots)},
        end{mail + slots * slots * sizeof(mailbox)} {}
};

}  // namespace

std::size_t guard_segment::bytes(std::uint32_t slots) noexcept { return offsets{slots}.end; }

guard_segment guard_segment::initialise(void* memory, std::uint32_t slots, std::uint64_t epoch,
                                        std::uint64_t nonce) noexcept {
  guard_segment segment{memory, slots};
  auto& head = segment.header();
  head.version = segment_version;
  head.slots = slots;
  head.epoch = epoch;
  head.nonce = nonce;
  head.magic = segment_magic;
  return segment;
}

result<guard_segment> guard_segment::open(void* memory, std::uint32_t slots, std::uint64_t epoch,
                                          std::uint64_t nonce) {
  guard_segment segment{memory, slots};
  const auto& head = segment.header();
  auto refuse = [](std::string what) { return error{errc::protocol_error, "guard segment: " + what}; };
  if (head.magic != segment_magic) return refuse("the memory was never initialised");
  if (head.version != segment_version)
    return refuse("version " + std::to_string(head.version) + ", this library speaks " +
                  std::to_string(segment_version));
  if (head.slots != slots)
    return refuse("made for " + std::to_string(head.slots) + " host-mates, not " + std::to_string(slots));
  if (head.epoch != epoch || head.nonce != nonce) return refuse("belongs to another epoch");
  return segment;
}

segment_header& guard_segment::header() const noexcept { return *reinterpret_cast<segment_header*>(base_); }

member_line& guard_segment::member(std::uint32_t slot) const noexcept {
  return reinterpret_cast<member_line*>(base_ + offsets{slots_}.members)[slot];
}

bell_line& guard_segment::bell(std::uint32_t slot) const noexcept {
  return reinterpret_cast<bell_line*>(base_ + offsets{slots_}.bells)[slot];
}

revoke_line& guard_segment::revoked(std::uint32_t slot) const noexcept {
  return reinterpret_cast<revoke_line*>(base_ + offsets{slots_}.revokes)[slot];
}

robust_node& guard_segment::robust(std::uint32_t victim, std::uint32_t watcher) const noexcept {
  std::byte* row = base_ + offsets{slots_}.robust + victim * robust_row(slots_);
  return reinterpret_cast<robust_node*>(row)[watcher];
}

mailbox& guard_segment::mail(std::uint32_t writer, std::uint32_t reader) const noexcept {
  const std::size_t index = std::size_t{writer} * slots_ + reader;
  return reinterpret_cast<mailbox*>(base_ + offsets{slots_}.mail)[index];
}

}  // namespace chorale
