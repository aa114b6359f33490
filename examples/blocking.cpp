// The same sum as hello's, in plain code: every call returns when it has ended.
//   chorale run -n 4 -- blocking
#include <chorale/blocking.hpp>

#include <array>
#include <cstdio>
#include <new>

int main() try {
  using namespace std::chrono_literals;
  chorale::blocking_communicator comm;
  std::array<float, 1> value{static_cast<float>(comm.rank())};
  comm.all_reduce(value, chorale::sum, chorale::deadline{10s});
  std::printf("rank %d of %d: the ranks add up to %g\n", comm.rank(), comm.size(), value[0]);

  const chorale::result<> all_here = comm.barrier(std::nothrow);  // a result in the place of an exception
  if (!all_here) std::fprintf(stderr, "blocking: %s\n", all_here.error().message().c_str());
} catch (const chorale::failure& f) {
  std::fprintf(stderr, "blocking: %s\n", f.what());
  return 1;
}
