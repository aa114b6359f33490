#include <chorale/kernels/launch_arguments.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace chorale::cuda {
namespace {

using kernels::algorithm;
using kernels::exchange_args;
using kernels::exchange_plan;
using kernels::group_limits;

error bad(const exchange_call& c, const std::string& why) {
  return error{errc::invalid_argument, std::string{name_of(c.kind)} + ": " + why};
}

bool is_integer(dtype type) noexcept {
  switch (type) {
    case dtype::i8:
    case dtype::u8:
    case dtype::i32:
    case dtype::u32:
    case dtype::i64:
    case dtype::u64:
      return true;
    default:
      return false;
  }
}
bool is_signed(dtype type) noexcept { return type == dtype::i8 || type == dtype::i32 || type == dtype::i64; }

result<void> check_operation(const exchange_call& c) {
  if (size_of(c.type) == 0) return bad(c, "this is no element type; name one of dtype");
  if (!c.folds) return {};
  // Text is made for errors only: every launch comes through here.
  const auto named = [&] {
    return std::string{name_of(c.kind)} + ": " + std::string{name_of(c.op)} + " of " +
           std::string{name_of(c.type)};
  };
  switch (c.op) {
    case reduction::sum:
    case reduction::prod:
    case reduction::min:
    case reduction::max:
    case reduction::avg:
    case reduction::premul_sum:
      return {};
    case reduction::bit_and:
    case reduction::bit_or:
    case reduction::bit_xor:
      if (is_integer(c.type)) return {};
      return error{errc::unsupported,
                   named() + " on device memory: bit operations take integers; use integers of this size"};
    case reduction::user:
      return error{errc::unsupported,
                   named() + " on device memory: a function of the caller cannot run there; use host memory"};
    case reduction::none:
      break;
  }
  return error{errc::invalid_argument, named() + ": this is no reduction; name one of reduction"};
}

bool apart(const extent& a, const extent& b) noexcept {
  return a.bytes == 0 || b.bytes == 0 || a.data + a.bytes <= b.data || b.data + b.bytes <= a.data;
}
bool same(const extent& a, const extent& b) noexcept { return a.data == b.data && a.bytes == b.bytes; }

/// What is written may lie where this rank's own part is read from: copying, nothing is written then, and
/// peers may be sent the same. An all_reduce may have one buffer.
bool may_share(const exchange_call& c, std::size_t own, std::size_t written, std::size_t read) noexcept {
  if (!same(c.receive[written], c.send[read])) return false;
  if (written != own) return false;
  return read == own || c.kind == exchange_kind::all_reduce || (!c.folds && same(c.send[own], c.send[read]));
}

result<void> check_buffer(const exchange_call& c, const char* what, std::size_t rank, const extent& e) {
  if (e.bytes == 0) return {};
  const auto which = [&] { return std::string{what} + " rank " + std::to_string(rank); };
  if (e.data == nullptr)
    return bad(c, "the buffer for what goes " + which() + " is null and " + std::to_string(e.bytes) +
                      " bytes are wanted: pass device pointers");
  if (reinterpret_cast<std::uintptr_t>(e.data) % size_of(c.type) != 0)
    return bad(c, "the buffer for what goes " + which() + " is not aligned to its elements of " +
                      std::to_string(size_of(c.type)) + " bytes: align it");
  return {};
}

result<void> check_overlap(const exchange_call& c, std::size_t size, std::size_t own) {
  for (std::size_t w = 0; w < size; ++w) {
    if (c.receive[w].bytes == 0) continue;
    for (std::size_t r = 0; r < size; ++r) {
      if (!apart(c.receive[w], c.send[r]) && !may_share(c, own, w, r))
        return bad(
            c,
            "input and output overlap; in place, a rank's own part lies where it belongs in the whole, or "
            "all_reduce has one buffer for both, else they are apart");
      if (r < w && !apart(c.receive[w], c.receive[r]))
        return bad(c, "what comes from rank " + std::to_string(r) + " and from rank " + std::to_string(w) +
                          " goes to overlapping memory: keep it apart");
    }
  }
  return {};
}

struct launch_builder {
  const exchange_call& call;
  const group_limits& limits;
  launch_arguments made{};
  std::uint32_t own = 0;
  std::uint32_t size = 1;

  void fill_extents() {
    exchange_args& a = made.args;
    std::uintptr_t bits = 0;
    for (std::uint32_t r = 0; r < size; ++r) {
      a.edges[r].send = call.send[r].data;
      a.edges[r].receive = call.receive[r].data;
      a.edges[r].send_bytes = call.send[r].bytes;
      a.edges[r].receive_bytes = call.receive[r].bytes;
      if (a.edges[r].send_bytes != 0) bits |= reinterpret_cast<std::uintptr_t>(a.edges[r].send);
      if (a.edges[r].receive_bytes != 0) bits |= reinterpret_cast<std::uintptr_t>(a.edges[r].receive);
    }
    a.alignment =
        static_cast<std::uint8_t>(std::min<std::uintptr_t>(bits == 0 ? 16 : bits & (~bits + 1), 16));
    a.peers = call.peers;
    a.folds = call.folds;
    a.scalar = call.scalar;
    a.is_signed = is_signed(call.type);
  }

  /// An all_reduce whose ranks fold a share each.
  void share() {
    exchange_args& a = made.args;
    const std::byte* in = a.edges[own].send;
    std::byte* out = a.edges[own].receive;
    const std::uint64_t bytes = a.edges[own].receive_bytes;
    for (std::uint32_t r = 0; r < size; ++r) {
      const kernels::shared_range part = kernels::share_range(bytes, size, r);
      a.edges[r].send = in + part.begin;
      a.edges[r].receive = out + part.begin;
      a.edges[r].send_bytes = a.edges[r].receive_bytes = part.bytes;
    }
    a.gathers = 1;
    a.gathered_lines = static_cast<std::uint32_t>(kernels::lines_of(kernels::share_bytes(bytes, size)));
  }

  void sign() {
    exchange_args& a = made.args;
    a.op = static_cast<std::uint8_t>(call.op);
    a.kinds = kernels::signature_kinds(static_cast<std::uint8_t>(call.kind),
                                       static_cast<std::uint8_t>(call.type), a.op, call.root);
    for (std::uint32_t r = 0; r < size; ++r) {
      if (!call.is_pairwise()) {
        a.edges[r].count = call.count;
        a.edges[r].pair = call.hash;
        continue;
      }
      // Both ranks of the pair put what goes to the higher one first. Bytes are below 2^56.
      const std::uint64_t going = call.send[r].bytes | static_cast<std::uint64_t>(call.send_types[r]) << 56;
      const std::uint64_t coming = call.receive[r].bytes | static_cast<std::uint64_t>(call.receive_types[r])
                                                               << 56;
      a.edges[r].count = own < r ? going : coming;
      a.edges[r].pair = own < r ? coming : going;
    }
  }

  void serve(std::uint32_t edge, const exchange_plan& plan) {
    exchange_args& a = made.args;
    a.ctas[edge] = static_cast<std::uint8_t>(plan.ctas);
    made.ctas = std::max(made.ctas, plan.ctas);
    made.threads = std::max(made.threads, plan.threads);
    const auto bit = static_cast<std::uint8_t>((1u << edge) & call.peers);
    if (plan.way == algorithm::packets) a.by_packets |= bit;
    if (plan.way == algorithm::lines) a.by_lines |= bit;
    if (plan.way == algorithm::ring) a.by_ring |= bit;
    if (plan.stripes != 0) a.stripes = static_cast<std::uint16_t>(plan.stripes);
  }

  void plan_alike(const exchange_plan& plan) {
    exchange_args& a = made.args;
    if (plan.gathers) share();
    for (std::uint32_t r = 0; r < size; ++r) {
      serve(r, plan);
      a.edges[r].send_chunk = chunk_of(plan, a.edges[r].send_bytes, plan.chunk);
      a.edges[r].receive_chunk = chunk_of(plan, a.edges[r].receive_bytes, plan.chunk);
    }
    made.kernel = kernel_for({plan, size, call.folds, call.type, call.op});
    made.threads = std::min(made.threads, all_kernels()[made.kernel].most_threads);
  }

  /// What `send_chunk` and `receive_chunk` say.
  static std::uint32_t chunk_of(const exchange_plan& plan, std::uint64_t bytes, std::uint32_t ring_chunk) {
    return plan.way == algorithm::lines ? static_cast<std::uint32_t>(kernels::lines_of(bytes)) : ring_chunk;
  }

  /// Each edge by the larger of what goes and what comes; each direction's chunks by its own length.
  void plan_by_edge() {
    exchange_args& a = made.args;
    exchange_plan any;
    for (std::uint32_t r = 0; r < size; ++r) {
      kernels::exchange_edge& edge = a.edges[r];
      const exchange_plan plan =
          kernels::plan_exchange(std::max(edge.send_bytes, edge.receive_bytes), limits);
      edge.send_chunk = chunk_of(plan, edge.send_bytes, kernels::ring_chunk_of(edge.send_bytes, limits));
      edge.receive_chunk =
          chunk_of(plan, edge.receive_bytes, kernels::ring_chunk_of(edge.receive_bytes, limits));
      if (r == own)  // the ring's way of copying it, whatever the edges decide
        edge.send_chunk = edge.receive_chunk = kernels::ring_chunk_of(edge.receive_bytes, limits);
      const bool decides = ((call.peers >> r) & 1) != 0 || (r == own && call.peers == 0);
      if (!decides) continue;
      serve(r, plan);
      any.way = std::max(any.way, plan.way);
      any.lines_ahead = std::max(any.lines_ahead, plan.lines_ahead);
    }
    a.ctas[own] = static_cast<std::uint8_t>(made.ctas);
    const int ways = (a.by_packets != 0) + (a.by_lines != 0) + (a.by_ring != 0);
    made.kernel = ways > 1 ? mixed_kernel() : kernel_for({any, size, false, call.type, call.op});
    if (ways < 2) return;
    // the parts run in one grid of the ring's shape
    const exchange_plan shape = kernels::plan_ring(0, limits);
    made.ctas = shape.ctas;
    made.threads = shape.threads;
    a.stripes = static_cast<std::uint16_t>(shape.stripes);
  }

  void note_sources() {
    exchange_args& a = made.args;
    const std::uint32_t others = ((1u << size) - 1) & ~(1u << own);
    bool one = size > 1 && a.peers == others;
    bool bulk = true;
    for (std::uint32_t r = 0; r < size; ++r) {
      one = one && a.edges[r].send == a.edges[own].send && a.edges[r].send_bytes == a.edges[own].send_bytes;
      if (((a.by_ring >> r) & 1) != 0 && a.edges[r].send_bytes != 0)
        bulk = bulk && reinterpret_cast<std::uintptr_t>(a.edges[r].send) % 16 == 0;
    }
    if (a.gathers != 0) bulk = bulk && reinterpret_cast<std::uintptr_t>(a.edges[own].receive) % 16 == 0;
    a.one_source = one;
    a.bulk = bulk;
    a.in_place =
        one && call.folds && a.edges[own].receive_bytes != 0 && a.edges[own].receive == a.edges[own].send;
  }

  /// Kernels of two ranks call the own one 0.
  void number_for_pair() {
    exchange_args& a = made.args;
    if (size != 2) return;
    a.pair_peer = static_cast<std::uint8_t>(1 - own);
    if (own == 0 || !all_kernels()[made.kernel].for_pair) return;
    const auto swapped = [](std::uint8_t set) {
      return static_cast<std::uint8_t>((set & 1u) << 1 | ((set >> 1) & 1u));
    };
    std::swap(a.edges[0], a.edges[1]);
    std::swap(a.ctas[0], a.ctas[1]);
    for (std::uint8_t* set : {&a.peers, &a.by_packets, &a.by_lines, &a.by_ring}) *set = swapped(*set);
    a.group.rank = 0;
  }
};

exchange_plan plan_of(const exchange_call& call, const group_limits& limits) {
  switch (call.kind) {
    case exchange_kind::all_reduce:
      return kernels::plan_all_reduce(call.largest, limits);
    case exchange_kind::broadcast:
    case exchange_kind::reduce:
    case exchange_kind::gather:
    case exchange_kind::gather_v:
    case exchange_kind::scatter:
    case exchange_kind::scatter_v:
      return kernels::plan_one_way(call.largest, limits);
    default:
      return kernels::plan_exchange(call.largest, limits);
  }
}

}  // namespace

result<void> check_exchange(const exchange_call& call, place_in_group at) {
  if (auto r = check_operation(call); !r) return r;
  const auto size = static_cast<std::size_t>(at.size);
  if (call.count > std::uint64_t{1} << 52) return bad(call, "the count is too large to be one");
  for (std::size_t r = 0; r < size; ++r) {
    if (auto ok = check_buffer(call, "to", r, call.send[r]); !ok) return ok;
    if (auto ok = check_buffer(call, "from", r, call.receive[r]); !ok) return ok;
  }
  return check_overlap(call, size, static_cast<std::size_t>(at.rank));
}

launch_arguments arguments_of(const exchange_call& call, const exchange_plan* planned,
                              const group_memory& memory, const group_limits& limits) {
  launch_builder b{call, limits};
  b.own = memory.view.rank;
  b.size = memory.view.size;
  b.made.args.group = memory.view;
  for (std::uint32_t r = 0; r < b.size; ++r) b.made.args.edges[r].region = memory.regions[r];
  b.fill_extents();
  b.sign();
  if (planned != nullptr)
    b.plan_alike(*planned);
  else if (call.is_pairwise())
    b.plan_by_edge();
  else
    b.plan_alike(plan_of(call, limits));
  b.note_sources();
  b.number_for_pair();
  return b.made;
}

}  // namespace chorale::cuda
