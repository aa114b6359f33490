// Every call there is, in whichever way it is made: for communicators and lanes that take tokens, or wait.
#pragma once

#include "job.hpp"

#include <chrono>
#include <cstdint>
#include <vector>

namespace chorale::testing {

/// Makes every call on `on`, one after the other. `done(call)` invokes `call(token…)` with whatever tokens it
/// likes and returns when the operation has ended well.
template <class Calls, class Done>
void make_every_call(Calls& on, rank_t me, rank_t n, const Done& done) {
  using numbers = std::vector<std::int32_t>;
  const auto ranks = static_cast<std::size_t>(n);
  const std::int32_t all = n * (n - 1) / 2;
  const auto filled = [](std::size_t count, std::int32_t value) { return numbers(count, value); };
  numbers one = filled(2, me), out = filled(2, -1), many = filled(2 * ranks, -1);
  numbers in_order;
  for (rank_t r = 0; r < n; ++r) in_order.insert(in_order.end(), 2, r);
  // Rank r has r elements.
  std::vector<std::uint64_t> counts(ranks);
  numbers mine = filled(static_cast<std::size_t>(me), me), whole;
  for (rank_t r = 0; r < n; ++r) {
    counts[static_cast<std::size_t>(r)] = static_cast<std::uint64_t>(r);
    whole.insert(whole.end(), static_cast<std::size_t>(r), r);
  }

  done([&](auto... token) { return on.all_reduce(one, out, sum, token...); });
  expect(out == filled(2, all), "all_reduce");
  done([&](auto... token) {
    return on.reduce(one, out, n - 1, max, deadline{std::chrono::seconds{30}}, token...);
  });
  expect(out == filled(2, me == n - 1 ? n - 1 : all), "reduce");
  out = filled(2, me);
  done([&](auto... token) { return on.broadcast(out, n - 1, token...); });
  expect(out == filled(2, n - 1), "broadcast");
  done([&](auto... token) { return on.all_gather(one, many, token...); });
  expect(many == in_order, "all_gather");
  numbers gathered(whole.size(), -1);
  done([&](auto... token) { return on.all_gather_v(mine, gathered, counts, token...); });
  expect(gathered == whole, "all_gather_v");
  done([&](auto... token) { return on.reduce_scatter(in_order, out, token...); });
  expect(out == filled(2, n * me), "reduce_scatter");
  numbers share(mine.size(), -1);
  done([&](auto... token) { return on.reduce_scatter_v(whole, share, counts, sum, token...); });
  expect(share == filled(mine.size(), n * me), "reduce_scatter_v");
  done([&](auto... token) { return on.all_to_all(in_order, many, token...); });
  expect(many == filled(2 * ranks, me), "all_to_all");
  const std::vector<std::uint64_t> equal(ranks, 2);
  many = filled(2 * ranks, -1);
  done([&](auto... token) { return on.all_to_all_v(in_order, many, equal, equal, token...); });
  expect(many == filled(2 * ranks, me), "all_to_all_v");
  many = filled(2 * ranks, -1);
  done([&](auto... token) { return on.gather(one, many, 0, token...); });
  expect(many == (me == 0 ? in_order : filled(2 * ranks, -1)), "gather");
  gathered.assign(whole.size(), -1);
  done([&](auto... token) { return on.gather_v(mine, gathered, counts, 0, token...); });
  expect(me != 0 || gathered == whole, "gather_v");
  done([&](auto... token) { return on.scatter(in_order, out, 0, token...); });
  expect(out == filled(2, me), "scatter");
  share.assign(mine.size(), -1);
  done([&](auto... token) { return on.scatter_v(whole, share, counts, 0, token...); });
  expect(share == mine, "scatter_v");
  done([&](auto... token) { return on.scan(one, out, token...); });
  expect(out == filled(2, me * (me + 1) / 2), "scan");
  out = filled(2, -1);
  done([&](auto... token) { return on.exscan(one, out, token...); });
  expect(out == filled(2, me == 0 ? -1 : me * (me - 1) / 2), "exscan");
  if (n > 1 && me == 0) done([&](auto... token) { return on.send(one, n - 1, token...); });
  if (n > 1 && me == n - 1) {
    done([&](auto... token) { return on.recv(out, 0, token...); });
    expect(out == filled(2, 0), "send and recv");
  }
  done([&](auto... token) { return on.barrier(token...); });

  numbers batched = filled(3, me);
  out = filled(2, me == 0 ? 7 : -1);
  done([&](auto... token) {
    return on.batch(chorale::all_reduce(batched, sum), chorale::broadcast(out, 0), chorale::barrier(),
                    token...);
  });
  expect(batched == filled(3, all) && out == filled(2, 7), "batch");
}

}  // namespace chorale::testing
