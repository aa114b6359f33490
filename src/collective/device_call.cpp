#include <chorale/collective/device_call.hpp>

#include <array>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace chorale {
namespace {

// Device groups lie below the collectives and number their calls alike: signatures and errors of both agree.
constexpr bool alike(cuda::exchange_kind below, collective_kind here) {
  return static_cast<int>(below) == static_cast<int>(here);
}
static_assert(alike(cuda::exchange_kind::all_reduce, collective_kind::all_reduce) &&
              alike(cuda::exchange_kind::messages, collective_kind::message) &&
              alike(cuda::exchange_kind::barrier, collective_kind::barrier) &&
              alike(cuda::exchange_kind::reduce, collective_kind::reduce) &&
              alike(cuda::exchange_kind::broadcast, collective_kind::broadcast) &&
              alike(cuda::exchange_kind::all_gather, collective_kind::all_gather) &&
              alike(cuda::exchange_kind::reduce_scatter, collective_kind::reduce_scatter) &&
              alike(cuda::exchange_kind::all_to_all, collective_kind::all_to_all) &&
              alike(cuda::exchange_kind::gather, collective_kind::gather) &&
              alike(cuda::exchange_kind::scatter, collective_kind::scatter) &&
              alike(cuda::exchange_kind::all_gather_v, collective_kind::all_gather_v) &&
              alike(cuda::exchange_kind::reduce_scatter_v, collective_kind::reduce_scatter_v) &&
              alike(cuda::exchange_kind::all_to_all_v, collective_kind::all_to_all_v) &&
              alike(cuda::exchange_kind::gather_v, collective_kind::gather_v) &&
              alike(cuda::exchange_kind::scatter_v, collective_kind::scatter_v));

cuda::reduction_of reduction_of(const call& c) noexcept {
  cuda::reduction_of how{c.type, c.op, 0};
  std::memcpy(&how.scalar, c.scalar.data(), sizeof how.scalar);
  return how;
}

/// A send, a receive, or one of each.
struct halves {
  std::array<cuda::message, 2> each;
  std::size_t count = 0;
  [[nodiscard]] std::span<const cuda::message> all() const noexcept { return std::span{each}.first(count); }
};

result<halves> messages_of(const call& c) {
  const bool named = !c.receiving || (c.source != any_source && c.receive_tag == 0 && !c.told);
  if (c.tag != 0 || !named)
    return error{
        errc::unsupported,
        "a message on device memory with a tag, from anybody, or that is to be told of: there each names "
        "its rank, and both sides the same count"};
  halves made;
  if (c.sending) made.each[made.count++] = cuda::send_to(c.peer, c.in, c.count, c.type);
  if (c.receiving) made.each[made.count++] = cuda::receive_from(c.source, c.out, c.room, c.type);
  return made;
}

}  // namespace

result<cuda::exchange_call> device_exchange(const call& c, cuda::place_in_group at) {
  if (auto ok = validate_on_stream(c, at.rank, at.size); !ok) return std::move(ok).error();
  const cuda::counts_by_rank counts =
      c.counts ? cuda::counts_by_rank{c.counts->counts} : cuda::counts_by_rank{};
  switch (c.kind) {
    case collective_kind::all_reduce:
      return cuda::all_reduce_call(at, c.in, c.out, c.count, reduction_of(c));
    case collective_kind::reduce:
      return cuda::reduce_call(at, c.in, c.out, c.count, reduction_of(c), c.root);
    case collective_kind::broadcast:
      return cuda::broadcast_call(at, c.in, c.out, c.count, c.type, c.root);
    case collective_kind::all_gather:
      return cuda::all_gather_call(at, c.in, c.out, c.count, c.type);
    case collective_kind::all_gather_v:
      return cuda::all_gather_v_call(at, c.in, c.out, counts, c.type);
    case collective_kind::reduce_scatter:
      return cuda::reduce_scatter_call(at, c.in, c.out, c.count, reduction_of(c));
    case collective_kind::reduce_scatter_v:
      return cuda::reduce_scatter_v_call(at, c.in, c.out, counts, reduction_of(c));
    case collective_kind::all_to_all:
      return cuda::all_to_all_call(at, c.in, c.out, c.count / static_cast<std::uint64_t>(at.size), c.type);
    case collective_kind::all_to_all_v:
      return cuda::all_to_all_v_call(at, c.in, counts, c.out, c.counts->arriving, c.type);
    case collective_kind::gather:
      return cuda::gather_call(at, c.in, c.out, c.count, c.type, c.root);
    case collective_kind::gather_v:
      return cuda::gather_v_call(at, c.in, c.out, counts, c.type, c.root);
    case collective_kind::scatter:
      return cuda::scatter_call(at, c.in, c.out, c.count, c.type, c.root);
    case collective_kind::scatter_v:
      return cuda::scatter_v_call(at, c.in, c.out, counts, c.type, c.root);
    case collective_kind::message: {
      const auto messages = messages_of(c);
      return messages ? cuda::messages_call(at, messages->all()) : messages.error();
    }
    case collective_kind::barrier:
      return cuda::barrier_call(at);
    case collective_kind::none:
    case collective_kind::scan:
    case collective_kind::exscan:
    case collective_kind::split:
    case collective_kind::window:
      break;
  }
  return error{errc::unsupported,
               std::string{name_of(c.kind)} + " has no form on device memory; copy to the host"};
}

result<cuda::exchange_call> device_messages(std::span<const call> calls, cuda::place_in_group at) {
  std::vector<cuda::message> messages;
  messages.reserve(calls.size());
  for (const call& c : calls) {
    if (c.kind != collective_kind::message)
      return error{errc::unsupported,
                   std::string{name_of(c.kind)} +
                       " in a batch on a stream, which takes sends and receives; call it "
                       "by itself: a stream runs its operations one after the other anyway"};
    if (auto ok = validate_on_stream(c, at.rank, at.size); !ok) return std::move(ok).error();
    const auto of_call = messages_of(c);
    if (!of_call) return of_call.error();
    messages.insert(messages.end(), of_call->all().begin(), of_call->all().end());
  }
  return cuda::messages_call(at, messages);
}

}  // namespace chorale
