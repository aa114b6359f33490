// The kernels' test cases as an application writes them: descriptions with device_span.
#pragma once

#include "../kernels/collective_cases.hpp"
#include <chorale/api/description.hpp>

#include <cstring>
#include <vector>

namespace chorale::kernels_test {

template <class T>
reduce_operation operation_of(const collective_case& what, rank_t rank) {
  if (what.op != reduction::premul_sum) return what.op;
  T factor;
  const std::uint64_t bits = what.scalar(rank);
  std::memcpy(&factor, &bits, sizeof factor);
  return premul_sum(factor);
}

template <class T>
std::vector<described_call> describe_as(const collective_case& what, rank_t rank, int n, std::byte* arena) {
  using k = cuda::exchange_kind;
  const arena_plan p = what.plan(rank, n);
  const device_span in{reinterpret_cast<const T*>(arena + p.in_at), p.in_bytes / sizeof(T)};
  const device_span out{reinterpret_cast<T*>(arena + p.out_at), p.out_bytes / sizeof(T)};
  const std::vector<std::uint64_t> shares = what.shares(n);
  const reduce_operation op = what.folds() ? operation_of<T>(what, rank) : reduce_operation{sum};
  switch (what.kind) {
    case k::all_reduce:
      return {all_reduce(in, out, op)};
    case k::reduce:
      return {chorale::reduce(in, out, what.root, op)};
    case k::broadcast:
      return {broadcast(in, out, what.root)};
    case k::all_gather:
      return {all_gather(in, out)};
    case k::all_gather_v:
      return {all_gather_v(in, out, shares)};
    case k::gather:
      return {gather(in, out, what.root)};
    case k::gather_v:
      return {gather_v(in, out, shares, what.root)};
    case k::reduce_scatter:
      return {reduce_scatter(in, out, op)};
    case k::reduce_scatter_v:
      return {reduce_scatter_v(in, out, shares, op)};
    case k::scatter:
      return {scatter(in, out, what.root)};
    case k::scatter_v:
      return {scatter_v(in, out, shares, what.root)};
    case k::all_to_all:
      return {all_to_all(in, out)};
    case k::all_to_all_v: {
      std::vector<std::uint64_t> to_each, from_each;
      for (rank_t r = 0; r < n; ++r) {
        to_each.push_back(what.pair_share(rank, r));
        from_each.push_back(what.pair_share(r, rank));
      }
      return {all_to_all_v(in, out, to_each, from_each)};
    }
    case k::messages: {
      std::vector<described_call> all;
      std::byte* from = arena + p.in_at;
      std::byte* into = arena + p.out_at;
      for (const test_message& m : what.messages(n)) {
        if (m.from == rank) all.push_back(send(device_span{reinterpret_cast<const T*>(from), m.count}, m.to));
        if (m.to == rank) all.push_back(recv(device_span{reinterpret_cast<T*>(into), m.count}, m.from));
        if (m.from == rank) from += collective_case::padded(m.length());
        if (m.to == rank) into += collective_case::padded(m.length());
      }
      return all;
    }
    case k::barrier:
      break;
  }
  return {barrier()};
}

/// This rank's calls: one, or for messages as many as it has.
inline std::vector<described_call> describe_with_spans(const collective_case& what, rank_t rank, int n,
                                                       std::byte* arena) {
  switch (what.type) {
    case dtype::i8:
      return describe_as<std::int8_t>(what, rank, n, arena);
    case dtype::i32:
      return describe_as<std::int32_t>(what, rank, n, arena);
    case dtype::u32:
      return describe_as<std::uint32_t>(what, rank, n, arena);
    case dtype::i64:
      return describe_as<std::int64_t>(what, rank, n, arena);
    case dtype::u64:
      return describe_as<std::uint64_t>(what, rank, n, arena);
    case dtype::f16:
      return describe_as<f16>(what, rank, n, arena);
    case dtype::bf16:
      return describe_as<bf16>(what, rank, n, arena);
    case dtype::f32:
      return describe_as<float>(what, rank, n, arena);
    case dtype::f64:
      return describe_as<double>(what, rank, n, arena);
    case dtype::f8e4m3:
      return describe_as<f8e4m3>(what, rank, n, arena);
    case dtype::f8e5m2:
      return describe_as<f8e5m2>(what, rank, n, arena);
    default:
      return describe_as<std::uint8_t>(what, rank, n, arena);
  }
}

}  // namespace chorale::kernels_test
