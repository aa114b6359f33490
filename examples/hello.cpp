// The smallest program: every rank contributes its number, every rank gets the sum.
//   chorale run -n 4 -- hello
#include <chorale/chorale.hpp>

#include <array>
#include <cstdio>

chorale::task<> hello() {
  auto comm = co_await chorale::communicator::join();
  std::array<float, 1> value{static_cast<float>(comm.rank())};
  co_await comm.all_reduce(value, chorale::sum);
  std::printf("rank %d of %d: the ranks add up to %g\n", comm.rank(), comm.size(), value[0]);
}

int main() {
  chorale::engine loop;
  try {
    loop.run(hello());
  } catch (const chorale::failure& f) {
    std::fprintf(stderr, "hello: %s\n", f.what());
    return 1;
  }
}
