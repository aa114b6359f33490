#include "subject.hpp"

namespace chorale::bench {

call call_of(const subject& s, rank_t rank, rank_t ranks, half part) noexcept {
  call c;
  c.kind = s.what->kind;
  c.type = s.type;
  if (reduces(c.kind)) c.op = s.op;
  if (has_root(c.kind)) c.root = s.root;
  c.count = s.count;
  if (c.kind == collective_kind::all_to_all) c.count *= static_cast<std::uint64_t>(ranks);
  if (s.is_exchange()) {
    c.sending = part == half::sending;
    c.receiving = !c.sending;
    c.room = c.count;
    (c.sending ? c.peer : c.source) = (rank + (c.sending ? 1 : ranks - 1)) % ranks;
  }
  const buffer_shape shape = shape_of(c, rank, ranks);
  if (shape.reads) c.in_count = shape.in;
  if (shape.writes) c.out_count = shape.out;
  return c;
}

std::uint64_t output_count(const subject& s, rank_t rank, rank_t ranks) noexcept {
  return call_of(s, rank, ranks, half::receiving).out_count;
}

}  // namespace chorale::bench
