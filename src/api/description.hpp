// Calls described without a place in the order. Every collective is described here once; communicators,
// lanes, batches and plans all take these.
//
//   co_await comm.batch(chorale::send(a, 1), chorale::recv(b, 1), chorale::all_reduce(c));
//
// C++ leaves open in which order the arguments of a function are evaluated, and compilers differ; a
// description takes no ticket, so it does not matter.
//
// Buffers are contiguous ranges of elements (element.hpp): spans, or containers that stay; or device_span for
// GPU memory, whose calls take a stream (gpu.hpp). They are the caller's and stay untouched until the
// operation has ended, well or badly; then nothing reads or writes them. Ranks make the same call with the
// same type, counts, operation and root, or all end with errc::mismatch. In place means the memory that each
// collective names; any other overlap, a wrong length, a null or misaligned buffer is errc::invalid_argument,
// before the call takes its place. Counts may be zero, also for single ranks. A buffer that a rank does not
// need (the output of a gather elsewhere than at the root) may be empty.
#pragma once

#include <chorale/api/device_span.hpp>
#include <chorale/api/reduce_operation.hpp>
#include <chorale/collective/call.hpp>
#include <chorale/kernels/element.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <type_traits>

namespace chorale {

/// A contiguous range of elements that outlives the expression that names it.
template <class Range>
concept host_buffer = std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range> &&
                      std::ranges::borrowed_range<Range> && element<std::ranges::range_value_t<Range>>;
/// Memory to read: the host's, or a GPU's (device_span).
template <class Range>
concept buffer = host_buffer<Range> || device_buffer<Range>;

namespace detail {
template <buffer Range>
using item_of =
    std::remove_pointer_t<decltype(std::ranges::data(std::declval<std::remove_reference_t<Range>&>()))>;
}  // namespace detail

/// Memory to write.
template <class Range>
concept writable_buffer = buffer<Range> && !std::is_const_v<detail::item_of<Range>>;
/// An output for an input of the same type, in memory of the same kind.
template <class Out, class In>
concept output_for = writable_buffer<Out> && device_buffer<Out> == device_buffer<In> &&
                     std::same_as<detail::item_of<Out>, std::remove_const_t<detail::item_of<In>>>;

/// Elements of each rank, in rank order. All ranks pass the same vector.
using rank_counts = std::span<const std::uint64_t>;

struct described_call {
  call what;
};

namespace detail {

template <class Range>
void read_from(call& what, Range&& in) noexcept {
  what.on_device = device_buffer<Range>;
  what.type = dtype_of<std::remove_const_t<item_of<Range>>>;
  what.in = reinterpret_cast<const std::byte*>(std::ranges::data(in));
  what.in_count = std::ranges::size(in);
}
template <class Range>
void write_to(call& what, Range&& out) noexcept {
  what.on_device = device_buffer<Range>;
  what.type = dtype_of<item_of<Range>>;
  what.out = reinterpret_cast<std::byte*>(std::ranges::data(out));
  what.out_count = std::ranges::size(out);
}
template <class In, class Out>
described_call describe(collective_kind kind, In&& in, Out&& out) noexcept {
  described_call d;
  d.what.kind = kind;
  read_from(d.what, in);
  write_to(d.what, out);
  d.what.count = d.what.in_count;
  return d;
}
template <class In, class Out>
described_call describe(collective_kind kind, In&& in, Out&& out, const reduce_operation& op) noexcept {
  described_call d = describe(kind, in, out);
  op.describe(d.what);
  return d;
}
template <class In, class Out>
described_call describe(collective_kind kind, In&& in, Out&& out, rank_counts counts,
                        rank_counts arriving = {}) {
  described_call d = describe(kind, in, out);
  d.what.counts = make_count_table(counts, arriving);
  d.what.count = d.what.counts->total;
  return d;
}

}  // namespace detail

/// out[i] = what all ranks' in[i] make, bitwise the same on every rank. Both have the same length everywhere.
template <buffer In, output_for<In> Out>
[[nodiscard]] described_call all_reduce(In&& in, Out&& out, const reduce_operation& op = sum) {
  return detail::describe(collective_kind::all_reduce, in, out, op);
}
/// In place.
template <writable_buffer InOut>
[[nodiscard]] described_call all_reduce(InOut&& inout, const reduce_operation& op = sum) {
  return detail::describe(collective_kind::all_reduce, inout, inout, op);
}

/// As all_reduce, but only `root` gets the result; `out` is not touched elsewhere.
template <buffer In, output_for<In> Out>
[[nodiscard]] described_call reduce(In&& in, Out&& out, rank_t root, const reduce_operation& op = sum) {
  described_call d = detail::describe(collective_kind::reduce, in, out, op);
  d.what.root = root;
  return d;
}
/// In place at the root; the other ranks' memory is only read.
template <writable_buffer InOut>
[[nodiscard]] described_call reduce(InOut&& inout, rank_t root, const reduce_operation& op = sum) {
  return chorale::reduce(inout, inout, root, op);  // std::reduce would do as well
}

/// The root's memory becomes everybody's.
template <writable_buffer InOut>
[[nodiscard]] described_call broadcast(InOut&& inout, rank_t root) {
  described_call d = detail::describe(collective_kind::broadcast, inout, inout);
  d.what.root = root;
  return d;
}
/// The root's input becomes everybody's output; elsewhere the input may be empty.
template <buffer In, output_for<In> Out>
[[nodiscard]] described_call broadcast(In&& in, Out&& out, rank_t root) {
  described_call d = detail::describe(collective_kind::broadcast, in, out);
  d.what.root = root;
  d.what.count = d.what.out_count;
  return d;
}

/// Every rank's input, one behind the other in rank order, everywhere: out has as many shares as there are
/// ranks. In place, `in` is this rank's own share of `out`.
template <buffer In, output_for<In> Out>
[[nodiscard]] described_call all_gather(In&& in, Out&& out) {
  return detail::describe(collective_kind::all_gather, in, out);
}
/// With shares of different lengths: `counts[r]` elements of rank r.
template <buffer In, output_for<In> Out>
[[nodiscard]] described_call all_gather_v(In&& in, Out&& out, rank_counts counts) {
  return detail::describe(collective_kind::all_gather_v, in, out, counts);
}

/// The input has a share for each rank; rank r gets what all ranks' r-th shares make. In place, `out` is this
/// rank's own share of `in`.
template <buffer In, output_for<In> Out>
[[nodiscard]] described_call reduce_scatter(In&& in, Out&& out, const reduce_operation& op = sum) {
  described_call d = detail::describe(collective_kind::reduce_scatter, in, out, op);
  d.what.count = d.what.out_count;
  return d;
}
template <buffer In, output_for<In> Out>
[[nodiscard]] described_call reduce_scatter_v(In&& in, Out&& out, rank_counts counts,
                                              const reduce_operation& op = sum) {
  described_call d = detail::describe(collective_kind::reduce_scatter_v, in, out, counts);
  op.describe(d.what);
  return d;
}

/// The r-th share of the input goes to rank r; the r-th of the output came from there. No in-place form.
template <buffer In, output_for<In> Out>
[[nodiscard]] described_call all_to_all(In&& in, Out&& out) {
  return detail::describe(collective_kind::all_to_all, in, out);
}
/// `to_each[r]` elements go to rank r, `from_each[r]` come from it. Each pair of ranks must agree on its two
/// numbers; nobody knows the others'.
template <buffer In, output_for<In> Out>
[[nodiscard]] described_call all_to_all_v(In&& in, Out&& out, rank_counts to_each, rank_counts from_each) {
  return detail::describe(collective_kind::all_to_all_v, in, out, to_each, from_each);
}

/// Every rank's input, one behind the other, at the root; `out` is not touched elsewhere. In place at the
/// root, `in` is its own share of `out`.
template <buffer In, output_for<In> Out>
[[nodiscard]] described_call gather(In&& in, Out&& out, rank_t root) {
  described_call d = detail::describe(collective_kind::gather, in, out);
  d.what.root = root;
  return d;
}
template <buffer In, output_for<In> Out>
[[nodiscard]] described_call gather_v(In&& in, Out&& out, rank_counts counts, rank_t root) {
  described_call d = detail::describe(collective_kind::gather_v, in, out, counts);
  d.what.root = root;
  return d;
}

/// Rank r gets the r-th share of the root's input; `in` is not read elsewhere. In place at the root, `out` is
/// its own share of `in`.
template <buffer In, output_for<In> Out>
[[nodiscard]] described_call scatter(In&& in, Out&& out, rank_t root) {
  described_call d = detail::describe(collective_kind::scatter, in, out);
  d.what.root = root;
  d.what.count = d.what.out_count;
  return d;
}
template <buffer In, output_for<In> Out>
[[nodiscard]] described_call scatter_v(In&& in, Out&& out, rank_counts counts, rank_t root) {
  described_call d = detail::describe(collective_kind::scatter_v, in, out, counts);
  d.what.root = root;
  return d;
}

/// Rank r gets what the inputs of ranks 0 to r make. No averages.
template <buffer In, output_for<In> Out>
[[nodiscard]] described_call scan(In&& in, Out&& out, const reduce_operation& op = sum) {
  return detail::describe(collective_kind::scan, in, out, op);
}
template <writable_buffer InOut>
[[nodiscard]] described_call scan(InOut&& inout, const reduce_operation& op = sum) {
  return detail::describe(collective_kind::scan, inout, inout, op);
}
/// Rank r gets what the inputs of ranks 0 to r − 1 make; rank 0's output is left as it was, and needed all
/// the same.
template <buffer In, output_for<In> Out>
[[nodiscard]] described_call exscan(In&& in, Out&& out, const reduce_operation& op = sum) {
  return detail::describe(collective_kind::exscan, in, out, op);
}
template <writable_buffer InOut>
[[nodiscard]] described_call exscan(InOut&& inout, const reduce_operation& op = sum) {
  return detail::describe(collective_kind::exscan, inout, inout, op);
}

// Messages. A receive takes the messages of one sender and tag in the order in which they were sent; without
// a tag (which is tag 0) in the order of the calls, with one, or from anybody, in the order in which receives
// start. One with more room than the message has elements takes it and says how many came; one with less ends
// with errc::mismatch on both sides. `told`, if given, is written when the message has come, and stays until
// then: for batches, plans and completion tokens, which have no value to say it with.

template <buffer From>
[[nodiscard]] described_call send(From&& from, rank_t to, tag_t tag = 0) {
  described_call d;
  d.what.kind = collective_kind::message;
  detail::read_from(d.what, from);
  d.what.sending = true;
  d.what.count = d.what.in_count;
  d.what.peer = to;
  d.what.tag = tag;
  return d;
}
/// `from` may be any_source, `tag` any_tag.
template <writable_buffer Into>
[[nodiscard]] described_call recv(Into&& into, rank_t from, tag_t tag = 0, received* told = nullptr) {
  described_call d;
  d.what.kind = collective_kind::message;
  detail::write_to(d.what, into);
  d.what.receiving = true;
  d.what.room = d.what.out_count;
  d.what.source = from;
  d.what.receive_tag = tag;
  d.what.told = told;
  return d;
}
template <writable_buffer Into>
[[nodiscard]] described_call recv(Into&& into, rank_t from, received* told) {
  return chorale::recv(into, from, 0, told);
}

/// A send and a receive that are under way together, so that rings of ranks need no turns; also with oneself.
/// Two buffers that are apart, of any two lengths.
template <buffer From, output_for<From> Into>
[[nodiscard]] described_call sendrecv(From&& out, rank_t to, tag_t tag, Into&& into, rank_t from,
                                      tag_t receive_tag, received* told = nullptr) {
  described_call d = chorale::recv(into, from, receive_tag, told);
  const call sent = chorale::send(out, to, tag).what;
  d.what.sending = true;
  d.what.in = sent.in;
  d.what.in_count = d.what.count = sent.count;
  d.what.peer = to;
  d.what.tag = tag;
  return d;
}
/// With one tag for both, or none.
template <buffer From, output_for<From> Into>
[[nodiscard]] described_call sendrecv(From&& out, rank_t to, Into&& into, rank_t from, tag_t tag = 0,
                                      received* told = nullptr) {
  return chorale::sendrecv(out, to, tag, into, from, tag, told);
}

/// Ends when every rank has called it.
[[nodiscard]] inline described_call barrier() {
  described_call d;
  d.what.kind = collective_kind::barrier;
  return d;
}

}  // namespace chorale
