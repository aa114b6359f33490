// Heat that spreads around a ring of cells, cut into one piece per rank. In each step a rank puts its
// outermost cells into its neighbours' windows, signals them, and waits until theirs have come.
//   chorale run -n 4 -- halo
#include <chorale/chorale.hpp>

#include <array>
#include <cstdio>
#include <vector>

namespace {

namespace ch = chorale;

constexpr std::size_t cells = 1000;
constexpr std::uint64_t steps = 500;

/// What neighbours write. Two of each, in turn: a neighbour can be one step ahead, not two.
struct borders {
  std::array<double, 2> left;
  std::array<double, 2> right;
};
constexpr std::uint32_t from_left = 0, from_right = 1;  // counters

ch::task<> spread(ch::window& w, std::vector<double>& heat) {
  const ch::rank_t left = (w.rank() + w.size() - 1) % w.size();
  const ch::rank_t right = (w.rank() + 1) % w.size();
  const borders& mine = *reinterpret_cast<const borders*>(w.bytes().data());
  std::vector<double> next(cells);
  for (std::uint64_t step = 1; step <= steps; ++step) {
    const std::uint64_t turn = step % 2;
    // guide: border
    // All under way at once; the signal to each neighbour follows the put.
    auto to_left =
        w.put(left, offsetof(borders, right) + turn * sizeof(double), std::span{heat}.first(1)).start();
    auto to_right =
        w.put(right, offsetof(borders, left) + turn * sizeof(double), std::span{heat}.last(1)).start();
    co_await w.signal(left, from_right);
    co_await w.signal(right, from_left);
    co_await w.wait(from_left, step);
    co_await w.wait(from_right, step);
    // end of guide
    for (std::size_t i = 0; i < cells; ++i) {
      const double before = i == 0 ? mine.left[turn] : heat[i - 1];
      const double after = i + 1 == cells ? mine.right[turn] : heat[i + 1];
      next[i] = 0.25 * before + 0.5 * heat[i] + 0.25 * after;
    }
    co_await std::move(to_left);
    co_await std::move(to_right);
    heat.swap(next);
  }
}

ch::task<> halo() {
  auto comm = co_await ch::communicator::join();
  auto w = co_await comm.create_window(sizeof(borders), {2});
  std::vector<double> heat(cells);
  if (comm.rank() == 0) heat.front() = 6;
  ch::task<> spreading = spread(w, heat);
  co_await std::move(spreading);
  co_await w.close();

  std::array<double, 1> whole{};
  for (const double h : heat) whole[0] += h;
  co_await comm.all_reduce(whole);
  std::printf("rank %d of %d: the ranks add up to %.9g\n", comm.rank(), comm.size(), whole[0]);
}

}  // namespace

int main() {
  chorale::engine loop;
  try {
    loop.run(halo());
  } catch (const chorale::failure& f) {
    std::fprintf(stderr, "halo: %s\n", f.what());
    return 1;
  }
}
