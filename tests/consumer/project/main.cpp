// What somebody who installed chorale builds first: a job of one that reduces.
#include <chorale/chorale.hpp>

#include <array>
#include <cstdio>

namespace {

chorale::task<bool> reduce_alone() {
  auto comm = co_await chorale::communicator::join();
  std::array<float, 3> values{1, 2, 3};
  co_await comm.all_reduce(values, chorale::sum);
  co_return comm.size() == 1 && values == std::array<float, 3>{1, 2, 3};
}

}  // namespace

int main() {
  try {
    chorale::engine loop;
    const bool good = loop.run(reduce_alone());
    std::puts(good ? "the sum is right" : "the sum is wrong");
    return good ? 0 : 1;
  } catch (const chorale::failure& f) {
    std::fprintf(stderr, "%s\n", f.what());
    return 1;
  }
}
