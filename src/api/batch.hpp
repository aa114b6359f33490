// Calls described without a place in the order, for `batch`, which numbers them left to right.
//
//   co_await comm.batch(chorale::send(a, 1), chorale::recv(b, 1), chorale::all_reduce(c));
//
// C++ leaves open in which order the arguments of a function are evaluated, and compilers differ; a
// description takes no ticket, so it does not matter. Plain values that refer to the caller's buffers.
#pragma once

#include <chorale/api/ticket.hpp>
#include <chorale/async/task.hpp>
#include <chorale/kernels/element.hpp>

#include <span>
#include <vector>

namespace chorale {

struct described_call {
  call what;
};

[[nodiscard]] inline described_call all_reduce(std::span<const float> in, std::span<float> out,
                                               reduction op = reduction::sum) {
  described_call d;
  d.what.kind = collective_kind::all_reduce;
  d.what.type = dtype::f32;
  d.what.op = op;
  d.what.in = reinterpret_cast<const std::byte*>(in.data());
  d.what.out = reinterpret_cast<std::byte*>(out.data());
  d.what.count = d.what.in_count = in.size();
  d.what.out_count = out.size();
  return d;
}
[[nodiscard]] inline described_call all_reduce(std::span<float> inout, reduction op = reduction::sum) {
  return all_reduce(inout, inout, op);
}

template <element T>
[[nodiscard]] described_call send(std::span<T> from, rank_t to) {
  described_call d;
  d.what.kind = collective_kind::message;
  d.what.type = dtype_of<std::remove_cv_t<T>>;
  d.what.in = reinterpret_cast<const std::byte*>(from.data());
  d.what.count = d.what.in_count = from.size();
  d.what.peer = to;
  d.what.sending = true;
  return d;
}
template <element T>
[[nodiscard]] described_call recv(std::span<T> into, rank_t from) {
  described_call d;
  d.what.kind = collective_kind::message;
  d.what.type = dtype_of<T>;
  d.what.out = reinterpret_cast<std::byte*>(into.data());
  d.what.count = d.what.out_count = into.size();
  d.what.peer = from;
  return d;
}
[[nodiscard]] inline described_call barrier() {
  described_call d;
  d.what.kind = collective_kind::barrier;
  return d;
}

namespace detail {
/// Starts all and awaits all; throws the first failure in the order of the calls when every one has ended.
[[nodiscard]] task<void> run_batch(std::vector<ticket> calls);
}  // namespace detail

}  // namespace chorale
